"""Constraints beyond the intervals of `optimal`: memory, bounds from paths, and the simulator's order of events."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.optimal.model import NEVER, TICKS, Hop, IntervalModel

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    _Uses = dict[int, list[tuple[cp_model.IntervalVar, int]]]

_MAX_GRAINS = 10**9
"""Grains of memory in total. A larger total is counted in grains of several bytes, rounded in favour of fitting."""

_APART = 1
"""Ticks between events of one instant: durations are rounded down, so their sums may differ by this."""


def limit_memory(schedule: IntervalModel) -> None:
    """Adds rule 4: weights and live tensors fit into each memory. Memories that hold everything get no constraint.

    A tensor is live at home from the start of its producer until the last local consumer and the last first hop have
    ended, elsewhere from the start of the last hop until the last consumer there has ended; without consumers it stays.
    For throughput only weights and results count, as nothing is timed. In a memory of several devices only weights count,
    which allows more than the simulator does.
    """
    graph, topology = schedule.problem.graph, schedule.problem.topology
    total = graph.total_weight_bytes + int(graph.tensor_bytes.sum()) + int(graph.workspace_bytes.max(initial=0))
    grain = max(1, -(-total // _MAX_GRAINS))
    tight = np.flatnonzero(topology.memory_bytes < total).tolist()
    uses: _Uses = _uses(schedule) if tight and schedule.timed else defaultdict(list)
    for memory in sorted({*topology.memory_home[tight].tolist()}):
        devices = np.flatnonzero(topology.memory_home == memory).tolist()
        room = -(-int(topology.memory_bytes[memory]) // grain)
        free = schedule.model.new_int_var(0, room, "")
        schedule.model.add(sum([*_resident(schedule, devices, grain), free]) <= room)
        held = uses[memory] if len(devices) == 1 else []
        live = [(interval, num_bytes // grain) for interval, num_bytes in held if num_bytes >= grain]
        schedule.model.add_cumulative([interval for interval, _ in live], [grains for _, grains in live], free)


def _resident(schedule: IntervalModel, devices: list[int], grain: int) -> list[cp_model.LinearExprT]:
    """Grains of the weights in the memory of some devices, shared ones once; for throughput, of the results too."""
    graph, model = schedule.problem.graph, schedule.model
    terms: list[cp_model.LinearExprT] = []
    for op in np.flatnonzero(graph.memory_bytes).tolist():
        terms += [int(graph.memory_bytes[op]) // grain * schedule.op_on(op, device) for device in devices]
    for weight, num_bytes in enumerate(graph.weight_bytes.tolist()):
        there = model.new_bool_var("")
        for op in graph.weights_of(weight).tolist():
            for device in devices:
                model.add_implication(schedule.op_on(op, device), there)
        terms.append(num_bytes // grain * there)
    if not schedule.timed:
        for tensor in np.flatnonzero(np.diff(graph.consumer_offsets) == 0).tolist():
            producer = int(graph.tensor_producer[tensor])
            num_bytes = int(graph.tensor_bytes[tensor]) // grain
            terms += [num_bytes * schedule.op_on(producer, device) for device in devices]
    return terms


def _uses(schedule: IntervalModel) -> _Uses:
    """Intervals in which tensors and workspaces are live, with their bytes, by device."""
    graph, model = schedule.problem.graph, schedule.model
    uses: _Uses = defaultdict(list)

    def hold(
        device: int, num_bytes: int, begin: cp_model.LinearExprT, end: cp_model.LinearExprT, if_there: cp_model.IntVar
    ) -> None:
        size = model.new_int_var(0, TICKS + 1, "")
        uses[device].append((model.new_optional_interval_var(begin, size, end, if_there, ""), num_bytes))

    for op in np.flatnonzero(graph.workspace_bytes).tolist():
        num_bytes = int(graph.workspace_bytes[op])
        for device in schedule.devices_of(op):
            hold(device, num_bytes, schedule.start[op], schedule.end[op], schedule.op_on(op, device))
    for tensor in np.flatnonzero(graph.tensor_bytes).tolist():
        producer, num_bytes = int(graph.tensor_producer[tensor]), int(graph.tensor_bytes[tensor])
        readers = graph.consumers_of(tensor).tolist()
        for device in schedule.devices_of(producer):
            released = model.new_int_var(0, TICKS, "") if readers else TICKS + 1
            here = schedule.op_on(producer, device)
            for op in readers:
                model.add(released >= schedule.end[op]).only_enforce_if([here, schedule.op_on(op, device)])
            for hop in schedule.hops_of[tensor]:
                if hop.is_first and hop.source == device:
                    model.add(released >= hop.end).only_enforce_if(hop.sent)
            hold(device, num_bytes, schedule.start[producer], released, here)
        for hop in schedule.hops_of[tensor]:
            if hop.is_last:
                released = model.new_int_var(0, TICKS, "")
                model.add(released >= hop.end).only_enforce_if(hop.sent)
                for op in readers:
                    there = schedule.op_on(op, hop.target)
                    model.add(released >= schedule.end[op]).only_enforce_if([hop.sent, there])
                hold(hop.target, num_bytes, hop.start, released, hop.sent)
    return uses


def bound_by_paths(schedule: IntervalModel) -> None:
    """Bounds each start by the shortest path to the op, and the end of the step by the shortest path from it.

    The other constraints imply these bounds, but only once the ops of the path are placed. Stated directly, they rule out
    devices earlier, and the more so the closer the horizon is to the optimum.
    """
    if not schedule.timed:
        return
    before, after = path_ticks(schedule)
    for op, whole in enumerate(before + schedule.run_ticks + after):
        devices = schedule.devices_of(op)
        to_it, from_it = (sum(int(ticks[op, d]) * schedule.op_on(op, d) for d in devices) for ticks in (before, after))
        schedule.model.add(schedule.start[op] >= to_it)
        schedule.model.add(schedule.value >= schedule.end[op] + from_it)
        for device in devices:
            if whole[device] > TICKS:
                schedule.model.add(schedule.op_on(op, device) == 0)


def path_ticks(schedule: IntervalModel) -> tuple[IntArray, IntArray]:
    """`[N, D]` least ticks before each op on each device, and after it: of the longest path, on the best devices for it.

    Every input, and every consumer, may choose its own devices for the rest of the path, so no schedule is faster.
    Durations are rounded down one by one, as in the model.
    """
    graph, unit, run = schedule.problem.graph, schedule.problem.unit_of_op, schedule.run_ticks
    transit, same_device = _transit_ticks(schedule), np.where(np.eye(run.shape[1], dtype=np.bool_), 0, NEVER)
    reads = [(op, tensor) for op in graph.topological_order.tolist() for tensor in graph.inputs_of(op).tolist()]
    producers = [int(graph.tensor_producer[tensor]) for _, tensor in reads]
    uses = [
        (producer, op, same_device if unit[producer] == unit[op] else transit[tensor])
        for producer, (op, tensor) in zip(producers, reads, strict=True)
    ]
    before, after = np.zeros_like(run), np.zeros_like(run)
    for producer, op, between in uses:
        arrival = ((before[producer] + run[producer])[:, None] + between).min(axis=0)
        before[op] = np.maximum(before[op], np.minimum(arrival, NEVER))
    for producer, op, between in reversed(uses):
        rest = (between + run[op] + after[op]).min(axis=1)
        after[producer] = np.maximum(after[producer], np.minimum(rest, NEVER))
    return before, after


def _transit_ticks(schedule: IntervalModel) -> IntArray:
    """`[T, D, D]` ticks of each tensor from one device to another, with every channel free."""
    graph, topology = schedule.problem.graph, schedule.problem.topology
    transit = np.zeros((graph.num_tensors, topology.num_devices, topology.num_devices), dtype=np.int64)
    for source, target in np.ndindex(transit.shape[1:]):
        route = topology.route(source, target)
        for tensor, num_bytes in enumerate(graph.tensor_bytes.tolist()):
            hops = (schedule.ticks(topology.links[link].transfer_s(num_bytes)) for link in route or ())
            transit[tensor, source, target] = NEVER if route is None else min(NEVER, sum(hops))
    return transit


def pay_overheads(schedule: IntervalModel) -> None:
    """Adds rule 3: an op waits only for transfers, and did not wait if it starts at 0 or right after another op there.

    On a device that shares resources an op may also wait for these.
    """
    problem, model = schedule.problem, schedule.model
    shares = np.flatnonzero(problem.topology.excludes.any(axis=1)).tolist()
    above = _ancestors(problem)
    followers: dict[int, list[cp_model.IntVar]] = defaultdict(list)
    for op in range(problem.graph.num_ops):
        for device in schedule.devices_of(op):
            if device in shares:
                continue
            from_afar = [
                hop.sent
                for tensor in problem.graph.inputs_of(op).tolist()
                for hop in schedule.hops_of[tensor]
                if hop.is_last and hop.target == device
            ]
            model.add_bool_or([~schedule.waits[op], ~schedule.op_on(op, device), *from_afar])
        at_zero = model.new_bool_var("")
        model.add(schedule.start[op] <= _APART).only_enforce_if(at_zero)
        reasons = [schedule.waits[op], at_zero]
        for other in np.flatnonzero(~above[:, op]).tolist():
            follows = model.new_bool_var("")
            reasons.append(follows)
            followers[other].append(follows)
            model.add(schedule.end[other] <= schedule.start[op]).only_enforce_if(follows)
            model.add(schedule.end[other] >= schedule.start[op] - _APART).only_enforce_if(follows)
            for device in schedule.devices_of(op):
                model.add_bool_or([~follows, ~schedule.op_on(op, device), schedule.op_on(other, device)])
        model.add_bool_or(reasons)
    for after_one in followers.values():
        model.add_at_most_one(after_one)


def never_idle(schedule: IntervalModel) -> None:
    """Adds rule 1: when an op ends a device's wait, neither it nor any later op on the device was ready before.

    Nothing is added where devices share resources, so that the model allows more than the simulator does.
    """
    problem, model = schedule.problem, schedule.model
    if problem.topology.shares_resources:
        return
    above, num_ops = _ancestors(problem), problem.graph.num_ops
    ready = [_ready(schedule, op) for op in range(num_ops)]
    for op in range(num_ops):
        model.add(schedule.start[op] <= ready[op]).only_enforce_if(schedule.waits[op])
        for other in np.flatnonzero(~above[op] & ~above[:, op]).tolist():
            ran_before, comes_later = model.new_bool_var(""), model.new_bool_var("")
            model.add(schedule.end[other] <= schedule.start[op]).only_enforce_if(ran_before)
            model.add(ready[other] >= schedule.start[op]).only_enforce_if(comes_later)
            for device in schedule.devices_of(op):
                together = [~schedule.waits[op], ~schedule.op_on(op, device), ~schedule.op_on(other, device)]
                model.add_bool_or([*together, ran_before, comes_later])


def _ready(schedule: IntervalModel, op: int) -> cp_model.IntVar:
    """The tick at which the last input of an op has arrived."""
    graph, model = schedule.problem.graph, schedule.model
    ready = schedule.new_time()
    is_last: list[cp_model.IntVar] = []
    for tensor in graph.inputs_of(op).tolist():
        producer, last = int(graph.tensor_producer[tensor]), model.new_bool_var("")
        is_last.append(last)
        for device in schedule.devices_of(op):
            at_home = [last, schedule.op_on(op, device), schedule.op_on(producer, device)]
            model.add(ready <= schedule.end[producer] + _APART).only_enforce_if(at_home)
        for hop in schedule.hops_of[tensor]:
            if hop.is_last:
                from_afar = [last, schedule.op_on(op, hop.target), hop.sent]
                model.add(ready <= hop.end + _APART).only_enforce_if(from_afar)
    if is_last:
        model.add_exactly_one(is_last)
    else:
        model.add(ready == 0)
    return ready


def serve_in_turn(schedule: IntervalModel) -> None:
    """Adds rule 2: each channel serves transfers first come first served, at once when it is free.

    Ties between outputs of one op are broken as in the simulator: by index of the output, then by the destination that
    comes first in the consumer list. Other ties stay open.
    """
    model, above = schedule.model, _ancestors(schedule.problem)
    producer = schedule.problem.graph.tensor_producer

    def is_later(one: Hop, two: Hop) -> bool:
        ends = producer[one.tensor], producer[two.tensor]
        return one.is_first and two.is_first and ends[0] != ends[1] and bool(above[ends])

    by_channel: dict[int, list[Hop]] = defaultdict(list)
    for hop in schedule.hops:
        by_channel[hop.channel].append(hop)
    for hops in by_channel.values():
        before: dict[int, list[tuple[Hop, cp_model.IntVar]]] = defaultdict(list)
        for one, two in combinations(range(len(hops)), 2):
            if (hops[one].tensor, hops[one].target) == (hops[two].tensor, hops[two].target):
                continue  # the same tensor from another source: only one of the two is sent
            orders = []
            for first, second in ((one, two), (two, one)):
                if is_later(hops[first], hops[second]):
                    continue
                in_turn = model.new_bool_var("")
                model.add_implication(in_turn, hops[first].sent)
                model.add_implication(in_turn, hops[second].sent)
                model.add(hops[first].end <= hops[second].start).only_enforce_if(in_turn)
                model.add(hops[first].ready <= hops[second].ready + _APART).only_enforce_if(in_turn)
                before[second].append((hops[first], in_turn))
                orders.append(in_turn)
                _decide_tie(schedule, hops[first], hops[second], in_turn)
            model.add_bool_or([*orders, ~hops[one].sent, ~hops[two].sent])
        for position, hop in enumerate(hops):
            reasons = [model.new_bool_var("")]
            model.add(hop.start <= hop.ready + _APART).only_enforce_if(reasons[0])
            for earlier, in_turn in before[position]:
                at_once = model.new_bool_var("")
                model.add_implication(at_once, in_turn)
                model.add(hop.start <= earlier.end + _APART).only_enforce_if(at_once)
                reasons.append(at_once)
            model.add_bool_or([~hop.sent, *reasons])


def _decide_tie(schedule: IntervalModel, one: Hop, two: Hop, in_turn: cp_model.IntVar) -> None:
    """Orders `one` before `two` where both come from one op and the simulator would do so."""
    graph, model = schedule.problem.graph, schedule.model
    if not (one.is_first and two.is_first and one.source == two.source):
        return
    both = [~one.sent, ~two.sent, in_turn]
    if one.tensor == two.tensor:
        readers = graph.consumers_of(one.tensor).tolist()
        for place, op in enumerate(readers):
            earlier = [schedule.op_on(other, two.target) for other in readers[:place]]
            model.add_bool_or([*both, ~schedule.op_on(op, one.target), *earlier])
    elif one.tensor < two.tensor and graph.tensor_producer[one.tensor] == graph.tensor_producer[two.tensor]:
        model.add_bool_or(both)


def _ancestors(problem: Problem) -> BoolArray:
    """`[N, N]` true where the second op is the first one or precedes it, directly or not: `[descendant, ancestor]`."""
    above = np.eye(problem.graph.num_ops, dtype=np.bool_)
    for op in problem.graph.topological_order.tolist():
        for tensor in problem.graph.inputs_of(op).tolist():
            above[op] |= above[problem.graph.tensor_producer[tensor]]
    return above
