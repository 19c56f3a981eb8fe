"""Tables of a problem, and of the schedule that lies ahead, for schedules whose decisions the policy makes."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray, csr
from gnnplace.env.timing import Timing
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.list_schedule import connected_mask, mean_costs, rank_order
from gnnplace.planners.classical.list_state import Machine, Work, list_machine, list_work
from gnnplace.planners.classical.packed import needed_bytes
from gnnplace.policy.features import edge_tensors
from gnnplace.policy.network import PolicyInputs
from gnnplace.policy.pair_features import PAIR, pair_features

MEMORY_SHARES = (1.0, 0.85, 0.7, 0.55, 0.4, 0.3)
"""Shares of scarce memories that schedules may fill, sample by sample."""


class Neighbours(NamedTuple):
    """Units that a unit reads from or is read by, with the bytes."""

    offsets: IntArray  # [U + 1]
    units: IntArray
    num_bytes: FloatArray


class Scales(NamedTuple):
    """What features are relative to."""

    op_s: float
    """Mean seconds of an op."""
    unit_s: float
    all_ops_s: float
    """Sum of the ops' mean seconds."""
    even_load_s: float
    """Seconds of all units, each on its fastest device, spread evenly over the devices by their speed."""
    transfer_to_compute: float
    pressure: float
    """Memory that the model needs as a share of all scarce memory; 0 where none is scarce."""
    throughput: float


class DecisionTables(NamedTuple):
    """Arrays of one problem."""

    order: IntArray  # [N] by falling upward rank
    work: Work
    machine: Machine
    mean_s: FloatArray  # [N]
    tail_s: FloatArray  # [N] mean seconds of the longest path from the end of each op
    unit_s: FloatArray  # [U, D]
    producers: Neighbours
    consumers: Neighbours
    size: FloatArray  # [U] ops
    latency_s: FloatArray  # [D, D]
    per_byte_s: FloatArray  # [D, D]
    needed_bytes: FloatArray  # [U] weights, and outputs that are live when the model needs most memory
    capacity: FloatArray  # [D] memory as a share of what the model needs, at most 2
    scarce: IntArray  # first devices of memories that cannot hold the model
    scales: Scales


class Reference(NamedTuple):
    """What lies ahead of a decision: a complete schedule, or static estimates where there is none."""

    devices: IntArray  # [U] -1 where there is no complete schedule
    free: BoolArray  # [U] units that are decided anew
    tail_s: FloatArray  # [N] seconds from the end of each op to the end of the step
    slack: FloatArray  # [U] as a share of the makespan
    load: FloatArray  # [D] busy seconds as a share of the makespan
    span_s: FloatArray  # [1] the makespan
    pair: Float32Array  # [U, D, F] features of the complete schedule


def decision_tables(problem: Problem) -> DecisionTables:
    """The tables of a problem; transfers wait for each other on their channels, and live tensors count where memory is limited."""
    graph, topology, units = problem.graph, problem.topology, problem.num_units
    mean_s, edge_s = mean_costs(problem)
    total_bytes = graph.total_weight_bytes + graph.tensor_bytes.sum()
    is_limited = bool((topology.memory_bytes < total_bytes).any())
    unit_bytes = needed_bytes(problem)
    capacity = topology.memory_bytes[topology.memory_home] / max(1.0, float(unit_bytes.sum()))
    scarce = np.flatnonzero((capacity < 1.0) & (topology.memory_home == np.arange(topology.num_devices)))
    return DecisionTables(
        order=rank_order(problem),
        work=list_work(problem, connected_mask(problem)),
        machine=list_machine(topology, 1.0, 1.0, channels=True, live=is_limited),
        mean_s=mean_s,
        tail_s=np.maximum(0.0, graph.upward_rank(mean_s, edge_s) - mean_s),
        unit_s=problem.unit_time_s,
        **_neighbours(problem),
        size=np.bincount(problem.unit_of_op, minlength=units).astype(np.float64),
        latency_s=topology.route_latency_s,
        per_byte_s=topology.route_s_per_byte,
        needed_bytes=unit_bytes,
        capacity=np.minimum(2.0, capacity),
        scarce=scarce,
        scales=_scales(problem, mean_s, edge_s, float(capacity[scarce].sum()) if len(scarce) else np.inf),
    )


