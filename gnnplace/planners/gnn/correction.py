"""Expected seconds of executions: the simulator's answer, corrected by the executions so far."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import nnls

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem

_CROSSINGS = 100.0
"""Number of crossings that weighs about as much in a fit as all seconds of a good placement."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One placement with its simulation."""

    assignment: IntArray  # [N]
    simulated_s: float
    """Simulated seconds, penalised where the placement does not fit."""
    fits: bool
    features: FloatArray
    """`[4]` simulated objective, tensors that cross to another device, their bytes, parallel work; in units of `Correction`."""

    @cached_property
    def key(self) -> bytes:
        """Bytes that identify the placement."""
        return self.assignment.tobytes()


def crossings(problem: Problem, assignment: IntArray) -> tuple[int, int]:
    """Number of tensors sent to another device, once per device that reads them, and their bytes."""
    graph, num_devices = problem.graph, problem.topology.num_devices
    producers, consumers = graph.edges
    target = assignment[consumers]
    crosses = target != assignment[producers]
    sent = np.unique(graph.consumer_tensor[crosses] * num_devices + target[crosses])
    return len(sent), int(graph.tensor_bytes[sent // num_devices].sum())


_MOST_UNEXPLAINED = 3.0  # logarithm of a factor of 20; beyond it an execution was disturbed


@dataclass(frozen=True)
class CorrectionConfig:
    """Weights of executions in the fit."""

    steadiness: float = 0.05
    """Weight, in executions, of the prior that simulated seconds are right up to a factor."""
    reach: float = 0.03
    """Share of ops on other devices at which the influence of an execution on another placement falls to 1/e; 0.01 and 0.03 differ
    less than seeds."""
    optimism: float = 0.5
    """Standard deviations of the unexplained factor by which a choice prefers placements unlike the executed ones. After 40 executions
    in distorted simulators of five graphs, two seeds: 0.3 +- 0.4 % less time than without, 0.6 % less than with 1.0."""
    noise: float = 0.3
    """Variance of one execution's error, relative to the variance that the sum of features leaves unexplained."""


class Correction:
    """Expected seconds of executions: a sum of features, times the unexplained factor of executions of similar placements.

    The sum has a factor of simulated seconds, one per segment that begins after a crossing, one per crossing byte, and one of
    parallel work, the seconds by which the work of all devices exceeds the objective: devices that compute at the same time slow
    each other. The factors are not negative and fitted to relative errors. In 135 executions of three networks, crossings and
    their bytes explained about as much as seconds by op type along the critical path, which need a schedule per estimate.
    The unexplained factor is kriging (Matheron 1963) of logarithms, which leads the search away from regions that the sum rates
    too well.
    """

    def __init__(self, problem: Problem, scale_s: float, config: CorrectionConfig) -> None:
        """Gives simulated seconds until `refit`; `scale_s` is the unit of seconds, about those of good placements."""
        self._problem, self._scale_s, self._config = problem, scale_s, config
        self._total_bytes = max(1.0, float(problem.graph.tensor_bytes.sum()))
        self._executed: list[tuple[Candidate, float]] = []
        self._factors: FloatArray = np.array([scale_s, 0.0, 0.0, 0.0])
        self._assignments: IntArray = np.zeros((0, problem.graph.num_ops), dtype=np.int64)
        self._unexplained: FloatArray = np.zeros(0)
        self._precision: FloatArray = np.zeros((0, 0))
        self._residual = 0.0

    def candidate(self, assignment: IntArray) -> Candidate:
        """Simulates an assignment `[N]` once."""
        # Moving the first op to its present device gives the estimate of the placement itself.
        batch = self._problem.estimator.evaluate_moves(assignment, np.zeros(1, dtype=np.int64), assignment[:1])
        objective = batch.makespan_s if self._problem.objective == "latency" else batch.period_s
        count, sent_bytes = crossings(self._problem, assignment)
        work_s = float(self._problem.op_time_s[np.arange(len(assignment)), assignment].sum())
        features = [objective[0] / self._scale_s, count / _CROSSINGS, sent_bytes / self._total_bytes]
        features.append(max(0.0, work_s - float(objective[0])) / self._scale_s if np.isfinite(work_s) else 0.0)
        return Candidate(
            assignment,
            float(self._problem.penalised_batch_s(batch)[0]),
            bool(batch.shortfall_bytes[0] <= 0),
            np.array(features),
        )

    def learn(self, candidate: Candidate, measured_s: float) -> None:
        """Notes an execution; it ignores placements that do not fit and failed executions."""
        if candidate.fits and 0.0 < measured_s < np.inf:
            self._executed.append((candidate, measured_s))

    def refit(self, rng: np.random.Generator) -> None:
        """Fits the sum to a bootstrap sample of the executions, so that with few executions fits, and choices, vary."""
        count = len(self._executed)
        if not count:
            return
        features = np.array([candidate.features for candidate, _ in self._executed])
        measured_s = np.array([seconds for _, seconds in self._executed])
        self._assignments = np.array([candidate.assignment for candidate, _ in self._executed])
        drawn = rng.integers(count, size=count)
        # In units of the typical ratio, so that the prior weighs the same in every problem.
        ratio_s = float(np.median(measured_s / np.maximum(features[:, 0], 1e-9)))
        rows = features[drawn] * (ratio_s / measured_s[drawn])[:, None]
        prior = np.sqrt(self._config.steadiness) * np.eye(rows.shape[1])
        factors, _ = nnls(np.concatenate([rows, prior]), np.concatenate([np.ones(count), prior[0]]))
        self._factors = ratio_s * np.maximum(factors, [1e-6, 0.0, 0.0, 0.0])  # more simulated seconds are never better
        explained = np.maximum(features @ self._factors, 1e-300)
        residual = np.clip(np.log(measured_s / explained), -_MOST_UNEXPLAINED, _MOST_UNEXPLAINED)
        likeness = np.array([self._likeness(row) for row in self._assignments])
        self._precision = np.linalg.inv(likeness + self._config.noise * np.eye(count)).astype(np.float64)
        self._unexplained, self._residual = self._precision @ residual, float(np.sqrt(np.mean(residual**2)))

    def promise_s(self, candidate: Candidate) -> float:
        """Expected seconds, less the more uncertain they are; choices compare these."""
        expected_s = self.estimate_s(candidate)
        if not len(self._unexplained) or not self._config.optimism:
            return expected_s
        return expected_s * float(np.exp(-self._config.optimism * self.uncertainty(candidate)))

    def uncertainty(self, candidate: Candidate) -> float:
        """Standard deviation of the logarithm of the seconds about their expectation: the kriging variance."""
        likeness = self._likeness(candidate.assignment)
        explained = float(likeness @ self._precision @ likeness)
        return self._residual * float(np.sqrt(max(0.0, 1.0 - explained)))

    def estimate_s(self, candidate: Candidate) -> float:
        """Expected seconds of an execution; penalised where the placement does not fit."""
        if not candidate.fits:
            return candidate.simulated_s / self._scale_s * float(self._factors[0])
        explained = float(self._factors @ candidate.features)
        if not len(self._unexplained):
            return explained
        return explained * float(np.exp(self._likeness(candidate.assignment) @ self._unexplained))

    def _likeness(self, assignment: IntArray) -> FloatArray:
        """`[R]` likeness to each executed placement, from 1 for the same placement to 0."""
        return np.asarray(np.exp(-(self._assignments != assignment).mean(axis=1) / self._config.reach))
