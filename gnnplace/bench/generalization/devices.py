"""Device sets that the sampler of training problems cannot draw, and the reasons, derived from a set and the sampler's ranges.

The sets are the papers' testbeds, and sets made by hand.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

from gnnplace.devices.presets import preset
from gnnplace.devices.sampled import DeviceRanges
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.units import GIB


def held_out_devices(name: str) -> Topology:
    """The set of this name, one of `HAND_MADE`, `SERVER_SETS` or `SEALED_SETS`, or a preset."""
    made = {**HAND_MADE, **SERVER_SETS, **SEALED_SETS}
    return made[name]() if name in made else preset(name)


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


def _servers(
    hosts: Sequence[Device],
    network: Sequence[Link],
    gpus: int,
    tera_flops: float,
    to_host: tuple[float, float],
    direct: tuple[float, float] | None = None,
) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """Devices and links of hosts on a network, each with as many GPUs, which may have direct links to each other.

    `to_host` and `direct` are the latency and the bandwidth of a link.
    """
    devices, links = list[Device](), list(network)
    for server, host in enumerate(hosts):
        boards = [_accelerator(f"gpu:{server}.{slot}", "gpu", tera_flops) for slot in range(gpus)]
        links += _links(product([host], boards), *to_host)
        links += [] if direct is None else _links(combinations(boards, 2), *direct)
        devices += [*boards, host]
    return tuple(devices), tuple(links)


def _hosts(count: int, tera_flops: float) -> list[Device]:
    return [_host(f"cpu:{server}", tera_flops) for server in range(count)]


def _pcie_servers(count: int) -> Topology:
    """Servers with three GPUs on PCIe, joined by a 10 Gbit/s switch."""
    hosts = _hosts(count, 2.0)
    return Topology(f"servers-{count}x4", *_servers(hosts, _switched(hosts, 5e-5, 1.25e9), 3, 10.0, (1e-5, 12e9)))


def _islands(count: int, gpus: int) -> Topology:
    """Servers of GPUs with fast links to each other, joined by a 50 Gbit/s switch between the hosts."""
    hosts = _hosts(count, 2.0)
    found = _servers(hosts, _switched(hosts, 3e-5, 6e9), gpus, 20.0, (1e-5, 1.6e10), (4e-6, 1e11))
    return Topology(f"islands-{count}x{gpus + 1}", *found)


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
    "servers-2x4": lambda: _pcie_servers(2),
    "servers-4x4": lambda: _pcie_servers(4),
    "cpus-6": _unequal_servers,
    "cores-4+4": _big_and_little_cores,
    "phone-3": _phone,
    "ethernet-4": lambda: _star("ethernet-4", _host("cpu:0", 1.0), _gpus(3, 5.0), 2e-4, 1.25e8),  # 1 Gbit/s
    "upload-5": _slow_uploads,
    "old-gpus-7": lambda: _star("old-gpus-7", _host("cpu:0", 5.0), _gpus(6, 2.5), 1e-5, 8e9),  # half the host's speed
    "ring-8": _ring,
}


SERVER_SETS: Mapping[str, Callable[[], Topology]] = {
    "islands-3x5": lambda: _islands(3, 4),
    "islands-2x7": lambda: _islands(2, 6),
}
"""Sets of the cases on several servers, beside those of `HAND_MADE`."""


def _pods() -> Topology:
    """Two servers of seven GPUs with fast links to each other, joined by a 100 Gbit/s network between the hosts."""
    hosts = _hosts(2, 3.0)
    network = _links([(hosts[0], hosts[1])], 2e-5, 12.5e9)
    return Topology("pods-2x8", *_servers(hosts, network, 7, 30.0, (8e-6, 2.4e10), (3e-6, 2e11)))


def _mesh() -> Topology:
    """Fifteen chips in a grid of 3 by 5 with links between neighbours; the others exchange data over the host."""
    chips = [_accelerator(f"chip:{index}", "chip", 12.0) for index in range(15)]
    beside = [(chips[at], chips[at + 1]) for at in range(14) if at % 5 != 4]
    below = [(chips[at], chips[at + 5]) for at in range(10)]
    topology = _star("mesh-16", _host("cpu:0", 1.5), chips, 2e-5, 8e9)
    return replace(topology, links=(*topology.links, *_links([*beside, *below], 2e-6, 6e10)))


def _boards() -> Topology:
    """Four boards of a CPU and an accelerator, which share the air between them."""
    hosts = [_host(f"cpu:{board}", 0.2) for board in range(4)]
    chips = [_accelerator(f"npu:{board}", "npu", 4.0) for board in range(4)]
    air = tuple(Link(a.name, b.name, 2e-3, 5e7, "air") for a, b in permutations(hosts, 2))
    own = _links(zip(hosts, chips, strict=True), 1e-5, 4e9)
    return Topology("boards-8", (*chips, *hosts), (*air, *own))


def _kinds() -> Topology:
    """Eight accelerators of four kinds, two of each, around a host."""
    kinds = (("old", 3.0), ("small", 7.0), ("large", 15.0), ("new", 60.0))
    gpus = [_accelerator(f"{kind}:{index}", kind, rate) for kind, rate in kinds for index in range(2)]
    return _star("kinds-9", _host("cpu:0", 2.0), gpus, 1e-5, 1.6e10)


def _slices() -> Topology:
    """A GPU as a whole, in halves and in quarters, which share its memory and exclude each other where they overlap."""
    quarters = tuple(f"quarter:{index}" for index in range(4))
    devices = []
    for name, count in (("whole", 1), ("half", 2), ("quarter", 4)):
        for index in range(count):
            used = quarters[index * 4 // count : (index + 1) * 4 // count]
            rate = 40.0 * len(used) / 4
            cut = _accelerator(f"gpu:{name}.{index}", f"gpu-{name}", rate)
            devices.append(replace(cut, memory_bytes=24 * GIB, resources=used, memory_pool="gpu"))
    host = _host("cpu:0", 1.0)
    links = _links(product([host], devices), 1e-5, 2e10) + _links(combinations(devices, 2), 2e-6, 5e11)
    return Topology("slices-8", (*devices, host), tuple(links))


def _laptop() -> Topology:
    """CPU, GPU and neural engine with one memory of 16 GiB."""
    cpu = Device("cpu:0", "cpu", 16 * GIB, {"float32": 8e11}, 6e10, 3e-6, memory_pool="memory")
    gpu = Device("gpu:0", "gpu", 16 * GIB, {"float32": 5e12}, 1e11, 2e-5, memory_pool="memory")
    engine = Device("npu:0", "npu", 16 * GIB, {"float32": 8e12}, 5e10, 1.5e-4, memory_pool="memory")
    links = tuple(Link(a.name, b.name, 1e-5, 5e10) for a, b in permutations((gpu, engine, cpu), 2))
    return Topology("laptop-3", (gpu, engine, cpu), links)


def _clustered_cores() -> Topology:
    """Thirty-two cores in four clusters, with slower links between clusters."""
    rate = 6e10
    cores = [Device(f"cpu:{index}", "cpu-core", None, {"float32": rate}, 0.1 * rate, 1e-6) for index in range(32)]
    pairs = list(combinations(range(32), 2))
    near = _links(((cores[a], cores[b]) for a, b in pairs if a // 8 == b // 8), 1e-6, 3e10)
    far = _links(((cores[a], cores[b]) for a, b in pairs if a // 8 != b // 8), 4e-6, 8e9)
    return Topology("cores-32", tuple(cores), (*near, *far))


SEALED_SETS: Mapping[str, Callable[[], Topology]] = {
    "pods-2x8": _pods,
    "racks-8x4": lambda: _pcie_servers(8),
    "mesh-16": _mesh,
    "boards-8": _boards,
    "kinds-9": _kinds,
    "slices-8": _slices,
    "laptop-3": _laptop,
    "cores-32": _clustered_cores,
    "gangs-8": lambda: preset("epyc-corex8"),
    "gangs-16": lambda: preset("epyc-corex16"),
}
"""Sets of the sealed cases, which neither training nor the cases of development have."""
_ROUNDING = 1e-9


def unseen_count(topology: Topology, ranges: DeviceRanges = DeviceRanges()) -> bool:
    """Whether training never draws a set with this number of devices."""
    return topology.num_devices not in ranges.num_devices


def unlike_training(topology: Topology, ranges: DeviceRanges = DeviceRanges()) -> tuple[str, ...]:
    """Differences to every set that `sample_devices` can draw, apart from memory capacities; empty if none was found."""
    others = [device for device in topology.devices if not device.is_host]
    hosts = [device for device in topology.devices if device.is_host]
    kinds = {device.kind for device in others}
    reasons = {
        f"{topology.num_devices} devices": unseen_count(topology, ranges),
        f"{len(hosts)} hosts beside accelerators": bool(others) and len(hosts) != 1,
        "cores of several kinds": not others and len({device.kind for device in hosts}) > 1,
        f"{len(kinds)} kinds of accelerators": len(kinds) > ranges.max_kinds,
        **_unlike_speeds(hosts, others, ranges),
        **_unlike_links(topology.links, hosts, others, ranges),
        "channels that some links share": _has_unlike_channels(topology.links, {device.name for device in others}),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def _unlike_speeds(hosts: Sequence[Device], others: Sequence[Device], ranges: DeviceRanges) -> dict[str, bool]:
    slowest, fastest = ranges.accelerator_flops_per_s
    rates, host_rates = ([device.peak_flops_per_s["float32"] for device in devices] for devices in (others, hosts))
    relative = [rate / rates[0] for rate in host_rates] if others else []
    overheads = [device.dispatch_overhead_s for device in (*hosts, *others)]
    return {
        "speeds of accelerators": _outside(rates, (slowest * ranges.kind_speed[0], fastest)),
        "speed of the host against the accelerators": _outside(relative, ranges.host_speed),
        "speeds of cores": not others and _outside(host_rates, ranges.core_flops_per_s),
        "dispatch overheads": _outside(overheads, ranges.dispatch_overhead_s),
    }


def _unlike_links(
    links: Sequence[Link], hosts: Sequence[Device], others: Sequence[Device], ranges: DeviceRanges
) -> dict[str, bool]:
    low, high = ranges.bandwidth_bytes_per_s
    low *= ranges.uneven_speed[0]
    names = {device.name for device in others}
    rates = {(link.source, link.target): link.bandwidth_bytes_per_s for link in links}
    direct = [rate for ends, rate in rates.items() if names.issuperset(ends)]
    linked = sum((one.name, other.name) in rates for one, other in combinations(others, 2))
    to_hosts = [(one.name, other.name) for one in hosts for other in (*hosts, *others) if one != other]
    latencies = [link.latency_s for link in links]
    return {
        "links of several latencies": len(set(latencies)) > 1,
        "latencies": _outside(latencies, ranges.latency_s),
        "bandwidths": _outside((rate for ends, rate in rates.items() if not names.issuperset(ends)), (low, high)),
        "bandwidths between accelerators": _outside(direct, (low, high * ranges.direct_speed[1])),
        "links that are slower one way": any(rates.get((b, a)) != rate for (a, b), rate in rates.items()),
        "direct links between some accelerators only": 0 < linked < math.comb(len(others), 2),
        "hosts without a link to every device": not rates.keys() >= set(to_hosts),
    }


def _has_unlike_channels(links: Sequence[Link], names: set[str]) -> bool:
    """Sampled sets share channels only in stars where all accelerators, of these names, send over one channel and receive over one."""
    members: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for link in links:
        if link.channel is not None:
            members[link.channel].add((link.source, link.target))
    for ends in members.values():
        sources, targets = ({*column} for column in zip(*ends, strict=True))
        is_bus = (sources == names and len(targets) == 1) or (targets == names and len(sources) == 1)
        if len(ends) > 1 and not (is_bus and len(links) == 2 * len(names)):
            return True
    return False


def _outside(values: Iterable[float], between: tuple[float, float]) -> bool:
    low, high = between
    return any(not low * (1 - _ROUNDING) <= value <= high * (1 + _ROUNDING) for value in values)
