"""One placement of a model evaluated at several input shapes: the longest or the mean makespan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Evaluation, EvaluationBatch, EvaluatorKind, Problem, SimulatedEvaluator, SingleOps
from gnnplace.graph.coarsen import Coarsening
from gnnplace.local_search import LocalSearch, Proposals, Walk, WalkRequest
from gnnplace.objectives import DimsObjective
from gnnplace.placement import Placement
from gnnplace.schedule import Schedule
from gnnplace.sim.simulator import GroupedSimulator, Simulator
from gnnplace.sim.walk import temperature_s


def over_shapes(
    members: tuple[Simulator, ...] | tuple[GroupedSimulator, ...], objective: DimsObjective
) -> SimulatedEvaluator:
    """The evaluator over one simulator per shape; a single simulator itself."""
    return members[0] if len(members) == 1 else SeveralSimulators(members, objective)


@dataclass(frozen=True, eq=False)
class SeveralSimulators:
    """Evaluator and schedule estimator over simulators of the same ops at several shapes, with other times and bytes.

    Seconds are the longest (`worst`) or the mean over the members; bytes are the most, since every shape must fit. Schedules
    and drawn moves are those of the first member.
    """

    kind: ClassVar[EvaluatorKind] = "simulated"
    members: tuple[Simulator, ...] | tuple[GroupedSimulator, ...]
    objective: DimsObjective

    @property
    def num_threads(self) -> int:
        """Threads of the first shape's simulator; see `ScheduleEstimator`."""
        return self.members[0].num_threads

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement.

        Sent bytes are those of the longest shape, busy seconds its own or the mean, and missing bytes those of the shape that lacks most.
        """
        found = [member.evaluate(placement) for member in self.members]
        longest = max(found, key=lambda evaluation: evaluation.makespan_s)
        lacking = max(found, key=lambda evaluation: float(evaluation.shortfall_bytes.sum()))
        mean = self.objective == "mean"
        return replace(
            longest,
            makespan_s=float(self._combined([evaluation.makespan_s for evaluation in found])),
            period_s=float(self._combined([evaluation.period_s for evaluation in found])),
            busy_s=np.mean([evaluation.busy_s for evaluation in found], axis=0) if mean else longest.busy_s,
            peak_memory_bytes=np.max([evaluation.peak_memory_bytes for evaluation in found], axis=0),
            shortfall_bytes=lacking.shortfall_bytes,
        )

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments, default priorities."""
        return self._combined_batch([member.evaluate_batch(assignments) for member in self.members])

    def schedule(self, placement: Placement) -> Schedule:
        """The schedule at the first shape."""
        return self.members[0].schedule(placement)

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves, each from `assignment`; see `ScheduleEstimator`."""
        return self._combined_batch([member.evaluate_moves(assignment, ops, devices) for member in self.members])

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of the problem's units; see `ScheduleEstimator`."""
        return _SeveralWalker(problem, self, self.members[0].local_search(problem))

    def over_ops(self, problem: Problem) -> SingleOps:
        """The problem of the same units over single ops at the first shape; see `ScheduleEstimator`."""
        return self.members[0].over_ops(problem)

    def over_groups(self, coarsening: Coarsening) -> SeveralSimulators:
        """The evaluator of groups of these ops; see `ScheduleEstimator`."""
        return SeveralSimulators(tuple(member.over_groups(coarsening) for member in self.members), self.objective)

    def _combined(self, seconds: Sequence[FloatArray] | Sequence[float]) -> FloatArray:
        return np.asarray((np.mean if self.objective == "mean" else np.max)(np.asarray(seconds), axis=0))

    def _combined_batch(self, found: Sequence[EvaluationBatch]) -> EvaluationBatch:
        return EvaluationBatch(
            self._combined([batch.makespan_s for batch in found]),
            self._combined([batch.period_s for batch in found]),
            np.max([batch.shortfall_bytes for batch in found], axis=0),
        )


@dataclass(frozen=True, eq=False)
class _SeveralWalker:
    """Random moves that the first simulator draws, each simulated at all shapes."""

    problem: Problem
    several: SeveralSimulators
    first: LocalSearch
    num_threads: int = field(default=1, init=False)

    @property
    def ops_per_evaluation(self) -> int:
        return self.first.ops_per_evaluation * len(self.several.members)

    def propose(self, assignment: IntArray, proposals: Proposals, rng: np.random.Generator) -> IntArray:
        return self.first.propose(assignment, proposals, rng)

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        current = best = request.assignment
        value_s = best_s = self._penalised_s(current)
        evaluations = request.evaluations if len(self.problem.movable_units) else 0
        improvements: list[tuple[int, float]] = []
        for evaluation in range(evaluations):
            moved = self.first.propose(current, request.proposals, rng)
            heat_s = temperature_s(request.first_temperature_s, request.last_temperature_s, evaluation / evaluations)
            limit_s = value_s - heat_s * np.log(1.0 - rng.random())
            after_s = self._penalised_s(moved)
            if after_s > limit_s or after_s == np.inf:
                continue
            current, value_s = moved, after_s
            if value_s < best_s:
                best, best_s = current, value_s
                improvements.append((evaluation + 1, value_s))
        return Walk(current, value_s, best, best_s, evaluations, tuple(improvements))

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        return [self.walk(*pair) for pair in zip(requests, rng.spawn(len(requests)), strict=True)]

    def _penalised_s(self, assignment: IntArray) -> float:
        return float(self.problem.penalised_batch_s(self.several.evaluate_batch(assignment[None, :]))[0])
