"""Proposals that rebuild a stretch of a placement by list scheduling, compiled."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import upward_rank
from gnnplace.interruption import deferred_interrupts
from gnnplace.planners.classical.heft_portfolio import NOISE, TRANSFER_FACTORS, held_shares
from gnnplace.planners.classical.list_schedule import connected_mask, mean_costs, schedule_ops
from gnnplace.planners.classical.list_state import Machine, Work, list_machine, list_work

PULL = 1.5
"""Factor by which other devices look slower outside of the stretch."""
_LEAST_WINDOW = 2  # half of a stretch


class StretchTables(NamedTuple):
    """Tables of one problem for list schedules."""

    work: Work
    machine: Machine
    connected_time_s: FloatArray  # [N, D] on devices that exchange tensors with all others; infinite elsewhere
    mean_s: FloatArray  # [N]
    edge_s: FloatArray  # [E] mean seconds of a transfer
    topological_order: IntArray  # [N]
    position: IntArray  # [N] in that order
    successor_offsets: IntArray  # [N + 1]
    successors: IntArray
    transfer_factors: FloatArray
    memory_shares: FloatArray
    nothing_remains_s: FloatArray  # [N, D] zeros


def stretch_tables(problem: Problem) -> StretchTables:
    """The tables of a problem."""
    graph = problem.graph
    mean_s, edge_s = mean_costs(problem)
    connected = connected_mask(problem)[problem.unit_of_op]
    return StretchTables(
        work=list_work(problem, problem.action_mask),
        machine=list_machine(problem.topology, 1.0, 1.0, channels=False),
        connected_time_s=np.where(connected, problem.op_time_s, np.inf),
        mean_s=mean_s,
        edge_s=edge_s,
        topological_order=graph.topological_order,
        position=np.argsort(graph.topological_order),
        successor_offsets=graph.successor_offsets,
        successors=graph.successors,
        transfer_factors=np.array(TRANSFER_FACTORS),
        memory_shares=np.array([share for share, _ in held_shares(problem)]),
        nothing_remains_s=np.zeros_like(problem.op_time_s),
    )


@dataclass(eq=False)
class Rebuilds:
    """Placements that are rebuilt by list scheduling in a random stretch, as candidates for a start."""

    problem: Problem
    rng: np.random.Generator
    count: int
    """Placements from each."""

    def __post_init__(self) -> None:
        self._tables = stretch_tables(self.problem)

    def revisions(self, assignment: IntArray) -> Iterator[IntArray]:
        """Assignments `[N]` that differ from `assignment` in a stretch of random length, up to all ops."""
        widest = max(_LEAST_WINDOW, len(assignment) // 2)
        for log_window in self.rng.uniform(math.log(_LEAST_WINDOW), math.log(widest), self.count):
            with deferred_interrupts():
                rebuilt = rebuild(self._tables, assignment, int(math.exp(log_window)), PULL, self.rng)
            yield rebuilt


@njit(cache=True, nogil=True)
def rebuild(
    tables: StretchTables, assignment: IntArray, window: int, pull: float, rng: np.random.Generator
) -> IntArray:
    """`[N]` a list schedule that prefers the devices of `assignment` except in a random stretch of the topological order.

    Outside of the stretch of `2 * window + 1` ops, devices other than the present one look `pull` times slower.
    """
    num_ops, num_devices = tables.work.op_time_s.shape
    centre = int(rng.random() * num_ops)
    factor = tables.transfer_factors[int(rng.random() * len(tables.transfer_factors))]
    share = tables.memory_shares[int(rng.random() * len(tables.memory_shares))]
    channels = rng.random() < 0.5
    factors = np.empty((num_ops, num_devices))
    noisy_s = np.empty(num_ops)
    for op in range(num_ops):
        noisy_s[op] = tables.mean_s[op] * np.exp(0.5 * NOISE * rng.standard_normal())
        outside = abs(tables.position[op] - centre) > window
        for device in range(num_devices):
            factors[op, device] = np.exp(0.5 * NOISE * rng.standard_normal())
            if outside and device != assignment[op]:
                factors[op, device] *= pull
    rank = upward_rank(
        tables.topological_order, noisy_s, tables.successor_offsets, tables.successors, factor * tables.edge_s
    )
    falling = np.argsort(-rank[tables.topological_order], kind="mergesort")
    order = tables.topological_order[falling]
    base = tables.machine
    machine = Machine(
        share * base.limit_bytes, base.overhead_s, factor * base.segment_s, factor * base.intake_s_per_byte, base.route_offsets, factor * base.hop_latency_s,
        factor * base.hop_s_per_byte, base.hop_channel, base.num_channels, channels, base.live, base.memory_home, base.pooled, base.excludes,
    )  # fmt: skip
    work = _timed(tables.work, factors * tables.work.op_time_s)
    schedule = schedule_ops(order, tables.nothing_remains_s, work, machine)
    if not schedule[3]:
        connected = _timed(tables.work, factors * tables.connected_time_s)
        schedule = schedule_ops(order, tables.nothing_remains_s, connected, machine)
    return schedule[0]


@njit(cache=True, nogil=True)
def _timed(work: Work, op_time_s: FloatArray) -> Work:
    """The same work with other seconds per op and device."""
    return Work(
        work.unit_of_op, op_time_s, work.input_offsets, work.input_tensors, work.producer, work.num_bytes,
        work.unit_bytes, work.unit_weight_offsets, work.unit_weights, work.weight_bytes, work.output_bytes, work.workspace_bytes,
        work.readers,
    )  # fmt: skip
