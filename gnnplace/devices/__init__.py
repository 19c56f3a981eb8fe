"""Hardware as numbers with units.

In reading order:

- `topology.py`: devices, links and routes;
- `json_format.py`: the topology file;
- `presets.py`: published figures of known hardware;
- `real_names.py`: names of devices that run models;
- `cuda_driver.py`: GPUs as CUDA numbers them;
- `detect.py`: cores, memory and GPUs of this machine;
- `spec.py`: the texts of `--devices`;
- `sampled.py`: random device sets to train on.
"""

from gnnplace.devices.presets import preset, preset_names
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Device, Link, Topology

__all__ = ["Device", "Link", "Topology", "load_topology", "preset", "preset_names"]
