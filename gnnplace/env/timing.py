"""A problem and the schedules of several placements as plain arrays: when ops run and tensors arrive, and slack."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr, frozen
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement


class UnitTables(NamedTuple):
    """Static arrays of one problem. A unit is a colocation group or a free op; its ops move together."""

    unit_of_op: IntArray  # [N]
    unit_offsets: IntArray  # [U + 1]
    unit_ops: IntArray  # [N] ops grouped by unit
    op_time_s: FloatArray  # [N, D] infinite where the op cannot run
    unit_time_s: FloatArray  # [U, D]
    topological_position: IntArray  # [N]
    unit_memory_bytes: FloatArray  # [U] resident, each shared weight split evenly among its consumers
    input_offsets: IntArray  # [N + 1]
    input_tensors: IntArray
    output_offsets: IntArray  # [N + 1]
    tensor_producer: IntArray  # [T]
    tensor_bytes: FloatArray  # [T]
    consumer_offsets: IntArray  # [T + 1]
    consumers: IntArray
    route_latency_s: FloatArray  # [D, D] summed over the hops; infinite where there is no route
    route_s_per_byte: FloatArray  # [D, D]
    excludes: BoolArray  # [D, D] true where two devices share a resource
    uses_resource: FloatArray  # [D, R] 1 where a device uses the resource
    memory_home: IntArray  # [D] the first device of each device's memory pool


def unit_tables(problem: Problem) -> UnitTables:
    """The arrays of a problem."""
    graph = problem.graph
    unit_offsets, unit_ops = csr(problem.unit_of_op, np.arange(graph.num_ops), problem.num_units)
    op_bytes, sharers = graph.memory_bytes.astype(np.float64), np.diff(graph.weight_offsets)
    np.add.at(op_bytes, graph.weight_consumers, np.repeat(graph.weight_bytes / np.maximum(sharers, 1), sharers))
    return UnitTables(
        unit_of_op=problem.unit_of_op,
        unit_offsets=unit_offsets,
        unit_ops=unit_ops,
        op_time_s=frozen(problem.op_time_s, np.float64),
        unit_time_s=problem.unit_time_s,
        topological_position=np.argsort(graph.topological_order),
        unit_memory_bytes=frozen(np.bincount(problem.unit_of_op, op_bytes, problem.num_units), np.float64),
        input_offsets=graph.input_offsets,
        input_tensors=graph.input_tensors,
        output_offsets=graph.output_offsets,
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes.astype(np.float64),
        consumer_offsets=graph.consumer_offsets,
        consumers=graph.consumers,
        route_latency_s=problem.topology.route_latency_s,
        route_s_per_byte=problem.topology.route_s_per_byte,
        excludes=problem.topology.excludes,
        uses_resource=problem.topology.uses_resource.astype(np.float64),
        memory_home=problem.topology.memory_home,
    )


class Timing(NamedTuple):
    """The schedules of `B` placements, as arrays that `refresh` overwrites row by row."""

    assignment: IntArray  # [B, N]
    start_s: FloatArray  # [B, N]
    end_s: FloatArray  # [B, N]
    slack_s: FloatArray  # [B, N] how much later the op could end without changing the makespan
    arrival_s: FloatArray  # [B, T, D] when a tensor is on a device; infinite where it never is
    busy_s: FloatArray  # [B, D] of the busiest resource of each device, by any device
    peak_memory_bytes: FloatArray  # [B, D]
    makespan_s: FloatArray  # [B]


def empty_timing(problem: Problem, num_placements: int) -> Timing:
    """Arrays for the schedules of `B` placements."""
    ops, tensors, devices = problem.graph.num_ops, problem.graph.num_tensors, problem.topology.num_devices
    per_op, per_device = (num_placements, ops), (num_placements, devices)
    return Timing(
        np.zeros(per_op, dtype=np.int64), np.zeros(per_op), np.zeros(per_op), np.zeros(per_op),
        np.zeros((num_placements, tensors, devices)), np.zeros(per_device), np.zeros(per_device), np.zeros(num_placements),
    )  # fmt: skip


def refresh(problem: Problem, tables: UnitTables, timing: Timing, row: int, assignment: IntArray) -> None:
    """Writes the estimator's schedule of `assignment` `[N]` to one row; this counts as no evaluation."""
    schedule = problem.estimator.schedule(Placement(assignment))
    transfers = schedule.transfer_tensor, schedule.transfer_target, schedule.transfer_end_s
    arrival_s = arrivals(tables, assignment, schedule.end_s, transfers)
    write_times(tables, timing, row, (assignment, schedule.start_s, schedule.end_s, arrival_s), schedule.makespan_s)
    timing.peak_memory_bytes[row] = schedule.peak_memory_bytes


def write_times(
    tables: UnitTables,
    timing: Timing,
    row: int,
    times: tuple[IntArray, FloatArray, FloatArray, FloatArray],
    makespan_s: float,
) -> None:
    """Writes all of a schedule but its memory to one row: devices, starts and ends `[N]`, arrivals `[T, D]`, and what follows."""
    assignment, start_s, end_s, arrival_s = times
    order = np.lexsort((tables.topological_position, end_s, start_s))
    timing.assignment[row], timing.start_s[row], timing.end_s[row], timing.arrival_s[row] = times
    timing.slack_s[row] = slack(tables, assignment, start_s, end_s, arrival_s, order, makespan_s)
    device_s = np.bincount(assignment, weights=end_s - start_s, minlength=timing.busy_s.shape[1])
    timing.busy_s[row] = (tables.uses_resource * (device_s @ tables.uses_resource)).max(axis=1)
    timing.makespan_s[row] = makespan_s


def tail_s(timing: Timing) -> FloatArray:
    """`[B, N]` seconds from the latest start of each op that keeps the makespan to the end of the step."""
    return timing.makespan_s[:, None] - timing.start_s - timing.slack_s


@njit(cache=True, nogil=True)
def arrivals(
    tables: UnitTables, assignment: IntArray, end_s: FloatArray, transfers: tuple[IntArray, IntArray, FloatArray]
) -> FloatArray:
    """`[T, D]` the producer's end on its own device, the end of the last hop on others."""
    tensors, devices = len(tables.tensor_producer), tables.op_time_s.shape[1]
    arrival_s = np.full((tensors, devices), -1.0)
    transfer_tensor, transfer_target, transfer_end_s = transfers
    for row in range(len(transfer_tensor)):
        tensor, target = transfer_tensor[row], transfer_target[row]
        arrival_s[tensor, target] = max(arrival_s[tensor, target], transfer_end_s[row])
    for tensor in range(tensors):
        producer = tables.tensor_producer[tensor]
        arrival_s[tensor, assignment[producer]] = end_s[producer]
        for device in range(devices):
            if arrival_s[tensor, device] < 0.0:
                arrival_s[tensor, device] = np.inf
    return arrival_s


@njit(cache=True, nogil=True)
def slack(
    tables: UnitTables,
    assignment: IntArray,
    start_s: FloatArray,
    end_s: FloatArray,
    arrival_s: FloatArray,
    order: IntArray,
    makespan_s: float,
) -> FloatArray:
    """`[N]` latest end that keeps the makespan, minus the end; the order on resources and transfer delays stay as they are."""
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
        latest_start = start_s[op] + slack_s[op]
        next_start[assignment[op]] = latest_start
        for device in range(len(next_start)):
            if tables.excludes[assignment[op], device]:
                next_start[device] = min(next_start[device], latest_start)
    return slack_s
