"""The placement problem, and the protocols of what evaluates, schedules and searches placements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr, frozen
from gnnplace.devices.topology import Topology
from gnnplace.difference import Difference
from gnnplace.graph.coarsen import Coarsening
from gnnplace.graph.op_graph import OpGraph
from gnnplace.graph.units import UnitGraph, colocated_units, unit_graph
from gnnplace.local_search import CompiledSimulator, LocalSearch
from gnnplace.objectives import Objective
from gnnplace.placement import Placement, allowed_mask, resident_bytes
from gnnplace.schedule import Schedule

EvaluatorKind = Literal["simulated", "measured"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The cost of one placement. An infeasible or failed placement is a result too: `feasible` is false, `failure` has the reason.

    >>> from gnnplace.sim.example import diamond
    >>> evaluation = diamond().evaluator.evaluate(Placement(np.array([0, 0, 1, 1])))
    >>> round(evaluation.makespan_s, 3), evaluation.period_s, evaluation.feasible, evaluation.transferred_bytes
    (4.001, 3.0, True, 16)
    """

    evaluator: EvaluatorKind
    makespan_s: float
    """Seconds of one step; infinite if the placement cannot run."""
    period_s: float
    """Seconds between pipelined steps, those of the busiest resource (a device's own, or a shared one) or channel."""
    peak_memory_bytes: IntArray  # [D] of a shared memory at each of its devices
    shortfall_bytes: IntArray  # [D] bytes above capacity, of a shared memory at its first device
    busy_s: FloatArray  # [D]
    transferred_bytes: int
    spread_s: float = 0.0
    """Half the width of the median's confidence interval, if measured."""
    repeats: int = 1
    failure: str = ""

    @property
    def feasible(self) -> bool:
        """True if the placement runs and fits in every device's memory."""
        return bool(np.isfinite(self.makespan_s)) and not self.shortfall_bytes.any() and not self.failure


@dataclass(frozen=True, eq=False)
class EvaluationBatch:
    """The costs of `B` placements, as arrays."""

    makespan_s: FloatArray  # [B] infinite if the placement cannot run
    period_s: FloatArray  # [B]
    shortfall_bytes: FloatArray  # [B] summed over devices; infinite if the placement cannot run


@runtime_checkable
class Evaluator(Protocol):
    """Maps placements to runtimes, by execution or by simulation."""

    @property
    def kind(self) -> EvaluatorKind:
        """Simulated or measured."""

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement."""

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments with default priorities."""


@runtime_checkable
class PairedEvaluator(Evaluator, Protocol):
    """An evaluator that can measure two placements against each other."""

    def difference(self, first: Placement, second: Placement) -> Difference:
        """The relative difference of the seconds of two placements, measured in turns.

        Raises:
            MeasurementFailed: one of them failed.
        """


@runtime_checkable
class ScheduleEstimator(Protocol):
    """Schedules and effects of moves, for features and lookahead; simulated even if rewards are measured."""

    @property
    def num_threads(self) -> int:
        """Threads that may work on the problem at once."""

    def schedule(self, placement: Placement) -> Schedule:
        """The whole schedule of one placement."""

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """The costs after `M` moves, each from `assignment` `[N]`: ops with `ops[m]` true move to `devices[m]`.

        `ops` is `[M, N]` boolean or `[M]` op indices; `devices` is `[M]`.
        """

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of the problem's units; the problem has this estimator's graph."""

    def over_groups(self, coarsening: Coarsening) -> SimulatedEvaluator:
        """The evaluator of placements of op groups, which still simulates op by op."""

    def over_ops(self, problem: Problem) -> SingleOps:
        """The problem of the same units over single ops; the problem has this estimator's graph."""


@runtime_checkable
class Compilable(Protocol):
    """A schedule estimator whose evaluations are single runs in compiled code."""

    def compiled(self, problem: Problem) -> CompiledSimulator | None:
        """The functions for the units of the problem; None where batches of its placements run on several threads."""


class SimulatedEvaluator(Evaluator, ScheduleEstimator, Protocol):
    """A simulator; it also gives the order of ops and the unmeasured figures (memory, busy time, bytes)."""


