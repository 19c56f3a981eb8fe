"""Rule 4 of the execution model for `optimal`: weights, and what is live at any time, fit into each memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.planners.heuristic.optimal.model import TICKS, IntervalModel

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["limit_memory"]

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
