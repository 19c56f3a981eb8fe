"""Reasons why the sampler of training problems cannot draw a device set, derived from the set and the sampler's ranges."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
