"""Hardware as numbers with units.

In reading order: `topology` (devices, links, routes), `json_format` (the topology file), `presets` (published figures
of known hardware), `real_names` (names of devices that run models), `detect` (what this machine has), `spec` (what people
type after `--devices`), `sampled` (random sets to train on).
"""

from gnnplace.devices.presets import preset, preset_names
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Device, Link, Topology

__all__ = ["Device", "Link", "Topology", "load_topology", "preset", "preset_names"]
