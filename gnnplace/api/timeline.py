"""What follows from a schedule: the chain that its length comes from, and how full each memory is over time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, groupby

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.run_record import Link
from gnnplace.schedule import Schedule, memory_changes

__all__ = ["critical_path", "memory_over_time"]

_MOST_STEPS = 2000
"""Of a memory's course; of more, the peak of each of so many stretches of time is kept."""


def critical_path(graph: OpGraph, topology: Topology, schedule: Schedule) -> list[Link]:
    """The ops and transfers that the makespan comes from, in order: each one begins when the one before it has ended.

    From the last end backwards: of an op, the input that came last or the op before it on the device; of a transfer, its
    producer or the hop before it, or the transfer before it on the channel. Ends at equal times count in this order.
    """
    if not graph.num_ops:
        return []
    chain = _Chain(graph, topology, schedule)
    ends: list[Link] = [("op", int(np.argmax(schedule.end_s)))]
    if len(schedule.transfer_end_s):
        ends.append(("transfer", int(np.argmax(schedule.transfer_end_s))))
    link: Link | None = max(ends, key=chain.end_s)
    path: dict[Link, None] = {}
    while link is not None:
        path[link] = None
        waited_for = (
            other for other in chain.before(link) if other not in path
        )  # what takes no time may wait in a circle
        link = max(waited_for, key=chain.end_s, default=None)
    return list(path)[::-1]


class _Chain:
    """What each op and transfer of a schedule may have waited for."""

    def __init__(self, graph: OpGraph, topology: Topology, schedule: Schedule) -> None:
        self._graph, self._schedule = graph, schedule
        self._op_before = _before(schedule.assignment, schedule.start_s, schedule.end_s)
        channel = topology.link_channel[schedule.transfer_link]
        self._transfer_before = _before(channel, schedule.transfer_start_s, schedule.transfer_end_s)
        ends = [(topology.device_index[link.source], topology.device_index[link.target]) for link in topology.links]
        self._source = [ends[link][0] for link in schedule.transfer_link.tolist()]
        targets = [ends[link][1] for link in schedule.transfer_link.tolist()]
        wanted = zip(schedule.transfer_tensor.tolist(), schedule.transfer_target.tolist(), targets, strict=True)
        self._arriving = {key: row for row, key in enumerate(wanted)}  # (tensor, device that wants it, end of this hop)

    def end_s(self, link: Link) -> float:
        """When it is over."""
        kind, index = link
        return float((self._schedule.end_s if kind == "op" else self._schedule.transfer_end_s)[index])

    def before(self, link: Link) -> Iterator[Link]:
        """What it may have waited for."""
        kind, index = link
        schedule, graph = self._schedule, self._graph
        if kind == "op":
            device = int(schedule.assignment[index])
            for tensor in graph.inputs_of(index).tolist():
                row = self._arriving.get((tensor, device, device))
                yield ("op", int(graph.tensor_producer[tensor])) if row is None else ("transfer", row)
            if self._op_before[index] >= 0:
                yield "op", int(self._op_before[index])
            return
        tensor, target = int(schedule.transfer_tensor[index]), int(schedule.transfer_target[index])
        row = self._arriving.get((tensor, target, self._source[index]))
        yield ("op", int(graph.tensor_producer[tensor])) if row is None else ("transfer", row)
        if self._transfer_before[index] >= 0:
            yield "transfer", int(self._transfer_before[index])


def _before(place: IntArray, start_s: np.ndarray, end_s: np.ndarray) -> IntArray:
    """`[N]` what came before each one in its place; -1 for the first ones."""
    order = np.lexsort((end_s, start_s, place))
    before = np.full(len(place), -1, dtype=np.int64)
    same = place[order[1:]] == place[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def memory_over_time(graph: OpGraph, topology: Topology, schedule: Schedule) -> list[list[tuple[float, int]]]:
    """For each device the (seconds, bytes from then on) at every change of what is in its memory, in order."""
    resident, changes = memory_changes(graph, topology, schedule)
    return [
        _thinned(_course(weights, several), schedule.makespan_s)
        for weights, several in zip(resident, changes, strict=True)
    ]


def _course(weights: int, changes: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Levels over time; what is freed at an instant is free for what starts then. What stays to the end is not given back."""
    known = sorted(change for change in changes if np.isfinite(change[0]))
    times = [0.0, *(time for time, _ in known)]
    levels = accumulate((change for _, change in known), initial=weights)
    at_instants = groupby(zip(times, levels, strict=True), key=lambda step: step[0])
    return [(time, list(steps)[-1][1]) for time, steps in at_instants]


def _thinned(course: list[tuple[float, int]], makespan_s: float) -> list[tuple[float, int]]:
    """At most about `_MOST_STEPS` steps: where there are more, the peak of each stretch of time."""
    if len(course) <= _MOST_STEPS or makespan_s <= 0:
        return course
    stretches = groupby(course, key=lambda step: int(step[0] / makespan_s * _MOST_STEPS))
    return [(steps[0][0], max(level for _, level in steps)) for steps in (list(group) for _, group in stretches)]
