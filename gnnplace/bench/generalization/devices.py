"""Device sets that the sampler of training problems cannot draw: the papers' testbeds, and sets made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

from gnnplace.devices.presets import preset
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.units import GIB

__all__ = ["HAND_MADE", "PRESETS", "held_out_devices"]

PRESETS = (
    "k40x2", "k80x2", "v100x2", "k40x5", "k80x5", "k40x2+v100x3", "p100x15", "k80x4", "a100-sxmx4", "h100-sxmx7",
    "k40+p100+v100+a100",
)  # fmt: skip
"""Sets of GPUs and their host with 3, 6 or 16 devices, with shared channels, or with four kinds of GPUs."""


def held_out_devices(name: str) -> Topology:
    """The set of this name, one of `HAND_MADE` or of `PRESETS`."""
    return HAND_MADE[name]() if name in HAND_MADE else preset(name)


def _accelerator(name: str, kind: str, tera_flops: float) -> Device:
    """An accelerator with 0.05 bytes of bandwidth per FLOP, as GPUs have."""
    rate = tera_flops * 1e12
    return Device(name, kind, 16 * GIB, {"float32": rate}, 0.05 * rate, 1e-5)


def _gpus(count: int, tera_flops: float) -> list[Device]:
    return [_accelerator(f"gpu:{index}", "gpu", tera_flops) for index in range(count)]


def _host(name: str, tera_flops: float, kind: str = "cpu") -> Device:
    rate = tera_flops * 1e12
    return Device(name, kind, 256 * GIB, {"float32": rate}, 0.06 * rate, 5e-6)


def _links(pairs: Iterable[tuple[Device, Device]], latency_s: float, bandwidth_bytes_per_s: float) -> list[Link]:
    """Links in both directions."""
    ends = [ends for one, other in pairs for ends in ((one.name, other.name), (other.name, one.name))]
    return [Link(source, target, latency_s, bandwidth_bytes_per_s) for source, target in ends]


def _switched(devices: Sequence[Device], latency_s: float, bandwidth_bytes_per_s: float) -> list[Link]:
    """Links between all devices; the links that leave a device share its port."""
    return [
        Link(a.name, b.name, latency_s, bandwidth_bytes_per_s, f"{a.name}:port") for a, b in permutations(devices, 2)
    ]


def _star(name: str, host: Device, gpus: Sequence[Device], latency_s: float, bandwidth_bytes_per_s: float) -> Topology:
    """Accelerators that exchange data over their host."""
    links = _links(product([host], gpus), latency_s, bandwidth_bytes_per_s)
    return Topology(name, (*gpus, host), tuple(links))


def _servers(count: int, gpus: int) -> Topology:
    """Servers with one host and several GPUs on PCIe, joined by a 10 Gbit/s switch."""
    hosts = [_host(f"cpu:{server}", 2.0) for server in range(count)]
    links = _switched(hosts, 5e-5, 1.25e9)
    devices: list[Device] = []
    for server, host in enumerate(hosts):
        boards = [_accelerator(f"gpu:{server}.{slot}", "gpu", 10.0) for slot in range(gpus)]
        links += _links(product([host], boards), 1e-5, 12e9)
        devices += [*boards, host]
    return Topology(f"servers-{count}x{gpus + 1}", tuple(devices), tuple(links))


def _unequal_servers() -> Topology:
    """Six CPU servers of three generations on one switch."""
    hosts = [_host(f"cpu:{index}", rate, f"cpu-{rate:g}") for index, rate in enumerate((0.5, 0.5, 1.0, 1.0, 2.0, 2.0))]
    return Topology("cpus-6", tuple(hosts), tuple(_switched(hosts, 2e-5, 3e9)))


def _big_and_little_cores() -> Topology:
    """Four fast and four slow cores of one chip."""
    cores = [
        Device(f"cpu:{index}", kind, None, {"float32": rate}, 0.15 * rate, 2e-6)
        for index, (kind, rate) in enumerate([("cpu-big", 1e11)] * 4 + [("cpu-little", 3e10)] * 4)
    ]
    return Topology("cores-4+4", tuple(cores), tuple(_links(combinations(cores, 2), 1e-6, 2e10)))


def _phone() -> Topology:
    """CPU, GPU and neural engine around one memory, with slow dispatch."""
    gpu = Device("gpu:0", "gpu", 8 * GIB, {"float32": 1e12}, 4e10, 1e-4)
    engine = Device("npu:0", "npu", 8 * GIB, {"float32": 2e12}, 4e10, 1e-4)
    cpu = Device("cpu:0", "cpu", 8 * GIB, {"float32": 2e11}, 3e10, 2e-5)
    links = tuple(Link(a.name, b.name, 2e-5, 2e10, "memory") for a, b in permutations((cpu, gpu, engine), 2))
    return Topology("phone-3", (gpu, engine, cpu), links)


def _slow_uploads() -> Topology:
    """Four GPUs that receive four times faster than they send."""
    topology = _star("upload-5", _host("cpu:0", 1.0), _gpus(4, 8.0), 1e-5, 12e9)
    links = (link if link.source == "cpu:0" else replace(link, bandwidth_bytes_per_s=3e9) for link in topology.links)
    return replace(topology, links=tuple(links))


def _ring() -> Topology:
    """Seven accelerators in a ring with links between neighbours; the others exchange data over the host."""
    chips = [_accelerator(f"chip:{index}", "chip", 20.0) for index in range(7)]
    topology = _star("ring-8", _host("cpu:0", 1.0), chips, 1e-5, 1e10)
    return replace(topology, links=(*topology.links, *_links(pairwise([*chips, chips[0]]), 1e-5, 5e10)))


HAND_MADE: Mapping[str, Callable[[], Topology]] = {
    "servers-2x4": lambda: _servers(2, 3),
    "servers-4x4": lambda: _servers(4, 3),
    "cpus-6": _unequal_servers,
    "cores-4+4": _big_and_little_cores,
    "phone-3": _phone,
    "ethernet-4": lambda: _star("ethernet-4", _host("cpu:0", 1.0), _gpus(3, 5.0), 2e-4, 1.25e8),  # 1 Gbit/s
    "upload-5": _slow_uploads,
    "old-gpus-7": lambda: _star("old-gpus-7", _host("cpu:0", 5.0), _gpus(6, 2.5), 1e-5, 8e9),  # half the host's speed
    "ring-8": _ring,
}