@dataclass(frozen=True, eq=False)
class Problem:
    """The choice of a device for each op of `graph` that minimises `objective`.

    The decisions are `U` units, each a colocation group or a free op. An assignment is always `[N]`, over ops.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> problem.num_units, problem.num_moves, bool(problem.action_mask.all()), problem.unit_of_op.tolist()
    (4, 4, True, [0, 1, 2, 3])
    >>> batch = problem.evaluator.evaluate_batch(np.array([[0, 0, 0, 0], [0, 0, 1, 1]]))
    >>> problem.penalised_batch_s(batch).round(3).tolist()  # both fit, so nothing is added
    [6.0, 4.001]
    >>> alone = problem.evaluator.evaluate(Placement(np.array([0, 0, 0, 0])))
    >>> problem.objective_s(alone), problem.penalised_s(alone)
    (6.0, 6.0)
    >>> from gnnplace.graph.coarsen import coarsen
    >>> problem.over_groups(coarsen(problem.graph, max_groups=2, max_fraction=1.0)).num_units
    2
    """

    graph: OpGraph
    topology: Topology
    op_time_s: FloatArray  # [N, D]
    evaluator: Evaluator
    estimator: ScheduleEstimator
    objective: Objective = "latency"
    grouped: bool = False
    """True if the ops are groups that the evaluator runs op by op; schedules of `graph` are then approximations."""
    clusters: IntArray | None = None
    """`[N]` equal numbers for ops of one unit, at least whole colocation groups; None: colocation alone decides."""
    executed_at_once: int = 1
    """Number of placements that the evaluator executes side by side, one per host."""

    def over_groups(self, coarsening: Coarsening) -> Problem:
        """The problem over groups of this problem's ops; its evaluations are simulated."""
        if coarsening.graph is self.graph:
            return self
        simulated = self.estimator.over_groups(coarsening)
        return Problem(
            coarsening.graph, self.topology, coarsening.total(self.op_time_s), simulated, simulated, self.objective,
            grouped=True,
        )  # fmt: skip

    @cached_property
    def over_ops(self) -> SingleOps:
        """The same choice over the ops that the evaluator simulates, at the first shape; the problem itself where ops are no groups."""
        return self.estimator.over_ops(self)

    @property
    def simulated(self) -> Problem:
        """The problem whose evaluations are those of the schedule estimator."""
        assert isinstance(self.estimator, Evaluator), "the schedule estimator can also evaluate placements"
        return replace(self, evaluator=self.estimator)

    @cached_property
    def unit_of_op(self) -> IntArray:
        """`[N]` unit of each op, units in topological order of their first op."""
        order = self.graph.topological_order
        key = colocated_units(self.graph) if self.clusters is None else self.clusters
        _, first, inverse = np.unique(key[order], return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        unit = np.empty(self.graph.num_ops, dtype=np.int64)
        unit[order] = rank[inverse]
        return frozen(unit, np.int64)

    @cached_property
    def num_units(self) -> int:
        """`U`."""
        return int(self.unit_of_op.max(initial=-1)) + 1

    @cached_property
    def unit_ops(self) -> tuple[IntArray, ...]:
        """`[U]` the ops of each unit."""
        offsets, ops = csr(self.unit_of_op, np.arange(self.graph.num_ops), self.num_units)
        return tuple(ops[begin:end] for begin, end in pairwise(offsets.tolist()))

    def unit_devices(self, assignments: IntArray) -> IntArray:
        """`[..., U]` device of each unit's first op in assignments `[..., N]`."""
        return assignments[..., self._first_op]

    @cached_property
    def _first_op(self) -> IntArray:
        return np.array([ops[0] for ops in self.unit_ops], dtype=np.int64)

    @cached_property
    def action_mask(self) -> BoolArray:
        """`[U, D]` true where the unit may run."""
        mask = np.ones((self.num_units, self.topology.num_devices), dtype=np.bool_)
        np.logical_and.at(mask, self.unit_of_op, allowed_mask(self.graph, self.topology) & np.isfinite(self.op_time_s))
        return mask

    @cached_property
    def unit_edges(self) -> IntArray:
        """`[2, E]` producing and consuming unit of the tensors between units; each pair once, in ascending order."""
        ends = np.stack([self.unit_of_op[ends] for ends in self.graph.edges])
        return frozen(np.unique(ends[:, ends[0] != ends[1]], axis=1), np.int64)

    @cached_property
    def unit_graph(self) -> UnitGraph:
        """The units, their neighbours in either direction, and the devices that each may run on."""
        return unit_graph(self.unit_edges, self.action_mask)

    @cached_property
    def movable_units(self) -> IntArray:
        """Units that may run on more than one device."""
        return frozen(np.flatnonzero(self.action_mask.sum(axis=1) > 1), np.int64)

    @cached_property
    def unit_time_s(self) -> FloatArray:
        """`[U, D]` seconds of each unit; infinite where the unit may not run."""
        seconds = np.zeros((self.num_units, self.topology.num_devices))
        np.add.at(seconds, self.unit_of_op, self.op_time_s)
        return frozen(np.where(self.action_mask, seconds, np.inf), np.float64)

    @cached_property
    def single_device_assignments(self) -> IntArray:
        """`[K, N]`, `K <= D`: one assignment per device, the most promising first; equal devices give one.

        A unit that may not run on the device goes to the fastest device that may run it. The order is by missing weight
        memory, then by the seconds of all ops one after the other.
        """
        rows: list[tuple[int, float, int, IntArray]] = []
        seen: set[object] = set()
        for device in range(self.topology.num_devices):
            units = np.where(self.action_mask[:, device], device, self.fastest_near(device))
            equal = (self.op_time_s[:, device].tobytes(), int(self.topology.memory_bytes[device]))
            key = equal if (units == device).all() else device
            if key in seen:
                continue
            seen.add(key)
            seconds = float(self.unit_time_s[np.arange(self.num_units), units].sum())
            assignment = units[self.unit_of_op]
            memory = self.topology.memory_home[assignment]
            missing = resident_bytes(self.graph, memory, self.topology.num_devices) - self.topology.memory_bytes
            rows.append((int(np.maximum(0, missing).sum()), seconds, device, assignment))
        rows.sort(key=lambda row: row[:3])
        return frozen([row[3] for row in rows], np.int64).reshape(len(rows), self.graph.num_ops)

    def fastest_near(self, device: int) -> IntArray:
        """`[U]` the fastest device of each unit among those that exchange tensors with `device`, else among all."""
        near = np.where(self.topology.exchanges[device][None, :], self.unit_time_s, np.inf)
        apart = ~np.isfinite(near).any(axis=1)
        near[apart] = self.unit_time_s[apart]
        return np.asarray(np.argmin(near, axis=1))

    @cached_property
    def num_moves(self) -> int:
        """Number of single-unit moves: pairs of a unit and another device that it may run on."""
        return int(np.maximum(0, self.action_mask.sum(axis=1) - 1).sum())

    @cached_property
    def worst_case_s(self) -> float:
        """Upper bound of all feasible schedules: each op on its slowest device, each tensor to every device, one by one.

        The bound is a billionth larger, since a schedule may add the same seconds in another order.
        """
        ops_s = float(np.where(np.isfinite(self.op_time_s), self.op_time_s, 0.0).max(axis=1, initial=0.0).sum())
        links, sent = self.topology.links, float(self.graph.tensor_bytes.sum())
        hops_s = sum(link.latency_s * self.graph.num_tensors + sent / link.bandwidth_bytes_per_s for link in links)
        overhead_s = float((self.topology.dispatch_overhead_s + self.topology.segment_overhead_s).max())
        copies_s = hops_s + float((sent / self.topology.intake_bandwidth_bytes_per_s).max())
        return (1.0 + 1e-9) * (ops_s + copies_s * self.topology.num_devices + overhead_s * self.graph.num_ops)

    def compiled_simulator(self) -> CompiledSimulator | None:
        """The evaluator's functions for compiled loops; None where evaluations are no single simulations of one thread."""
        estimator: object = self.estimator
        if estimator is self.evaluator and isinstance(estimator, Compilable):
            return estimator.compiled(self)
        return None

    @property
    def num_threads(self) -> int:
        """Threads that may work on the problem at once."""
        return self.estimator.num_threads

    @cached_property
    def local_search(self) -> LocalSearch:
        """Simulated random moves of the units."""
        return self.estimator.local_search(self)

    @cached_property
    def penalty(self) -> tuple[float, float]:
        """Seconds added to a placement that does not fit, and the shortfall in bytes that adds them once more."""
        total_bytes = max(1.0, float(self.graph.total_weight_bytes + self.graph.tensor_bytes.sum()))
        return max(self.worst_case_s, 1e-9), total_bytes

    def objective_s(self, evaluation: Evaluation) -> float:
        """Seconds of the objective, without a penalty for memory."""
        return evaluation.makespan_s if self.objective == "latency" else evaluation.period_s

    def penalised_s(self, evaluation: Evaluation) -> float:
        """Seconds that a search minimises: the objective, plus a penalty that grows with the memory shortfall."""
        shortfall = np.inf if evaluation.failure else float(evaluation.shortfall_bytes.sum())
        return float(self.objective_s(evaluation) + (self._penalty_s(shortfall) if shortfall > 0 else 0.0))

    def penalised_batch_s(self, batch: EvaluationBatch) -> FloatArray:
        """`penalised_s` of `B` evaluations."""
        objective_s = batch.makespan_s if self.objective == "latency" else batch.period_s
        return objective_s + np.where(batch.shortfall_bytes > 0, self._penalty_s(batch.shortfall_bytes), 0.0)

    def _penalty_s(self, shortfall_bytes: Any) -> Any:
        """Seconds that put a placement above every feasible one."""
        seconds, total_bytes = self.penalty
        return (1.0 + shortfall_bytes / total_bytes) * seconds


class SingleOps(NamedTuple):
    """A problem over single ops with the units of a problem over groups of them.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> single, group_of_op = problem.over_ops
    >>> single is problem, group_of_op.tolist()
    (True, [0, 1, 2, 3])
    """

    problem: Problem
    group_of_op: IntArray  # [N] op of the problem over groups
