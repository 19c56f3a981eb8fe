"""What people type after `--devices`: a topology file, a preset, real devices, or `auto`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gnnplace.devices.detect import Gpu, allowed_cores, core_set_device, gpu_device, gpus, machine_memory_bytes
from gnnplace.devices.json_format import read_topology
from gnnplace.devices.presets import preset
from gnnplace.devices.topology import HOST_KIND_PREFIX, Device, Link, Topology
from gnnplace.errors import InvalidTopology

__all__ = ["load_topology", "parse_cores"]

# Estimates until a probe replaces them. Cores hand over a tensor in shared memory: the time to wake the other thread,
# then its first reading of the tensor from the shared cache.
CORE_LATENCY_S, CORE_BANDWIDTH_BYTES_PER_S = 20e-6, 10e9
GPU_LATENCY_S, GPU_BANDWIDTH_BYTES_PER_S = 20e-6, 12e9  # a copy over PCIe 3.0 with its launch


def load_topology(spec: str, with_gpus: bool = True) -> Topology:
    """The devices that a text names: a `.json` file, a preset, real devices (`cpu:0,cpu:1`, `cpu:0-3`), or `auto`.

    `auto` is every core that this process may use, one device each, and every GPU of the NVIDIA driver unless
    `with_gpus` is false. Cores share the machine's memory, so the capacity of a CPU device is its share of the set's
    cores. All real devices are linked with each other.

    >>> load_topology("k40x2").device_names
    ('k40:0', 'k40:1', 'cpu:0')

    Raises:
        InvalidTopology: nothing that can be understood, a core or GPU that is not there, a device listed twice.
    """
    text = spec.strip()
    if not text:
        raise InvalidTopology("the device set is empty; write for example cpu:0,cpu:1 or k40x4 or auto")
    if text.endswith(".json") or Path(text).is_file():
        return read_topology(Path(text))
    if text == "auto":
        return _real(text, [(core,) for core in allowed_cores()], gpus() if with_gpus else ())
    if re.match(r"(cpu|cuda):", text):
        return _parse_real(text)
    return preset(text)


def parse_cores(name: str) -> tuple[int, ...] | None:
    """The cores of a device called `cpu:K` or `cpu:A-B`; None when it is called otherwise.

    >>> parse_cores("cpu:2"), parse_cores("cpu:0-3"), parse_cores("cuda:0")
    ((2,), (0, 1, 2, 3), None)
    """
    match = re.fullmatch(r"cpu:(\d+)(?:-(\d+))?", name)
    if match is None:
        return None
    return tuple(range(int(match[1]), int(match[2] or match[1]) + 1))


def _parse_real(text: str) -> Topology:
    core_sets: list[tuple[int, ...]] = []
    gpu_numbers: list[int] = []
    for entry in (part.strip() for part in text.split(",")):
        cores, gpu = parse_cores(entry), re.fullmatch(r"cuda:(\d+)", entry)
        if gpu is not None:
            gpu_numbers.append(int(gpu[1]))
        elif cores:
            core_sets.append(cores)
        else:
            raise InvalidTopology(
                f"devices {text!r}: {entry!r} is no device; write cpu:K, cpu:A-B with A < B, or cuda:K"
            )
    listed = Counter(f"core {core}" for cores in core_sets for core in cores)
    listed.update(f"cuda:{gpu}" for gpu in gpu_numbers)
    twice = [name for name, count in listed.items() if count > 1]
    if twice:
        raise InvalidTopology(f"devices {text!r}: {twice[0]} is listed twice; list every device once")
    there = allowed_cores()
    missing = next((core for cores in core_sets for core in cores if core not in there), None)
    if missing is not None:
        raise InvalidTopology(
            f"devices {text!r}: core {missing} is not open to this process; it may use {', '.join(map(str, there))}"
        )
    known = gpus() if gpu_numbers else ()
    absent = next((gpu for gpu in gpu_numbers if gpu >= len(known)), None)
    if absent is not None:
        found = f"cuda:0 to cuda:{len(known) - 1}" if known else "none"
        raise InvalidTopology(f"devices {text!r}: there is no GPU cuda:{absent}; the NVIDIA driver shows {found}")
    return _real(text, core_sets, [known[gpu] for gpu in gpu_numbers])


def _real(name: str, core_sets: Sequence[tuple[int, ...]], found_gpus: Sequence[Gpu]) -> Topology:
    num_cores = sum(len(cores) for cores in core_sets)
    memory = machine_memory_bytes()
    devices = [core_set_device(cores, memory * len(cores) // num_cores) for cores in core_sets]
    devices += [gpu_device(gpu) for gpu in found_gpus]
    return Topology(name, tuple(devices), tuple(_link(a, b) for a in devices for b in devices if a is not b))


def _link(source: Device, target: Device) -> Link:
    if source.kind.startswith(HOST_KIND_PREFIX) and target.kind.startswith(HOST_KIND_PREFIX):
        return Link(source.name, target.name, CORE_LATENCY_S, CORE_BANDWIDTH_BYTES_PER_S)
    return Link(source.name, target.name, GPU_LATENCY_S, GPU_BANDWIDTH_BYTES_PER_S)
