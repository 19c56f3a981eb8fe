"""What the simulator does of itself: it pays overheads when it waited, never waits for nothing, and serves in turn."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import BoolArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.optimal.model import Hop, IntervalModel

__all__ = ["never_idle", "pay_overheads", "serve_in_turn"]


if TYPE_CHECKING:
    from ortools.sat.python import cp_model


# Durations are rounded down, so what happens at one instant may be this many ticks apart.
_APART = 1


def pay_overheads(schedule: IntervalModel) -> None:
    """Rule 3: an op waits only for what is sent, and did not wait if it starts at 0 or right after another op there.

    >>> from dataclasses import replace
    >>> from ortools.sat.python import cp_model
    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> slow = replace(problem.topology, devices=tuple(Device(name, dispatch_overhead_s=0.5) for name in "xy"))
    >>> schedule, solver = IntervalModel(replace(problem, topology=slow), horizon_s=10.0), cp_model.CpSolver()
    >>> pay_overheads(schedule)
    >>> solver.parameters.num_workers = 1
    >>> _ = solver.solve(schedule.model)
    >>> round(solver.objective_value * schedule.tick_s, 3)  # one branch waits for what is sent to it
    4.501
    """
    problem, model = schedule.problem, schedule.model
    above = _ancestors(problem)
    followers: dict[int, list[cp_model.IntVar]] = defaultdict(list)
    for op in range(problem.graph.num_ops):
        for device in schedule.devices_of(op):
            from_afar = [
                hop.sent
                for tensor in problem.graph.inputs_of(op).tolist()
                for hop in schedule.hops_of(tensor)
                if hop.is_last and hop.target == device
            ]
            model.add_bool_or([~schedule.waits[op], ~schedule.op_on(op, device), *from_afar])
        at_zero = model.new_bool_var("")
        model.add(schedule.start[op] <= _APART).only_enforce_if(at_zero)
        reasons = [schedule.waits[op], at_zero]
        for other in np.flatnonzero(~above[:, op]).tolist():
            if other == op:
                continue
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
    """Rule 1: when an op ends a device's wait, it and all that run later on the device were not ready before.

    >>> from ortools.sat.python import cp_model
    >>> from gnnplace.sim.example import diamond
    >>> schedule, solver = IntervalModel(diamond(), horizon_s=10.0), cp_model.CpSolver()
    >>> never_idle(schedule)
    >>> solver.parameters.num_workers = 1
    >>> _ = solver.solve(schedule.model)
    >>> round(solver.objective_value * schedule.tick_s, 3)
    4.001
    """
    problem, model = schedule.problem, schedule.model
    above, num_ops = _ancestors(problem), problem.graph.num_ops
    ready = [_ready(schedule, op) for op in range(num_ops)]
    for op in range(num_ops):
        model.add(schedule.start[op] <= ready[op]).only_enforce_if(schedule.waits[op])
        for other in np.flatnonzero(~above[op] & ~above[:, op]).tolist():
            if other == op:
                continue
            ran_before, comes_later = model.new_bool_var(""), model.new_bool_var("")
            model.add(schedule.end[other] <= schedule.start[op]).only_enforce_if(ran_before)
            model.add(ready[other] >= schedule.start[op]).only_enforce_if(comes_later)
            for device in schedule.devices_of(op):
                together = [~schedule.waits[op], ~schedule.op_on(op, device), ~schedule.op_on(other, device)]
                model.add_bool_or([*together, ran_before, comes_later])


def _ready(schedule: IntervalModel, op: int) -> cp_model.IntVar:
    """The tick at which the last input of an op is there."""
    graph, model = schedule.problem.graph, schedule.model
    ready = schedule.new_time()
    is_last: list[cp_model.IntVar] = []
    for tensor in graph.inputs_of(op).tolist():
        producer, last = int(graph.tensor_producer[tensor]), model.new_bool_var("")
        is_last.append(last)
        for device in schedule.devices_of(op):
            at_home = [last, schedule.op_on(op, device), schedule.op_on(producer, device)]
            model.add(ready <= schedule.end[producer] + _APART).only_enforce_if(at_home)
        for hop in schedule.hops_of(tensor):
            if hop.is_last:
                from_afar = [last, schedule.op_on(op, hop.target), hop.sent]
                model.add(ready <= hop.end + _APART).only_enforce_if(from_afar)
    if is_last:
        model.add_exactly_one(is_last)
    else:
        model.add(ready == 0)
    return ready


def serve_in_turn(schedule: IntervalModel) -> None:
    """Rule 2: first come first served on every channel, at once when it is free.

    Of the ties, those of one producer are decided as the simulator does: outputs by index, then the destination that
    the consumer list names first. Others are left open.

    >>> from ortools.sat.python import cp_model
    >>> from gnnplace.sim.example import diamond
    >>> schedule, solver = IntervalModel(diamond(), horizon_s=10.0), cp_model.CpSolver()
    >>> serve_in_turn(schedule)
    >>> solver.parameters.num_workers = 1
    >>> _ = solver.solve(schedule.model)
    >>> round(solver.objective_value * schedule.tick_s, 3)
    4.001
    """
    model, above = schedule.model, _ancestors(schedule.problem)
    producer = schedule.problem.graph.tensor_producer

    def is_later(one: Hop, two: Hop) -> bool:
        return one.is_first and two.is_first and bool(above[producer[one.tensor], producer[two.tensor]])

    by_channel: dict[int, list[Hop]] = defaultdict(list)
    for hop in schedule.hops:
        by_channel[hop.channel].append(hop)
    for hops in by_channel.values():
        before: dict[int, list[tuple[Hop, cp_model.IntVar]]] = defaultdict(list)
        for one, two in combinations(range(len(hops)), 2):
            if (hops[one].tensor, hops[one].target) == (hops[two].tensor, hops[two].target):
                continue  # the same tensor from another source: never both
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
    """Says that `one` goes before `two` where both come from one op and the simulator would do so."""
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
    """`[N, N]` true where the second op is an input of the first, directly or not: `[descendant, ancestor]`."""
    graph = problem.graph
    above = np.zeros((graph.num_ops, graph.num_ops), dtype=np.bool_)
    for op in graph.topological_order.tolist():
        for successor in graph.successors[graph.successor_offsets[op] : graph.successor_offsets[op + 1]].tolist():
            above[successor] |= above[op]
            above[successor, op] = True
    return above
