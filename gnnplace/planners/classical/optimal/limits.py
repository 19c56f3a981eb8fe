"""Rule 4 of the execution model for `optimal`: weights, and what is live at any time, fit into each memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.planners.classical.optimal.model import TICKS, IntervalModel

__all__ = ["bound_by_paths", "limit_memory", "path_ticks"]


if TYPE_CHECKING:
    from ortools.sat.python import cp_model


_MAX_GRAINS = 10**9  # of memory in all: beyond that bytes are counted in larger pieces, rounded in favour of fitting


@dataclass(frozen=True)
class _Use:
    """Bytes on a device while an interval lasts."""

    interval: cp_model.IntervalVar
    num_bytes: int


def limit_memory(schedule: IntervalModel) -> None:
    """Every device holds what it must, where memory could bind at all.

    A tensor is live at home from the start of its producer until the last local consumer and the last first hop have
    ended, elsewhere from the start of the last hop until the last consumer there has ended; without consumers it stays.
    For throughput only weights and results count, as nothing is timed.

    >>> from dataclasses import replace
    >>> from ortools.sat.python import cp_model
    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> tight = replace(problem.topology, devices=tuple(Device(name, memory_bytes=4) for name in "xy"))
    >>> schedule = IntervalModel(replace(problem, topology=tight), horizon_s=10.0)
    >>> limit_memory(schedule)
    >>> cp_model.CpSolver().solve(schedule.model) == cp_model.INFEASIBLE  # a tensor has 8 bytes
    True
    """
    graph, topology = schedule.problem.graph, schedule.problem.topology
    total = graph.total_weight_bytes + int(graph.tensor_bytes.sum()) + int(graph.workspace_bytes.max(initial=0))
    grain = max(1, -(-total // _MAX_GRAINS))
    uses = _uses(schedule) if schedule.timed and (topology.memory_bytes < total).any() else {}
    for device in np.flatnonzero(topology.memory_bytes < total).tolist():
        room = -(-int(topology.memory_bytes[device]) // grain)
        free = schedule.model.new_int_var(0, room, "")
        schedule.model.add(sum([*_resident(schedule, device, grain), free]) <= room)
        live = [use for use in uses.get(device, []) if use.num_bytes >= grain]
        schedule.model.add_cumulative([use.interval for use in live], [use.num_bytes // grain for use in live], free)


def _resident(schedule: IntervalModel, device: int, grain: int) -> list[cp_model.LinearExprT]:
    """Weights of the ops on the device, shared ones once; for throughput results too."""
    graph, model = schedule.problem.graph, schedule.model
    terms: list[cp_model.LinearExprT] = []
    for op in np.flatnonzero(graph.memory_bytes).tolist():
        terms.append(int(graph.memory_bytes[op]) // grain * schedule.op_on(op, device))
    for weight, num_bytes in enumerate(graph.weight_bytes.tolist()):
        there = model.new_bool_var("")
        for op in graph.weights_of(weight).tolist():
            model.add_implication(schedule.op_on(op, device), there)
        terms.append(num_bytes // grain * there)
    if not schedule.timed:
        for tensor in np.flatnonzero(np.diff(graph.consumer_offsets) == 0).tolist():
            producer = int(graph.tensor_producer[tensor])
            terms.append(int(graph.tensor_bytes[tensor]) // grain * schedule.op_on(producer, device))
    return terms


def _uses(schedule: IntervalModel) -> dict[int, list[_Use]]:
    """What is live on each device."""
    graph, model = schedule.problem.graph, schedule.model
    uses: dict[int, list[_Use]] = defaultdict(list)

    def hold(device: int, num_bytes: int, span: tuple[cp_model.LinearExprT, cp_model.LinearExprT],
             if_there: cp_model.IntVar) -> None:  # fmt: skip
        size = model.new_int_var(0, TICKS + 1, "")
        uses[device].append(_Use(model.new_optional_interval_var(span[0], size, span[1], if_there, ""), num_bytes))

    for op in np.flatnonzero(graph.workspace_bytes).tolist():
        for device in schedule.devices_of(op):
            hold(device, int(graph.workspace_bytes[op]), (schedule.start[op], schedule.end[op]),
                 schedule.op_on(op, device))  # fmt: skip
    for tensor in np.flatnonzero(graph.tensor_bytes).tolist():
        producer, num_bytes = int(graph.tensor_producer[tensor]), int(graph.tensor_bytes[tensor])
        readers = graph.consumers_of(tensor).tolist()
        for device in schedule.devices_of(producer):
            released = model.new_int_var(0, TICKS, "") if readers else TICKS + 1
            here = schedule.op_on(producer, device)
            for op in readers:
                model.add(released >= schedule.end[op]).only_enforce_if([here, schedule.op_on(op, device)])
            for hop in schedule.hops_of(tensor):
                if hop.is_first and hop.source == device:
                    model.add(released >= hop.end).only_enforce_if(hop.sent)
            hold(device, num_bytes, (schedule.start[producer], released), here)
        for hop in schedule.hops_of(tensor):
            if hop.is_last:
                released = model.new_int_var(0, TICKS, "")
                model.add(released >= hop.end).only_enforce_if(hop.sent)
                for op in readers:
                    there = schedule.op_on(op, hop.target)
                    model.add(released >= schedule.end[op]).only_enforce_if([hop.sent, there])
                hold(hop.target, num_bytes, (hop.start, released), hop.sent)
    return uses


NEVER = 2 * TICKS
"""Where an op or a tensor cannot go; more than the horizon, and small enough to add up."""


def bound_by_paths(schedule: IntervalModel) -> None:
    """Every op starts no sooner than a path to it takes, and the step ends no sooner than a path from it does.

    The other constraints imply it, but only once the ops of the path are placed; told outright, it rules out devices
    before any of them is, all the more as the horizon is the best makespan so far.

    >>> from gnnplace.sim.example import diamond
    >>> schedule = IntervalModel(diamond(), horizon_s=10.0)
    >>> before = len(schedule.model.proto.constraints)
    >>> bound_by_paths(schedule)
    >>> len(schedule.model.proto.constraints) - before  # one before and one after each of four ops
    8
    """
    if not schedule.timed:
        return
    before, after = path_ticks(schedule)
    for op, whole in enumerate(before + _run_ticks(schedule) + after):
        devices = schedule.devices_of(op)
        to_it, from_it = (sum(int(ticks[op, d]) * schedule.op_on(op, d) for d in devices) for ticks in (before, after))
        schedule.model.add(schedule.start[op] >= to_it)
        schedule.model.add(schedule.value >= schedule.end[op] + from_it)
        for device in devices:
            if whole[device] > TICKS:
                schedule.model.add(schedule.op_on(op, device) == 0)


def path_ticks(schedule: IntervalModel) -> tuple[IntArray, IntArray]:
    """`[N, D]` least ticks before each op on each device, and after it: of the worst path, on the best devices for it.

    Every input, and every consumer, may choose its own devices for what lies beyond, so no schedule does better. Durations
    are rounded down one by one, as in the model.

    >>> from gnnplace.sim.example import diamond
    >>> schedule = IntervalModel(diamond(), horizon_s=10.0)
    >>> before, after = path_ticks(schedule)
    >>> (before * schedule.tick_s).round(3)[:, 0].tolist(), (after * schedule.tick_s).round(3)[:, 0].tolist()
    ([0.0, 1.0, 1.0, 3.0], [3.0, 1.0, 1.0, 0.0])
    """
    graph, run = schedule.problem.graph, _run_ticks(schedule)
    transit = _transit_ticks(schedule)
    before, after = np.zeros_like(run), np.zeros_like(run)
    order = graph.topological_order.tolist()
    for op in order:
        for tensor in graph.inputs_of(op).tolist():
            producer = int(graph.tensor_producer[tensor])
            done = before[producer] + run[producer]
            arrival = (done[:, None] + _between(schedule, transit[tensor], producer, op)).min(axis=0)
            before[op] = np.maximum(before[op], np.minimum(arrival, NEVER))
    for op in reversed(order):
        for tensor in graph.inputs_of(op).tolist():
            producer = int(graph.tensor_producer[tensor])
            rest = (_between(schedule, transit[tensor], producer, op) + run[op] + after[op]).min(axis=1)
            after[producer] = np.maximum(after[producer], np.minimum(rest, NEVER))
    return before, after


def _run_ticks(schedule: IntervalModel) -> IntArray:
    """`[N, D]` ticks of each op, without overheads."""
    problem = schedule.problem
    run = np.full(problem.op_time_s.shape, NEVER, dtype=np.int64)
    for op in range(problem.graph.num_ops):
        for device in schedule.devices_of(op):
            run[op, device] = schedule.ticks(problem.op_time_s[op, device])
    return run


def _transit_ticks(schedule: IntervalModel) -> IntArray:
    """`[T, D, D]` ticks of each tensor from one device to another when every channel is free."""
    graph, topology = schedule.problem.graph, schedule.problem.topology
    transit = np.zeros((graph.num_tensors, topology.num_devices, topology.num_devices), dtype=np.int64)
    for source, target in np.ndindex(transit.shape[1:]):
        route = topology.route(source, target)
        for tensor, num_bytes in enumerate(graph.tensor_bytes.tolist()):
            hops = (schedule.ticks(topology.links[link].transfer_s(num_bytes)) for link in route or ())
            transit[tensor, source, target] = NEVER if route is None else min(NEVER, sum(hops))
    return transit


def _between(schedule: IntervalModel, transit: IntArray, producer: int, consumer: int) -> IntArray:
    """`[D, D]` the same for two ops: those of one unit are on one device."""
    unit = schedule.problem.unit_of_op
    if unit[producer] != unit[consumer]:
        return transit
    return np.where(np.eye(len(transit), dtype=np.bool_), 0, NEVER)
