"""Devices that could change places without changing any schedule."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem

__all__ = ["in_order", "interchangeable_devices"]


def interchangeable_devices(problem: Problem) -> list[list[int]]:
    """Groups of two and more devices that any unit could swap, each in rising order.

    >>> from gnnplace.sim.example import diamond
    >>> interchangeable_devices(diamond())
    [[0, 1]]
    """
    groups: list[list[int]] = []
    for device in range(problem.topology.num_devices):
        home = next((group for group in groups if all(_may_swap(problem, other, device) for other in group)), None)
        if home is None:
            groups.append([device])
        else:
            home.append(device)
    return [group for group in groups if len(group) > 1]


def in_order(devices: IntArray, groups: list[list[int]]) -> IntArray:
    """`[U]` the same placement with interchangeable devices in order of first use.

    >>> in_order(np.array([2, 0, 1, 2]), [[1, 2]]).tolist()
    [1, 0, 2, 1]
    """
    renamed = devices.copy()
    for group in groups:
        used = [device for device in dict.fromkeys(devices.tolist()) if device in group]
        for new, old in zip(group, used, strict=False):
            renamed[devices == old] = new
    return renamed


def _may_swap(problem: Problem, first: int, second: int) -> bool:
    """Swapping the two maps times, masks, memories and every route onto themselves, channels one to one."""
    topology, count = problem.topology, problem.topology.num_devices
    swapped = np.arange(count)
    swapped[[first, second]] = second, first
    columns = (
        problem.op_time_s,
        problem.action_mask,
        topology.memory_bytes,
        topology.dispatch_overhead_s,
        topology.segment_overhead_s,
        topology.intake_bandwidth_bytes_per_s,
    )
    if any(not np.array_equal(column, column[..., swapped]) for column in columns):
        return False
    twin: dict[int, int] = {}
    for source in range(count):
        for target in range(count):
            route, other = topology.route(source, target), topology.route(int(swapped[source]), int(swapped[target]))
            if (route is None) != (other is None) or len(route or ()) != len(other or ()):
                return False
            for here, there in zip(route or (), other or (), strict=True):
                if topology.latency_s[here] != topology.latency_s[there]:
                    return False
                if topology.bandwidth_bytes_per_s[here] != topology.bandwidth_bytes_per_s[there]:
                    return False
                channel = int(topology.link_channel[there])
                if twin.setdefault(int(topology.link_channel[here]), channel) != channel:
                    return False
    return len(set(twin.values())) == len(twin)
