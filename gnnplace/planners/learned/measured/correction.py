"""What executions say of simulated seconds: how many real ones they are, what crossings add, and what is off nearby."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.planners.learned.measured.candidates import Candidate

__all__ = ["Correction", "CorrectionConfig"]

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

    >>> from gnnplace.planners.learned.measured.candidates import Candidates
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
