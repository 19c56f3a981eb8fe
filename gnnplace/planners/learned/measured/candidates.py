"""Placements that may be executed, and what of them tells how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem

__all__ = ["Candidate", "Candidates"]

_CROSSINGS = 100.0
"""As many crossings weigh in a fit about as much as all seconds of a good placement."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One placement, simulated."""

    assignment: IntArray  # [N]
    simulated_s: float
    """Penalised, where it does not fit."""
    fits: bool
    features: FloatArray
    """`[3]` simulated objective, tensors that cross to another device, their bytes; in units of `Candidates`."""

    @cached_property
    def key(self) -> bytes:
        """Equal for the same placement."""
        return self.assignment.tobytes()


@dataclass(frozen=True, eq=False)
class Candidates:
    """Those of one problem.

    >>> from gnnplace.sim.example import diamond
    >>> candidate = Candidates(diamond(), scale_s=4.0).of(np.array([0, 0, 1, 1]))
    >>> round(candidate.simulated_s, 3), candidate.fits, candidate.features.round(3).tolist()
    (4.001, True, [1.0, 0.02, 0.667])
    """

    problem: Problem
    scale_s: float
    """The unit of seconds: about what good placements take in the simulator."""

    def of(self, assignment: IntArray) -> Candidate:
        """An assignment `[N]`, simulated once."""
        # The move of the first op to where it is: the estimator's word on the placement itself.
        batch = self.problem.estimator.evaluate_moves(assignment, np.zeros(1, dtype=np.int64), assignment[:1])
        objective = batch.makespan_s if self.problem.objective == "latency" else batch.period_s
        count, sent_bytes = crossings(self.problem, assignment)
        return Candidate(
            assignment,
            float(self.problem.penalised_batch_s(batch)[0]),
            bool(batch.shortfall_bytes[0] <= 0),
            np.array([objective[0] / self.scale_s, count / _CROSSINGS, sent_bytes / self._total_bytes]),
        )

    @cached_property
    def _total_bytes(self) -> float:
        return max(1.0, float(self.problem.graph.tensor_bytes.sum()))


def crossings(problem: Problem, assignment: IntArray) -> tuple[int, int]:
    """How many tensors are sent to another device, once per device that reads them, and their bytes.

    >>> from gnnplace.sim.example import diamond
    >>> crossings(diamond(), np.array([0, 1, 1, 1])), crossings(diamond(), np.array([0, 0, 1, 1]))
    ((1, 8), (2, 16))
    """
    graph, num_devices = problem.graph, problem.topology.num_devices
    producers, consumers = graph.edges
    target = assignment[consumers]
    crosses = target != assignment[producers]
    sent = np.unique(graph.consumer_tensor[crosses] * num_devices + target[crosses])
    return len(sent), int(graph.tensor_bytes[sent // num_devices].sum())
