"""Placements that may be executed, and what of them tells how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem

__all__ = ["Candidate", "Candidates", "Correction", "CorrectionConfig"]


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


_MOST_UNEXPLAINED = 3.0  # a factor of 20: beyond, an execution was disturbed


@dataclass(frozen=True)
class CorrectionConfig:
    """How far executions are believed."""

    steadiness: float = 0.05
    """Weight, in executions, of the belief that simulated seconds are right up to a factor."""
    reach: float = 0.03
    """Share of ops that are elsewhere at which an execution says 1/e as much of another placement; 0.01 and
    0.03 differ less than seeds."""
    noise: float = 0.3
    """Variance of one execution's error, in that of what the sum of features leaves unexplained."""


class Correction:
    """Expected seconds of executions: a sum of features, times what executions of alike placements leave unexplained.

    The factors of the sum are not negative and fitted to relative errors. In 135 executions of three networks, crossings and
    their bytes explained about as much as seconds by op type along the critical path, which take a schedule per estimate.
    The rest is kriging (Matheron 1963) of logarithms, so that a region that the sum likes wrongly is not tried for ever.

    >>> from gnnplace.planners.gnn.correction import Candidates
    >>> from gnnplace.sim.example import diamond
    >>> alone, apart = (Candidates(diamond(), 6.0).of(np.array(devices)) for devices in ([0, 0, 0, 0], [0, 0, 1, 1]))
    >>> correction = Correction(6.0, CorrectionConfig())
    >>> [round(correction.estimate_s(candidate), 3) for candidate in (alone, apart)]  # as simulated
    [6.0, 4.001]
    >>> correction.learn(alone, measured_s=12.0)
    >>> correction.refit(np.random.default_rng(0))
    >>> [round(correction.estimate_s(candidate), 3) for candidate in (alone, apart)]  # twice as long
    [12.0, 8.002]
    """

    def __init__(self, scale_s: float, config: CorrectionConfig) -> None:
        """Simulated seconds as they are; `scale_s` is the candidates' unit."""
        self._config, self._scale_s = config, scale_s
        self._factors: FloatArray = np.array([scale_s, 0.0, 0.0])
        self._features = np.zeros((0, 3))
        self._measured_s: FloatArray = np.zeros(0)
        self._assignments: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._unexplained: FloatArray = np.zeros(0)

    def learn(self, candidate: Candidate, measured_s: float) -> None:
        """Notes an execution; what does not fit, or failed, says nothing."""
        if not candidate.fits or not 0.0 < measured_s < np.inf:
            return
        known = self._assignments.reshape(-1, len(candidate.assignment))
        self._assignments = np.concatenate([known, candidate.assignment[None]])
        self._features = np.concatenate([self._features, candidate.features[None]])
        self._measured_s = np.append(self._measured_s, measured_s)

    def refit(self, rng: np.random.Generator) -> None:
        """Fits the sum to executions drawn with replacement, so that where little is known fits differ and what is tried, too."""
        count = len(self._measured_s)
        if not count:
            return
        drawn = rng.integers(count, size=count)
        # In units of the typical ratio, so that the belief weighs the same in every problem.
        ratio_s = float(np.median(self._measured_s / np.maximum(self._features[:, 0], 1e-9)))
        rows = self._features[drawn] * (ratio_s / self._measured_s[drawn])[:, None]
        belief = np.sqrt(self._config.steadiness) * np.eye(rows.shape[1])
        solved, _ = nnls(np.concatenate([rows, belief]), np.concatenate([np.ones(count), belief[0]]))
        self._factors = ratio_s * np.maximum(solved, [1e-6, 0.0, 0.0])  # more simulated seconds are never better
        explained = np.maximum(self._features @ self._factors, 1e-300)
        residual = np.clip(np.log(self._measured_s / explained), -_MOST_UNEXPLAINED, _MOST_UNEXPLAINED)
        alike = np.array([self._likeness(row) for row in self._assignments])
        self._unexplained = np.linalg.solve(alike + self._config.noise * np.eye(count), residual)

    def estimate_s(self, candidate: Candidate) -> float:
        """Seconds that an execution is expected to take; penalised where the placement does not fit."""
        if not candidate.fits:
            return candidate.simulated_s / self._scale_s * float(self._factors[0])
        explained = float(self._factors @ candidate.features)
        if not len(self._unexplained):
            return explained
        return explained * float(np.exp(self._likeness(candidate.assignment) @ self._unexplained))

    def _likeness(self, assignment: IntArray) -> FloatArray:
        """`[R]` from 1 for the same placement to 0, of each that was executed."""
        return np.asarray(np.exp(-(self._assignments != assignment).mean(axis=1) / self._config.reach))
