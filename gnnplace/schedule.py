"""Schedules, and an independent check that a schedule is physically possible.

The check shares no code with the engine that makes schedules; it follows the execution model rule by rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.devices.topology import Device, Topology
from gnnplace.graph.op_graph import OpGraph

__all__ = ["Schedule", "check_schedule", "memory_changes"]


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
    route, exclusive devices and channels, work conservation, first come first served, colocation and peak memory.

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
    return [
        *_durations(graph, topology, op_time_s, schedule),
        *_transfers(graph, topology, schedule),
        *_precedence(graph, schedule),
        *_exclusive(graph, topology, schedule),
        *_work_conserving(graph, schedule),
        *_colocation(graph, schedule),
        *_memory(graph, topology, schedule),
    ]


def _durations(graph: OpGraph, topology: Topology, op_time_s: FloatArray, schedule: Schedule) -> Iterator[str]:
    """An op takes its time, the dispatch overhead after its device sat idle, and the costs of a segment that it begins.

    A copy that arrives at the start of an op of zero length may count for that op or for the next one.
    """
    sending = _sending(graph, schedule)
    for device in range(topology.num_devices):
        arrived_s, arrived_bytes = _arrived(graph, topology, schedule, device)
        last_start, last_end, sent = -1.0, 0.0, False
        for op in _on_device(schedule, device):
            start, lasts = schedule.start_s[op], schedule.end_s[op] - schedule.start_s[op]
            expected = op_time_s[op, device]
            expected += topology.devices[device].dispatch_overhead_s if start > last_end else 0.0
            possible = [
                expected + _segment_s(topology.devices[device], arrived_bytes[(arrived_s <= start) & late], sent)
                for late in (
                    (arrived_s > last_start),
                    (arrived_s >= last_start),
                    (arrived_s > last_start) & (arrived_s < start),
                )
            ]
            if not min(possible) * (1 - 1e-9) - 1e-15 <= lasts <= max(possible) * (1 + 1e-9) + 1e-15:
                yield f"op {graph.op_names[op]} lasts {lasts} s, not {possible[0]} s"
            last_start, last_end, sent = start, schedule.end_s[op], sending[op]


def _sending(graph: OpGraph, schedule: Schedule) -> BoolArray:
    """`[N]` true where another device reads an output of the op."""
    producers, consumers = graph.edges
    found = np.zeros(graph.num_ops, dtype=np.bool_)
    found[producers[schedule.assignment[producers] != schedule.assignment[consumers]]] = True
    return found


def _arrived(graph: OpGraph, topology: Topology, schedule: Schedule, device: int) -> tuple[FloatArray, FloatArray]:
    """Arrival times of copies on a device, and their bytes."""
    ends_here = np.array([topology.device_index[link.target] == device for link in topology.links], dtype=np.bool_)
    rows = np.flatnonzero((schedule.transfer_target == device) & ends_here[schedule.transfer_link])
    return schedule.transfer_end_s[rows], graph.tensor_bytes[schedule.transfer_tensor[rows]].astype(np.float64)


def _segment_s(device: Device, arrived_bytes: FloatArray, sent: bool) -> float:
    """Seconds that an op pays for arrived copies and for a segment that begins after a send."""
    begins = sent or len(arrived_bytes) > 0
    taken_in_s = float(arrived_bytes.sum()) / (device.intake_bandwidth_bytes_per_s or np.inf)
    return taken_in_s + (device.segment_overhead_s if begins else 0.0)


def _transfers(graph: OpGraph, topology: Topology, schedule: Schedule) -> Iterator[str]:
    """Each needed copy is sent exactly once, hop by hop along its route, not before it exists."""
    hops: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in range(len(schedule.transfer_tensor)):
        hops[int(schedule.transfer_tensor[row]), int(schedule.transfer_target[row])].append(row)
    needed: set[tuple[int, int]] = set()
    for tensor in range(graph.num_tensors):
        home = int(schedule.assignment[graph.tensor_producer[tensor]])
        targets = {int(schedule.assignment[op]) for op in graph.consumers_of(tensor)} - {home}
        for target in targets:
            needed.add((tensor, target))
            rows = sorted(hops[tensor, target], key=lambda row: schedule.transfer_start_s[row])
            route = topology.route(home, target)
            if route is None:
                yield f"tensor {tensor} has no route from {topology.device_names[home]} to {topology.device_names[target]}"
                continue
            if sorted(schedule.transfer_link[rows].tolist()) != sorted(route):
                yield f"tensor {tensor} to {topology.device_names[target]} takes links {schedule.transfer_link[rows]}, not {route}"
                continue
            exists = schedule.end_s[graph.tensor_producer[tensor]]
            for link in route:
                row = next(row for row in rows if schedule.transfer_link[row] == link)
                start, end = schedule.transfer_start_s[row], schedule.transfer_end_s[row]
                if start < exists:
                    yield f"tensor {tensor} is sent at {start} s but exists at {exists} s"
                if not np.isclose(end - start, topology.links[link].transfer_s(graph.tensor_bytes[tensor]), atol=1e-15):
                    yield f"tensor {tensor} occupies link {link} for {end - start} s"
                exists = end
    for extra in set(hops) - needed:
        yield f"tensor {extra[0]} is sent to device {extra[1]}, where nobody needs it"


def _arrivals(graph: OpGraph, schedule: Schedule) -> dict[tuple[int, int], float]:
    """The time from which each (tensor, device) can be used."""
    arrival = {
        (tensor, int(schedule.assignment[op])): float(schedule.end_s[op])
        for tensor, op in enumerate(graph.tensor_producer.tolist())
    }
    for row in range(len(schedule.transfer_tensor)):
        key = int(schedule.transfer_tensor[row]), int(schedule.transfer_target[row])
        arrival[key] = max(arrival.get(key, 0.0), float(schedule.transfer_end_s[row]))
    return arrival


def _ready_s(graph: OpGraph, schedule: Schedule) -> list[float]:
    """`[N]` time at which the last input of each op is on its device; infinite if one never is."""
    arrival = _arrivals(graph, schedule)
    return [
        max((arrival.get((int(t), int(schedule.assignment[op])), np.inf) for t in graph.inputs_of(op)), default=0.0)
        for op in range(graph.num_ops)
    ]


def _precedence(graph: OpGraph, schedule: Schedule) -> Iterator[str]:
    for op, ready in enumerate(_ready_s(graph, schedule)):
        if schedule.start_s[op] < ready:
            yield f"op {graph.op_names[op]} starts at {schedule.start_s[op]} s, its inputs are there at {ready} s"


def _exclusive(graph: OpGraph, topology: Topology, schedule: Schedule) -> Iterator[str]:
    """Devices and channels do one thing at a time; channels serve in order of request."""
    for device in range(topology.num_devices):
        yield from _overlaps(
            topology.device_names[device], schedule.start_s, schedule.end_s, _on_device(schedule, device)
        )
    requested = _requests(graph, topology, schedule)
    for channel, name in enumerate(topology.channel_names):
        rows = np.flatnonzero(topology.link_channel[schedule.transfer_link] == channel)
        order = rows[np.lexsort((schedule.transfer_end_s[rows], schedule.transfer_start_s[rows]))]
        yield from _overlaps(name, schedule.transfer_start_s, schedule.transfer_end_s, order.tolist())
        free = 0.0
        for earlier, row in zip([None, *order.tolist()], order.tolist(), strict=False):
            if earlier is not None and requested[row] < requested[earlier]:
                yield f"channel {name} serves transfer {row} after {earlier}, which asked later"
            if not np.isclose(schedule.transfer_start_s[row], max(free, requested[row]), rtol=1e-12, atol=0.0):
                yield f"channel {name} starts transfer {row} at {schedule.transfer_start_s[row]}, not {max(free, requested[row])}"
            free = float(schedule.transfer_end_s[row])


def _requests(graph: OpGraph, topology: Topology, schedule: Schedule) -> FloatArray:
    """`[K]` earliest start of each hop: the end of the producer, or of the previous hop."""
    requested = np.zeros(len(schedule.transfer_tensor))
    end: dict[tuple[int, int, int], float] = {}
    for row in range(len(requested)):
        key = int(schedule.transfer_tensor[row]), int(schedule.transfer_target[row]), int(schedule.transfer_link[row])
        end[key] = float(schedule.transfer_end_s[row])
    for row in range(len(requested)):
        tensor, target = int(schedule.transfer_tensor[row]), int(schedule.transfer_target[row])
        producer = int(graph.tensor_producer[tensor])
        route = topology.route(int(schedule.assignment[producer]), target) or ()
        hop = route.index(int(schedule.transfer_link[row])) if int(schedule.transfer_link[row]) in route else 0
        requested[row] = schedule.end_s[producer] if hop == 0 else end.get((tensor, target, route[hop - 1]), np.inf)
    return requested


def _overlaps(name: str, start: FloatArray, end: FloatArray, rows: Sequence[int]) -> Iterator[str]:
    for before, after in pairwise(rows):
        if start[after] < end[before]:
            yield f"{name} does two things at once: until {end[before]} s and from {start[after]} s"


def _work_conserving(graph: OpGraph, schedule: Schedule) -> Iterator[str]:
    """A device never idles while one of its ops is ready."""
    ready = _ready_s(graph, schedule)
    for device in np.unique(schedule.assignment).tolist():
        free = 0.0
        rows = _on_device(schedule, device)
        earliest = np.minimum.accumulate([ready[op] for op in reversed(rows)])[::-1]
        for position, op in enumerate(rows):
            if schedule.start_s[op] > max(free, float(earliest[position])):
                yield f"device {device} idles before op {graph.op_names[op]} while an op is ready"
            free = float(schedule.end_s[op])


def _colocation(graph: OpGraph, schedule: Schedule) -> Iterator[str]:
    for group, name in enumerate(graph.colocation_names):
        if len(set(schedule.assignment[graph.colocation == group].tolist())) > 1:
            yield f"colocation group {name} is on several devices"


def memory_changes(
    graph: OpGraph, topology: Topology, schedule: Schedule
) -> tuple[list[int], list[list[tuple[float, int]]]]:
    """Bytes of weights on each device, and its memory changes (time, bytes): activations, received copies, workspace.

    >>> from gnnplace.placement import Placement
    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> schedule = problem.estimator.schedule(Placement(np.array([0, 0, 0, 0])))
    >>> _, changes = memory_changes(problem.graph, problem.topology, schedule)
    >>> [change for change in changes[0] if change[1]][:2]  # the first op's output, until its last use ends
    [(0.0, 8), (5.0, -8)]
    """
    resident = [0] * topology.num_devices
    for op, device in enumerate(schedule.assignment.tolist()):
        resident[device] += int(graph.memory_bytes[op])
    for weight, size in enumerate(graph.weight_bytes.tolist()):
        for device in {int(schedule.assignment[op]) for op in graph.weights_of(weight)}:
            resident[device] += size
    changes: list[list[tuple[float, int]]] = [[] for _ in range(topology.num_devices)]

    def hold(device: int, start: float, end: float, size: int) -> None:
        changes[device].append((start, size))
        changes[device].append((end, -size))

    last_hop_start: dict[tuple[int, int], float] = {}
    first_hop_end: dict[int, float] = defaultdict(float)
    for row in range(len(schedule.transfer_tensor)):
        link = topology.links[schedule.transfer_link[row]]
        tensor, target = int(schedule.transfer_tensor[row]), int(schedule.transfer_target[row])
        if topology.device_index[link.target] == target:
            last_hop_start[tensor, target] = float(schedule.transfer_start_s[row])
        if topology.device_index[link.source] == schedule.assignment[graph.tensor_producer[tensor]]:
            first_hop_end[tensor] = max(first_hop_end[tensor], float(schedule.transfer_end_s[row]))
    for op, device in enumerate(schedule.assignment.tolist()):
        hold(device, float(schedule.start_s[op]), float(schedule.end_s[op]), int(graph.workspace_bytes[op]))
    for tensor, size in enumerate(graph.tensor_bytes.tolist()):
        producer = int(graph.tensor_producer[tensor])
        home = int(schedule.assignment[producer])
        last_use: dict[int, float] = {home: first_hop_end[tensor]}
        for op in graph.consumers_of(tensor).tolist():
            device = int(schedule.assignment[op])
            last_use[device] = max(last_use.get(device, 0.0), float(schedule.end_s[op]))
        if not len(graph.consumers_of(tensor)):
            last_use[home] = np.inf
        for device, end in last_use.items():
            start = float(schedule.start_s[producer]) if device == home else last_hop_start.get((tensor, device), 0.0)
            hold(device, start, end, size)
    return resident, changes


def _memory(graph: OpGraph, topology: Topology, schedule: Schedule) -> Iterator[str]:
    """The peaks of memory, recomputed from the changes per device."""
    resident, changes = memory_changes(graph, topology, schedule)
    # Memory freed at an instant serves what starts at that instant. Events of zero length have an order within the instant
    # that times do not show; then the peak is only known to lie between two values.
    instantaneous = bool((schedule.end_s == schedule.start_s).any()) or bool(
        (schedule.transfer_end_s == schedule.transfer_start_s).any()
    )
    for device, rows in enumerate(changes):
        least = resident[device] + _peak(sorted(rows))
        most = resident[device] + _peak(sorted(rows, key=lambda row: (row[0], -row[1]))) if instantaneous else least
        if not least <= schedule.peak_memory_bytes[device] <= most:
            name = topology.device_names[device]
            yield f"device {name} peaks at {least} bytes, the schedule says {schedule.peak_memory_bytes[device]}"


def _peak(changes: Sequence[tuple[float, int]]) -> int:
    """The highest sum of a prefix of the changes, at least 0."""
    return max(accumulate((change for _, change in changes), initial=0))


def _on_device(schedule: Schedule, device: int) -> list[int]:
    """The ops of one device in execution order."""
    ops = np.flatnonzero(schedule.assignment == device)
    return [int(op) for op in ops[np.lexsort((schedule.end_s[ops], schedule.start_s[ops]))]]
