"""Reasons why the sampler of training problems cannot draw a device set, derived from the set and the sampler's ranges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from gnnplace.devices.sampled import DeviceRanges
from gnnplace.devices.topology import Device, Link, Topology

__all__ = ["unlike_training", "unseen_count"]

_ROUNDING = 1e-9


def unseen_count(topology: Topology, ranges: DeviceRanges = DeviceRanges()) -> bool:
    """Whether training never draws a set with this number of devices."""
    return topology.num_devices not in ranges.num_devices


def unlike_training(topology: Topology, ranges: DeviceRanges = DeviceRanges()) -> tuple[str, ...]:
    """Differences to every set that `sample_devices` can draw, apart from memory capacities; empty if none was found."""
    return tuple(_differences(topology, ranges))


def _differences(topology: Topology, ranges: DeviceRanges) -> Iterator[str]:
    if unseen_count(topology, ranges):
        yield f"{topology.num_devices} devices"
    hosts = [device for device in topology.devices if device.is_host]
    others = [device for device in topology.devices if device not in hosts]
    if others and len(hosts) != 1:
        yield f"{len(hosts)} hosts beside accelerators"
    if not others and len({device.kind for device in hosts}) > 1:
        yield "cores of several kinds"
    kinds = {device.kind for device in others}
    if len(kinds) > ranges.max_kinds:
        yield f"{len(kinds)} kinds of accelerators"
    yield from _unlike_speeds(hosts, others, ranges)
    yield from _unlike_links(topology.links, hosts, others, ranges)


def _unlike_speeds(hosts: Sequence[Device], others: Sequence[Device], ranges: DeviceRanges) -> Iterator[str]:
    slowest, fastest = ranges.accelerator_flops_per_s
    if _outside((_rate(device) for device in others), (slowest * ranges.kind_speed[0], fastest)):
        yield "speeds of accelerators"
    if others and _outside((_rate(host) / _rate(others[0]) for host in hosts), ranges.host_speed):
        yield "speed of the host against the accelerators"
    if not others and _outside((_rate(host) for host in hosts), ranges.core_flops_per_s):
        yield "speeds of cores"
    if _outside((device.dispatch_overhead_s for device in (*hosts, *others)), ranges.dispatch_overhead_s):
        yield "dispatch overheads"


def _unlike_links(
    links: Sequence[Link], hosts: Sequence[Device], others: Sequence[Device], ranges: DeviceRanges
) -> Iterator[str]:
    if len({link.latency_s for link in links}) > 1:
        yield "links of several latencies"
    if _outside((link.latency_s for link in links), ranges.latency_s):
        yield "latencies"
    low, high = ranges.bandwidth_bytes_per_s
    low *= ranges.uneven_speed[0]
    names = {device.name for device in others}
    direct = [link for link in links if link.source in names and link.target in names]
    if _outside((link.bandwidth_bytes_per_s for link in links if link not in direct), (low, high)):
        yield "bandwidths"
    if _outside((link.bandwidth_bytes_per_s for link in direct), (low, high * ranges.direct_speed[1])):
        yield "bandwidths between accelerators"
    rates = {(link.source, link.target): link.bandwidth_bytes_per_s for link in links}
    if any(rates.get((target, source)) != rate for (source, target), rate in rates.items()):
        yield "links that are slower one way"
    linked = sum((one.name, other.name) in rates for one, other in combinations(others, 2))
    if 0 < linked < len(others) * (len(others) - 1) // 2:
        yield "direct links between some accelerators only"
    if any((one.name, other.name) not in rates for one in hosts for other in (*hosts, *others) if one != other):
        yield "hosts without a link to every device"
    yield from _unlike_channels(links, names)


def _unlike_channels(links: Sequence[Link], accelerators: set[str]) -> Iterator[str]:
    """Sampled sets share channels only in stars where all accelerators send over one channel and receive over one."""
    members: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for link in links:
        if link.channel is not None:
            members[link.channel].add((link.source, link.target))
    for ends in members.values():
        sources, targets = {source for source, _ in ends}, {target for _, target in ends}
        is_bus = (sources == accelerators and len(targets) == 1) or (targets == accelerators and len(sources) == 1)
        if len(ends) > 1 and not (is_bus and len(links) == 2 * len(accelerators)):
            yield "channels that some links share"
            return


def _rate(device: Device) -> float:
    return device.peak_flops_per_s["float32"]


def _outside(values: Iterable[float], between: tuple[float, float]) -> bool:
    low, high = between
    return any(not low * (1 - _ROUNDING) <= value <= high * (1 + _ROUNDING) for value in values)
