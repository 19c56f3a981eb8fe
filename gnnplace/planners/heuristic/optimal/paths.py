"""What paths through the graph say of an op on each device: how soon it may start, and how long the step lasts after it."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.planners.heuristic.optimal.model import TICKS, IntervalModel

__all__ = ["bound_by_paths", "path_ticks"]

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
