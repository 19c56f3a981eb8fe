"""Schedules, and an independent check that a schedule is physically possible.

The check shares no code with the engine that makes schedules; it follows the execution model rule by rule.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Device, Topology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import resident_bytes


@dataclass(frozen=True, eq=False)
class Schedule:
    """Start and end of every op and of every hop of every transfer.

    >>> from gnnplace.placement import Placement
    >>> from gnnplace.sim.example import diamond
    >>> schedule = diamond().estimator.schedule(Placement(np.array([1, 0, 1, 1])))
    >>> round(schedule.makespan_s, 3), schedule.order().tolist(), schedule.transfer_start_s.round(3).tolist()
    (4.002, [0, 2, 1, 3], [1.0, 3.001])
    """

    assignment: IntArray  # [N] device index
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    transfer_tensor: IntArray  # [K]
    transfer_target: IntArray  # [K] final destination, not the next hop
    transfer_link: IntArray  # [K]
    transfer_start_s: FloatArray  # [K]
    transfer_end_s: FloatArray  # [K]
    peak_memory_bytes: IntArray  # [D]

    @property
    def makespan_s(self) -> float:
        """Seconds from the first start to the last end."""
        return float(max(self.end_s.max(initial=0.0), self.transfer_end_s.max(initial=0.0)))

    def order(self) -> IntArray:
        """`[N]` ops by start time; ops of one instant by end time."""
        return np.lexsort((self.end_s, self.start_s))


def check_schedule(graph: OpGraph, topology: Topology, op_time_s: FloatArray, schedule: Schedule) -> list[str]:
    """Violations of the execution model by a schedule, one message each; empty if the schedule is possible.

    `op_time_s` is `[N, D]`. The check covers durations with overheads, precedence, one transfer per destination along its
    route, exclusive resources and channels, work conservation, first come first served, colocation and peak memory.

    >>> from dataclasses import replace
    >>> from gnnplace.placement import Placement
    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> schedule = problem.estimator.schedule(Placement(np.array([0, 0, 0, 0])))
    >>> check_schedule(problem.graph, problem.topology, problem.op_time_s, schedule)
    []
    >>> too_early = replace(schedule, start_s=np.array([0.0, 0.5, 3.0, 5.0]), end_s=np.array([1.0, 2.5, 5.0, 6.0]))
    >>> check_schedule(problem.graph, problem.topology, problem.op_time_s, too_early)[0]
    'op left starts at 0.5 s, its inputs are there at 1.0 s'
    """
    hops = _hops(schedule)
    return [
        *_durations(graph, topology, op_time_s, schedule, hops),
        *_transfers(graph, topology, schedule, hops),
        *_precedence(graph, topology, schedule, hops),
        *_exclusive(graph, topology, schedule, hops),
        *_colocation(graph, schedule),
        *_memory(graph, topology, schedule),
    ]


class _Hop(NamedTuple):
    """One hop of the transfer of a tensor to a device."""

    tensor: int
    target: int
    link: int
    start_s: float
    end_s: float


def _hops(schedule: Schedule) -> list[_Hop]:
    columns = (
        schedule.transfer_tensor, schedule.transfer_target, schedule.transfer_link, schedule.transfer_start_s,
        schedule.transfer_end_s,
    )  # fmt: skip
    return [_Hop(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _durations(
    graph: OpGraph, topology: Topology, op_time_s: FloatArray, schedule: Schedule, hops: list[_Hop]
) -> Iterator[str]:
    """An op takes its time, the dispatch overhead after its device sat idle, and the costs of a segment that it begins.

    A copy that arrives at the start of an op of zero length may count for that op or for the next one, and ops of zero length
    may have run in any order within their instant.
    """
    producers, consumers = graph.edges
    sending = set(producers[schedule.assignment[producers] != schedule.assignment[consumers]].tolist())
    ends_at = [topology.device_index[link.target] for link in topology.links]
    for index, device in enumerate(topology.devices):
        arrived = [hop for hop in hops if hop.target == index == ends_at[hop.link]]
        arrived_s = np.array([hop.end_s for hop in arrived])
        arrived_bytes = graph.tensor_bytes[[hop.tensor for hop in arrived]].astype(np.float64)
        last_start, last_end, sent, ops = -1.0, 0.0, False, _on_device(schedule, index)
        sent_before = False  # by the last op before this instant
        of_no_length: dict[float, list[int]] = {}
        for op in ops:
            if schedule.start_s[op] == schedule.end_s[op]:
                of_no_length.setdefault(schedule.start_s[op], []).append(op)
        for op in ops:
            start, lasts = schedule.start_s[op], schedule.end_s[op] - schedule.start_s[op]
            sent_before = sent if start > last_start else sent_before
            first = {sent_before} if lasts == 0.0 else set()  # an op of no length may be the first of its instant
            expected = op_time_s[op, index] + (device.dispatch_overhead_s if start > last_end else 0.0)
            late = arrived_s > last_start
            possible = [
                expected + _segment_s(device, arrived_bytes[(arrived_s <= start) & counted], begins)
                for counted in (late, arrived_s >= last_start, late & (arrived_s < start))
                for begins in {
                    sent,
                    *first,
                    *(other in sending for other in of_no_length.get(start, []) if other != op),
                }
            ]
            if not min(possible) * (1 - 1e-9) - 1e-15 <= lasts <= max(possible) * (1 + 1e-9) + 1e-15:
                yield f"op {graph.op_names[op]} lasts {lasts} s, not {possible[0]} s"
            last_start, last_end, sent = start, schedule.end_s[op], op in sending


def _segment_s(device: Device, arrived_bytes: FloatArray, sent: bool) -> float:
    """Seconds that an op pays for arrived copies and for a segment that begins after a send."""
    begins = sent or len(arrived_bytes) > 0
    taken_in_s = float(arrived_bytes.sum()) / (device.intake_bandwidth_bytes_per_s or np.inf)
    return taken_in_s + (device.segment_overhead_s if begins else 0.0)


def _transfers(graph: OpGraph, topology: Topology, schedule: Schedule, hops: list[_Hop]) -> Iterator[str]:
    """Each needed copy is sent exactly once, hop by hop along its route, not before it exists."""
    links: dict[tuple[int, int], list[int]] = defaultdict(list)
    for hop in sorted(hops, key=lambda hop: hop.start_s):
        links[hop.tensor, hop.target].append(hop.link)
    names = topology.device_names
    for tensor, home in enumerate(schedule.assignment[graph.tensor_producer].tolist()):
        for target in {*schedule.assignment[graph.consumers_of(tensor)].tolist()} - {home}:
            found, route = links.pop((tensor, target), []), topology.route(home, target)
            if route is None:
                yield f"tensor {tensor} has no route from {names[home]} to {names[target]}"
            elif sorted(found) != sorted(route):
                yield f"tensor {tensor} to {names[target]} takes links {found}, not {route}"
    for tensor, target in links:
        yield f"tensor {tensor} is sent to device {target}, where no op reads it"
    for hop, exists in zip(hops, _requested_s(graph, topology, schedule, hops), strict=True):
        lasts = hop.end_s - hop.start_s
        if hop.start_s < exists:
            yield f"tensor {hop.tensor} is sent at {hop.start_s} s but exists at {exists} s"
        if not np.isclose(lasts, topology.links[hop.link].transfer_s(graph.tensor_bytes[hop.tensor]), atol=1e-15):
            yield f"tensor {hop.tensor} occupies link {hop.link} for {lasts} s"


def _requested_s(graph: OpGraph, topology: Topology, schedule: Schedule, hops: list[_Hop]) -> list[float]:
    """Earliest start of each hop: the end of the producer, or of the hop before it on the route."""
    end_s = {hop[:3]: hop.end_s for hop in hops}
    requested = []
    for tensor, target, link, *_ in hops:
        producer = graph.tensor_producer[tensor]
        route = topology.route(int(schedule.assignment[producer]), target) or ()
        before = route[: route.index(link)] if link in route else ()
        exists = end_s.get((tensor, target, before[-1]), np.inf) if before else float(schedule.end_s[producer])
        requested.append(exists)
    return requested


def _precedence(graph: OpGraph, topology: Topology, schedule: Schedule, hops: list[_Hop]) -> Iterator[str]:
    """No op starts before its inputs are on its device; an op that is ready waits only while a resource of its device is taken."""
    produced = zip(
        schedule.assignment[graph.tensor_producer].tolist(), schedule.end_s[graph.tensor_producer], strict=True
    )
    arrival = {(tensor, device): float(end_s) for tensor, (device, end_s) in enumerate(produced)}
    for hop in hops:
        arrival[hop[:2]] = max(arrival.get(hop[:2], 0.0), hop.end_s)
    device_of = schedule.assignment.tolist()
    ready = [
        max((arrival.get((tensor, device), np.inf) for tensor in graph.inputs_of(op).tolist()), default=0.0)
        for op, device in enumerate(device_of)
    ]
    for op, name in enumerate(graph.op_names):
        if schedule.start_s[op] < ready[op]:
            yield f"op {name} starts at {schedule.start_s[op]} s, its inputs are there at {ready[op]} s"
    for device in sorted(set(device_of)):
        rivals = [device, *np.flatnonzero(topology.excludes[device]).tolist()]
        running = [op for rival in rivals for op in _on_device(schedule, rival)]
        busy = _joined([(float(schedule.start_s[op]), float(schedule.end_s[op])) for op in running])
        begins = [begin for begin, _ in busy]
        for op in _on_device(schedule, device):
            span = busy[bisect_right(begins, ready[op]) - 1] if ready[op] >= begins[0] else (0.0, 0.0)
            if schedule.start_s[op] > max(ready[op], span[1]):
                yield f"device {device} idles before op {graph.op_names[op]} while an op is ready"


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of spans as spans without gaps, in order; spans that touch are joined."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _exclusive(graph: OpGraph, topology: Topology, schedule: Schedule, hops: list[_Hop]) -> Iterator[str]:
    """Resources and channels do one thing at a time; channels serve in order of request."""
    for resource, name in enumerate(topology.resource_names):
        used = np.flatnonzero(topology.uses_resource[:, resource]).tolist()
        ops = [op for device in used for op in _on_device(schedule, device)]
        ops.sort(key=lambda op: (schedule.start_s[op], schedule.end_s[op]))
        yield from _overlaps(name, [(schedule.start_s[op], schedule.end_s[op]) for op in ops])
    requested = _requested_s(graph, topology, schedule, hops)
    for channel, name in enumerate(topology.channel_names):
        rows = [row for row, hop in enumerate(hops) if topology.link_channel[hop.link] == channel]
        rows.sort(key=lambda row: (hops[row].start_s, hops[row].end_s))
        yield from _overlaps(name, [(hops[row].start_s, hops[row].end_s) for row in rows])
        for earlier, row in pairwise(rows):
            if requested[row] < requested[earlier]:
                yield f"channel {name} serves transfer {row} after {earlier}, which was requested later"
        free = 0.0
        for row in rows:
            if not np.isclose(hops[row].start_s, max(free, requested[row]), rtol=1e-12, atol=0.0):
                yield f"channel {name} starts transfer {row} at {hops[row].start_s}, not {max(free, requested[row])}"
            free = hops[row].end_s


def _overlaps(name: str, spans: Sequence[tuple[float, float]]) -> Iterator[str]:
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            yield f"{name} does two things at once: until {end} s and from {start} s"


def _colocation(graph: OpGraph, schedule: Schedule) -> Iterator[str]:
    for group, name in enumerate(graph.colocation_names):
        if len(set(schedule.assignment[graph.colocation == group].tolist())) > 1:
            yield f"colocation group {name} is on several devices"


def memory_changes(
    graph: OpGraph, topology: Topology, schedule: Schedule
) -> tuple[list[int], list[list[tuple[float, int]]]]:
    """Bytes of weights on each device, and its memory changes (time, bytes): activations, received copies, workspace.

    Devices of one memory pool have theirs in the entry of the first device; copies of a tensor in the pool count once.

    >>> from gnnplace.placement import Placement
    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> schedule = problem.estimator.schedule(Placement(np.array([0, 0, 0, 0])))
    >>> _, changes = memory_changes(problem.graph, problem.topology, schedule)
    >>> [change for change in changes[0] if change[1]][:2]  # the first op's output, until its last use ends
    [(0.0, 8), (5.0, -8)]
    """
    device_of = schedule.assignment.tolist()
    changes: list[list[tuple[float, int]]] = [[] for _ in range(topology.num_devices)]

    memory_of = topology.memory_home.tolist()

    def hold(memory: int, start: float, end: float, size: int) -> None:
        changes[memory].append((start, size))
        changes[memory].append((end, -size))

    last_hop_start: dict[tuple[int, int], float] = {}
    first_hop_end: dict[int, float] = defaultdict(float)
    for hop in _hops(schedule):
        link = topology.links[hop.link]
        if topology.device_index[link.target] == hop.target:
            last_hop_start[hop.tensor, hop.target] = hop.start_s
        if topology.device_index[link.source] == device_of[graph.tensor_producer[hop.tensor]]:
            first_hop_end[hop.tensor] = max(first_hop_end[hop.tensor], hop.end_s)
    start_s, end_s = schedule.start_s.tolist(), schedule.end_s.tolist()
    for op, size in enumerate(graph.workspace_bytes.tolist()):
        hold(memory_of[device_of[op]], start_s[op], end_s[op], size)
    for tensor, (producer, size) in enumerate(zip(graph.tensor_producer, graph.tensor_bytes.tolist(), strict=True)):
        home, consumers = device_of[producer], graph.consumers_of(tensor).tolist()
        last_use = {home: first_hop_end[tensor] if consumers else np.inf}
        for op in consumers:
            last_use[device_of[op]] = max(last_use.get(device_of[op], 0.0), end_s[op])
        held: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for device, end in last_use.items():
            start = start_s[producer] if device == home else last_hop_start.get((tensor, device), 0.0)
            held[memory_of[device]].append((start, end))
        for memory, spans in held.items():
            for start, end in _joined(spans):
                hold(memory, start, end, size)
    resident = resident_bytes(graph, topology.memory_home[schedule.assignment], topology.num_devices)
    return resident.tolist(), changes


def _memory(graph: OpGraph, topology: Topology, schedule: Schedule) -> Iterator[str]:
    """The peaks of memory, recomputed from the changes per device."""
    resident, changes = memory_changes(graph, topology, schedule)
    # Memory freed at an instant serves what starts at that instant. Events of zero length have an order within the instant
    # that times do not show; then the peak is only known to lie between two values.
    instantaneous = (schedule.end_s == schedule.start_s).any() or (
        schedule.transfer_end_s == schedule.transfer_start_s
    ).any()
    for device in sorted({*topology.memory_home.tolist()}):
        rows = changes[device]
        least = resident[device] + _peak(sorted(rows))
        most = resident[device] + _peak(sorted(rows, key=lambda row: (row[0], -row[1]))) if instantaneous else least
        if not least <= schedule.peak_memory_bytes[device] <= most:
            name = topology.device_names[device]
            yield f"device {name} peaks at {least} bytes, the schedule states {schedule.peak_memory_bytes[device]}"


def _peak(changes: Sequence[tuple[float, int]]) -> int:
    """The highest sum of a prefix of the changes, at least 0."""
    return max(accumulate((change for _, change in changes), initial=0))


def _on_device(schedule: Schedule, device: int) -> list[int]:
    """The ops of one device in execution order."""
    ops = np.flatnonzero(schedule.assignment == device)
    return list(map(int, ops[np.lexsort((schedule.end_s[ops], schedule.start_s[ops]))]))
