"""Times in the schedules of several placements: when ops run, when tensors arrive, and the slack of each op."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.units import UnitTables
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement

__all__ = ["Timing", "empty_timing", "refresh", "tail_s"]


class Timing(NamedTuple):
    """The schedules of `B` placements, as arrays that `refresh` overwrites row by row."""

    assignment: IntArray  # [B, N]
    start_s: FloatArray  # [B, N]
    end_s: FloatArray  # [B, N]
    slack_s: FloatArray  # [B, N] how much later the op could end without changing the makespan
    arrival_s: FloatArray  # [B, T, D] when a tensor is on a device; infinite where it never is
    busy_s: FloatArray  # [B, D]
    peak_memory_bytes: FloatArray  # [B, D]
    makespan_s: FloatArray  # [B]


class _Transfers(NamedTuple):
    tensor: IntArray  # [K]
    target: IntArray  # [K]
    end_s: FloatArray  # [K]


def empty_timing(problem: Problem, num_placements: int) -> Timing:
    """Arrays for the schedules of `B` placements."""
    ops, tensors, devices = problem.graph.num_ops, problem.graph.num_tensors, problem.topology.num_devices
    return Timing(
        assignment=np.zeros((num_placements, ops), dtype=np.int64),
        start_s=np.zeros((num_placements, ops)),
        end_s=np.zeros((num_placements, ops)),
        slack_s=np.zeros((num_placements, ops)),
        arrival_s=np.full((num_placements, tensors, devices), np.inf),
        busy_s=np.zeros((num_placements, devices)),
        peak_memory_bytes=np.zeros((num_placements, devices)),
        makespan_s=np.zeros(num_placements),
    )


def refresh(problem: Problem, tables: UnitTables, timing: Timing, row: int, assignment: IntArray) -> None:
    """Writes the estimator's schedule of `assignment` `[N]` to one row; this counts as no evaluation."""
    schedule = problem.estimator.schedule(Placement(assignment))
    order = np.lexsort((tables.topological_position, schedule.end_s, schedule.start_s))
    makespan_s = schedule.makespan_s
    transfers = _Transfers(schedule.transfer_tensor, schedule.transfer_target, schedule.transfer_end_s)
    arrival_s = _arrivals(tables, assignment, schedule.end_s, transfers)
    timing.assignment[row] = assignment
    timing.start_s[row] = schedule.start_s
    timing.end_s[row] = schedule.end_s
    timing.arrival_s[row] = arrival_s
    timing.slack_s[row] = _slack(tables, assignment, schedule.start_s, schedule.end_s, arrival_s, order, makespan_s)
    durations = schedule.end_s - schedule.start_s
    timing.busy_s[row] = np.bincount(assignment, weights=durations, minlength=problem.topology.num_devices)
    timing.peak_memory_bytes[row] = schedule.peak_memory_bytes
    timing.makespan_s[row] = makespan_s


def tail_s(timing: Timing) -> FloatArray:
    """`[B, N]` seconds from the latest start of each op that keeps the makespan to the end of the step."""
    return timing.makespan_s[:, None] - timing.start_s - timing.slack_s


@njit(cache=True, nogil=True)
def _arrivals(tables: UnitTables, assignment: IntArray, end_s: FloatArray, transfers: _Transfers) -> FloatArray:
    """`[T, D]` the producer's end on its own device, the end of the last hop on others."""
    tensors, devices = len(tables.tensor_producer), tables.op_time_s.shape[1]
    arrival_s = np.full((tensors, devices), -1.0)
    for row in range(len(transfers.tensor)):
        tensor, target = transfers.tensor[row], transfers.target[row]
        arrival_s[tensor, target] = max(arrival_s[tensor, target], transfers.end_s[row])
    for tensor in range(tensors):
        producer = tables.tensor_producer[tensor]
        arrival_s[tensor, assignment[producer]] = end_s[producer]
        for device in range(devices):
            if arrival_s[tensor, device] < 0.0:
                arrival_s[tensor, device] = np.inf
    return arrival_s


@njit(cache=True, nogil=True)
def _slack(
    tables: UnitTables,
    assignment: IntArray,
    start_s: FloatArray,
    end_s: FloatArray,
    arrival_s: FloatArray,
    order: IntArray,
    makespan_s: float,
) -> FloatArray:
    """`[N]` latest end that keeps the makespan, minus the end; the order on devices and transfer delays stay as they are."""
    slack_s = np.zeros(len(order))
    next_start = np.full(tables.op_time_s.shape[1], makespan_s)
    for position in range(len(order) - 1, -1, -1):
        op = order[position]
        latest_end = next_start[assignment[op]]
        for tensor in range(tables.output_offsets[op], tables.output_offsets[op + 1]):
            for entry in range(tables.consumer_offsets[tensor], tables.consumer_offsets[tensor + 1]):
                consumer = tables.consumers[entry]
                delay_s = arrival_s[tensor, assignment[consumer]] - end_s[op]
                latest_end = min(latest_end, start_s[consumer] + slack_s[consumer] - delay_s)
        slack_s[op] = max(0.0, latest_end - end_s[op])
        next_start[assignment[op]] = start_s[op] + slack_s[op]
    return slack_s
