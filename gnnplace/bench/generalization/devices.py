"""Device sets that the sampler of training problems cannot draw: the papers' testbeds, and sets made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, permutations

from gnnplace.devices.presets import preset
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.units import GIB

__all__ = ["HAND_MADE", "PRESETS", "held_out_devices"]

PRESETS = (
    "k40x2", "k80x2", "v100x2", "k40x5", "k80x5", "k40x2+v100x3", "p100x15", "k80x4", "a100-sxmx4", "h100-sxmx7",
    "k40+p100+v100+a100",
)  # fmt: skip
"""Sets of GPUs and their host with 3, 6 or 16 devices, with shared channels, or with four kinds of GPUs."""

_LAN_BYTES_PER_S = 1.25e9
_LAN_LATENCY_S = 5e-5


def held_out_devices(name: str) -> Topology:
    """The set of this name, one of `HAND_MADE` or of `PRESETS`."""
    return HAND_MADE[name]() if name in HAND_MADE else preset(name)


def _accelerator(name: str, kind: str, tera_flops: float, memory_gib: int = 16, overhead_s: float = 1e-5) -> Device:
    """An accelerator with 0.05 bytes of bandwidth per FLOP, as GPUs have."""
    rate = tera_flops * 1e12
    return Device(name, kind, memory_gib * GIB, {"float32": rate}, 0.05 * rate, overhead_s)


def _host(name: str, tera_flops: float, kind: str = "cpu", overhead_s: float = 5e-6) -> Device:
    rate = tera_flops * 1e12
    return Device(name, kind, 256 * GIB, {"float32": rate}, 0.06 * rate, overhead_s)


def _both_ways(pairs: Iterable[tuple[Device, Device]], latency_s: float, rate: float) -> list[Link]:
    return [
        Link(a.name, b.name, latency_s, rate) for one, other in pairs for a, b in ((one, other), (other, one))
    ]  # fmt: skip


def _star(host: Device, others: Sequence[Device], latency_s: float, rate: float) -> list[Link]:
    return _both_ways(((host, other) for other in others), latency_s, rate)


def _switched(devices: Sequence[Device], latency_s: float, rate: float) -> list[Link]:
    """Links between all devices; the links that leave a device share its port."""
    return [
        Link(a.name, b.name, latency_s, rate, f"{a.name}:port") for a, b in permutations(devices, 2)
    ]  # fmt: skip


def _servers(count: int, gpus: int) -> Topology:
    """Servers with one host and several GPUs on PCIe, joined by a 10 Gbit/s switch."""
    hosts = [_host(f"cpu:{server}", 2.0) for server in range(count)]
    links = _switched(hosts, _LAN_LATENCY_S, _LAN_BYTES_PER_S)
    devices: list[Device] = []
    for server, host in enumerate(hosts):
        boards = [_accelerator(f"gpu:{server}.{slot}", "gpu", 10.0) for slot in range(gpus)]
        links += _star(host, boards, 1e-5, 12e9)
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
    return Topology("cores-4+4", tuple(cores), tuple(_both_ways(combinations(cores, 2), 1e-6, 2e10)))


def _phone() -> Topology:
    """CPU, GPU and neural engine around one memory, with slow dispatch."""
    cpu = Device("cpu:0", "cpu", 8 * GIB, {"float32": 2e11}, 3e10, 2e-5)
    gpu, engine = (
        Device(f"{name}:0", name, 8 * GIB, {"float32": rate}, 4e10, 1e-4) for name, rate in (("gpu", 1e12), ("npu", 2e12))
    )  # fmt: skip
    links = tuple(Link(a.name, b.name, 2e-5, 2e10, "memory") for a, b in permutations((cpu, gpu, engine), 2))
    return Topology("phone-3", (gpu, engine, cpu), links)


def _over_ethernet() -> Topology:
    """Three GPUs on a 1 Gbit/s network."""
    host, gpus = _host("cpu:0", 1.0), [_accelerator(f"gpu:{index}", "gpu", 5.0) for index in range(3)]
    return Topology("ethernet-4", (*gpus, host), tuple(_star(host, gpus, 2e-4, 1.25e8)))


def _slow_uploads() -> Topology:
    """Four GPUs that receive four times faster than they send."""
    host, gpus = _host("cpu:0", 1.0), [_accelerator(f"gpu:{index}", "gpu", 8.0) for index in range(4)]
    links = [
        link
        for gpu in gpus
        for link in (Link(host.name, gpu.name, 1e-5, 12e9), Link(gpu.name, host.name, 1e-5, 3e9))
    ]  # fmt: skip
    return Topology("upload-5", (*gpus, host), tuple(links))


def _old_gpus() -> Topology:
    """Six GPUs, each at half the speed of their host."""
    host, gpus = _host("cpu:0", 5.0), [_accelerator(f"gpu:{index}", "gpu", 2.5) for index in range(6)]
    return Topology("old-gpus-7", (*gpus, host), tuple(_star(host, gpus, 1e-5, 8e9)))


def _ring() -> Topology:
    """Seven accelerators in a ring with links between neighbours; the others exchange data over the host."""
    host, chips = _host("cpu:0", 1.0), [_accelerator(f"chip:{index}", "chip", 20.0) for index in range(7)]
    ring = [(chips[index], chips[(index + 1) % 7]) for index in range(7)]
    links = [*_star(host, chips, 1e-5, 1e10), *_both_ways(ring, 1e-5, 5e10)]
    return Topology("ring-8", (*chips, host), tuple(links))


HAND_MADE: Mapping[str, Callable[[], Topology]] = {
    "servers-2x4": lambda: _servers(2, 3),
    "servers-4x4": lambda: _servers(4, 3),
    "cpus-6": _unequal_servers,
    "cores-4+4": _big_and_little_cores,
    "phone-3": _phone,
    "ethernet-4": _over_ethernet,
    "upload-5": _slow_uploads,
    "old-gpus-7": _old_gpus,
    "ring-8": _ring,
}