def for_sample(tables: DecisionTables, number: int) -> DecisionTables:
    """The tables with which sample `number` of a group is built: each may fill another share of the memories that are scarce.

    What is decided later needs memory too, and a schedule's estimate of its peaks is not exact.
    """
    share = MEMORY_SHARES[number % len(MEMORY_SHARES)] if len(tables.scarce) else 1.0
    return tables._replace(machine=tables.machine._replace(limit_bytes=share * tables.machine.limit_bytes))


def _neighbours(problem: Problem) -> dict[str, Neighbours]:
    edge_bytes, _ = edge_tensors(problem)
    producer, consumer = problem.unit_edges

    def listed(by: IntArray, others: IntArray) -> Neighbours:
        offsets, edges = csr(by, np.arange(len(by)), problem.num_units)
        return Neighbours(offsets, others[edges], edge_bytes[edges])

    return {"producers": listed(consumer, producer), "consumers": listed(producer, consumer)}


def _scales(problem: Problem, mean_s: FloatArray, edge_s: FloatArray, scarce_capacity: float) -> Scales:
    mask = problem.action_mask
    unit_s = np.where(mask, problem.unit_time_s, 0.0)
    fastest_s = problem.unit_time_s.min(axis=1)
    device_s = unit_s.sum(axis=0) / np.maximum(1, mask.sum(axis=0))  # mean over the units that may run there
    speeds = float((fastest_s.mean() / np.maximum(device_s, 1e-9 * fastest_s.mean() + 1e-30))[mask.any(axis=0)].sum())
    return Scales(
        op_s=max(float(mean_s.mean()), 1e-12),
        unit_s=max(float((unit_s.sum(axis=1) / mask.sum(axis=1)).mean()), 1e-12),
        all_ops_s=max(float(mean_s.sum()), 1e-12),
        even_load_s=max(float(fastest_s.sum()) / max(1.0, speeds), 1e-12),
        transfer_to_compute=float(edge_s.mean() / max(mean_s.mean(), 1e-12)) if len(edge_s) else 0.0,
        pressure=min(2.0, 1.0 / max(1e-9, scarce_capacity)),
        throughput=float(problem.objective == "throughput"),
    )


def no_reference(tables: DecisionTables) -> Reference:
    """The static estimates with which a schedule is built from nothing."""
    units, devices = tables.unit_s.shape
    longest_s = float((tables.tail_s + tables.mean_s).max(initial=0.0))
    return Reference(
        np.full(units, -1), np.ones(units, dtype=np.bool_), tables.tail_s.copy(), np.zeros(units), np.zeros(devices),
        np.array([max(longest_s, tables.scales.even_load_s)]), np.zeros((units, devices, len(PAIR)), dtype=np.float32),
    )  # fmt: skip


def reference_to(problem: Problem, tables: DecisionTables, inputs: PolicyInputs, timing: Timing) -> Reference:
    """The first schedule of `timing` as a reference in which all units are free."""
    reference, units = no_reference(tables), np.arange(problem.num_units)
    pair, _, _ = pair_features(
        inputs.features, inputs.tables, timing, np.zeros_like(units), units, problem.topology.memory_bytes, 0.0
    )
    write_reference(reference, problem.unit_of_op, problem.unit_devices(timing.assignment[0]), timing, pair)
    return reference


@njit(cache=True, nogil=True, error_model="numpy")
def write_reference(
    reference: Reference, unit_of_op: IntArray, devices: IntArray, timing: Timing, pair: Float32Array
) -> None:
    """Makes the first schedule of `timing`, of the units' devices `[U]`, the reference; `pair` `[U, D, F]` are its pair features."""
    makespan_s = max(timing.makespan_s[0], 1e-12)
    reference.devices[:] = devices
    reference.slack[:] = np.inf
    for op in range(len(unit_of_op)):
        unit = unit_of_op[op]
        reference.tail_s[op] = max(0.0, makespan_s - timing.end_s[0, op] - timing.slack_s[0, op])
        reference.slack[unit] = min(reference.slack[unit], timing.slack_s[0, op] / makespan_s)
    reference.load[:] = timing.busy_s[0] / makespan_s
    reference.span_s[0] = makespan_s
    reference.pair[:] = pair
