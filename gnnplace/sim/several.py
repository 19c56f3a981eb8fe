"""One placement of a model at several sizes of its inputs: the longest of its times, or their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import (
    DimsObjective,
    Evaluation,
    EvaluationBatch,
    EvaluatorKind,
    LocalSearch,
    Problem,
    Proposals,
    Walk,
    WalkRequest,
)
from gnnplace.graph.coarsen import Coarsening
from gnnplace.placement import Placement
from gnnplace.schedule import Schedule
from gnnplace.sim.simulator import GroupedSimulator, Simulator

__all__ = ["SeveralSimulators"]


@dataclass(frozen=True, eq=False)
class SeveralSimulators:
    """Evaluator and schedule estimator over simulators whose graphs have the same ops, with other times and bytes.

    Seconds are the longest (`worst`) or the mean of theirs. Memory has to suffice for each, so of bytes the most count. What
    cannot be combined, schedules and how moves are drawn, is that of the first.

    >>> from gnnplace.sim.example import diamond
    >>> short = diamond().evaluator
    >>> long = Simulator(short.graph, short.topology, 10.0 * short.op_time_s)
    >>> worst, mean = (SeveralSimulators((short, long), objective) for objective in ("worst", "mean"))
    >>> side_by_side = Placement(np.array([0, 0, 1, 1]))
    >>> [round(several.evaluate(side_by_side).makespan_s, 3) for several in (worst, mean)]
    [40.001, 22.001]
    >>> worst.evaluate_batch(np.array([[0, 0, 0, 0], [0, 0, 1, 1]])).makespan_s.round(3).tolist()
    [60.0, 40.001]
    >>> worst.evaluate_moves(np.zeros(4, dtype=np.int64), np.array([2]), np.array([1])).makespan_s.round(3).tolist()
    [40.002]
    >>> round(worst.schedule(side_by_side).makespan_s, 3)  # of the first shape
    4.001
    >>> from gnnplace.graph.coarsen import coarsen
    >>> worst.over_groups(coarsen(short.graph, max_groups=1, max_fraction=1.0)).evaluate(Placement(np.array([0]))).makespan_s
    60.0
    """

    members: tuple[Simulator, ...] | tuple[GroupedSimulator, ...]
    objective: DimsObjective

    @property
    def kind(self) -> EvaluatorKind:
        """Simulated."""
        return "simulated"

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement; sent bytes are those of the shape that takes longest, busy seconds too or the mean."""
        found = [member.evaluate(placement) for member in self.members]
        longest = max(found, key=lambda evaluation: evaluation.makespan_s)
        busy_s = (
            np.mean([evaluation.busy_s for evaluation in found], axis=0) if self.objective == "mean" else longest.busy_s
        )
        return replace(
            longest,
            makespan_s=float(self._combined([evaluation.makespan_s for evaluation in found])),
            period_s=float(self._combined([evaluation.period_s for evaluation in found])),
            busy_s=busy_s,
            peak_memory_bytes=np.max([evaluation.peak_memory_bytes for evaluation in found], axis=0),
            shortfall_bytes=np.max([evaluation.shortfall_bytes for evaluation in found], axis=0),
        )

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments, default priorities."""
        return self._combined_batch([member.evaluate_batch(assignments) for member in self.members])

    def schedule(self, placement: Placement) -> Schedule:
        """When everything runs at the first shape."""
        return self.members[0].schedule(placement)

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves, each from `assignment`; see `ScheduleEstimator`."""
        return self._combined_batch([member.evaluate_moves(assignment, ops, devices) for member in self.members])

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of the problem's units; see `ScheduleEstimator`.

        >>> from gnnplace.sim.example import diamond
        >>> problem = diamond()
        >>> search = SeveralSimulators((problem.evaluator, problem.evaluator), "worst").local_search(problem)
        >>> downhill = WalkRequest(np.zeros(4, dtype=np.int64), 20, 0.0, 0.0, Proposals(0.8, 0.5, 3.0))
        >>> walk = search.walk(downhill, np.random.default_rng(0))
        >>> round(walk.best_s, 3), search.ops_per_evaluation  # four ops, at two shapes
        (4.001, 8)
        """
        return _SeveralWalker(problem, self, self.members[0].local_search(problem))

    def over_groups(self, coarsening: Coarsening) -> SeveralSimulators:
        """For placements of groups of the ops; see `ScheduleEstimator`."""
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
    """Moves as the first simulator draws them, each simulated at all shapes."""

    problem: Problem
    several: SeveralSimulators
    first: LocalSearch

    @property
    def ops_per_evaluation(self) -> int:
        """Of all shapes together."""
        return self.first.ops_per_evaluation * len(self.several.members)

    def propose(self, assignment: IntArray, proposals: Proposals, rng: np.random.Generator) -> IntArray:
        """`[N]` after one random move; see `LocalSearch`."""
        return self.first.propose(assignment, proposals, rng)

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """Metropolis moves from an assignment; see `LocalSearch`."""
        current = best = request.assignment
        value_s = best_s = self._penalised_s(current)
        evaluations = request.evaluations if len(self.problem.movable_units) else 0
        improvements: list[tuple[int, float]] = []
        for evaluation in range(evaluations):
            moved = self.first.propose(current, request.proposals, rng)
            limit_s = value_s - _temperature_s(request, evaluation / evaluations) * np.log(1.0 - rng.random())
            after_s = self._penalised_s(moved)
            if after_s > limit_s or after_s == np.inf:
                continue
            current, value_s = moved, after_s
            if value_s < best_s:
                best, best_s = current, value_s
                improvements.append((evaluation + 1, value_s))
        return Walk(current, value_s, best, best_s, evaluations, tuple(improvements))

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        """One after the other, as each evaluation is one batch."""
        return [self.walk(*pair) for pair in zip(requests, rng.spawn(len(requests)), strict=True)]

    def _penalised_s(self, assignment: IntArray) -> float:
        return float(self.problem.penalised_batch_s(self.several.evaluate_batch(assignment[None, :]))[0])


def _temperature_s(request: WalkRequest, done: float) -> float:
    """Geometric, after a share of the evaluations; zero throughout where it is zero."""
    first_s, last_s = request.first_temperature_s, request.last_temperature_s
    return first_s * (last_s / first_s) ** done if first_s > 0 else 0.0
