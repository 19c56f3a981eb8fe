"""Corrections of simulated seconds that learn from executions, compared on placements that they have not seen.

All of them are fitted to four fifths of the executions of a model and predict the last fifth, for each fifth in turn. `scaled` is
one factor for the model; `corrected` is the correction of `gnn`; `residual` is ridge regression of the logarithm of measured over
simulated seconds on segments, crossings by op type and computing beside other devices by op type. `residual_pooled` shares the
slopes of that regression with the executions of other models; every model keeps its own mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph
from gnnplace.planners.gnn.correction import Correction, CorrectionConfig, crossing_tensors
from gnnplace.schedule import Schedule

FOLDS = 5
_COUNTED_S = 1e-4
"""Seconds that one segment or crossing counts for, so that all features are fractions of the step."""
_PENALTIES = tuple(10.0 ** np.arange(-3, 4))


@dataclass(frozen=True, eq=False)
class Executions:
    """Executed placements of one model."""

    features: Sequence[Mapping[str, float]]
    """Features of each placement by name; a missing one is 0."""
    simulated_s: FloatArray  # [P]
    measured_s: FloatArray  # [P]
    """Measured ratio to a device, times the simulated seconds of that device."""

    @property
    def residual(self) -> FloatArray:
        """`[P]` logarithms of measured over simulated seconds."""
        return np.asarray(np.log(self.measured_s / self.simulated_s))


def folds(count: int, seed: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Positions to fit and to predict, for each of `FOLDS` random parts."""
    for part in np.array_split(np.random.default_rng(seed).permutation(count), FOLDS):
        yield np.setdiff1d(np.arange(count), part), part


def residual_features(graph: OpGraph, schedule: Schedule, num_segments: int, beside_s: FloatArray) -> dict[str, float]:
    """Features of one placement, relative to its seconds: segments, and by op type crossings and seconds beside other devices.

    `beside_s` `[N]` are the seconds of each op during which other devices compute.
    """
    sent = crossing_tensors(graph, schedule.assignment)
    types, unit = np.array(graph.op_types), _COUNTED_S / schedule.makespan_s
    found = {"segments": num_segments * unit}
    for kind, count in zip(*np.unique(types[graph.tensor_producer[sent]], return_counts=True), strict=True):
        found[f"crossing {kind}"] = float(count) * unit
    for kind in np.unique(types[beside_s > 0]):
        found[f"beside {kind}"] = float(beside_s[types == kind].sum() / schedule.makespan_s)
    return found


def seconds_beside(schedule: Schedule, num_devices: int) -> FloatArray:
    """`[N]` seconds of each op during which other devices compute, summed over these devices."""
    beside_s = np.zeros(len(schedule.start_s))
    for device in range(num_devices):
        mine = np.flatnonzero(schedule.assignment == device)
        if not len(mine):
            continue
        order = mine[np.argsort(schedule.start_s[mine], kind="stable")]
        start_s, end_s = schedule.start_s[order], schedule.end_s[order]
        at_s = np.stack([start_s, end_s], axis=1).ravel()
        done_s = np.stack([np.cumsum(end_s - start_s) - (end_s - start_s), np.cumsum(end_s - start_s)], axis=1).ravel()
        others = schedule.assignment != device
        begin, end = (np.interp(times[others], at_s, done_s) for times in (schedule.start_s, schedule.end_s))
        beside_s[others] += end - begin
    return beside_s


def corrected_s(problem: Problem, assignments: Sequence[IntArray], measured_s: FloatArray, seed: int) -> FloatArray:
    """`[P]` seconds that the correction of `gnn` predicts for each placement from executions of others."""
    rng, predicted_s = np.random.default_rng(seed), np.zeros(len(assignments))
    for fitted, held_out in folds(len(assignments), seed):
        correction = Correction(problem, CorrectionConfig())
        candidates = [correction.candidate(assignment) for assignment in assignments]
        for index in fitted:
            correction.learn(candidates[index], float(measured_s[index]))
        correction.refit(rng)
        predicted_s[held_out] = [correction.estimate_s(candidates[index]) for index in held_out]
    return predicted_s


def scaled_s(executions: Executions, seed: int) -> FloatArray:
    """`[P]` simulated seconds times the median ratio of the executions of other placements."""
    residual, predicted = executions.residual, np.zeros(len(executions.simulated_s))
    for fitted, held_out in folds(len(predicted), seed):
        predicted[held_out] = np.median(residual[fitted])
    return np.asarray(executions.simulated_s * np.exp(predicted))


def residual_s(own: Executions, others: Sequence[Executions], seed: int) -> FloatArray:
    """`[P]` seconds that the learned residual predicts from executions of other placements, and of other models if there are any."""
    names = sorted({name for one in (own, *others) for row in one.features for name in row})
    mine, predicted = _matrix(own, names), np.zeros(len(own.simulated_s))
    pooled = [(_matrix(one, names), one.residual) for one in others]
    for fitted, held_out in folds(len(predicted), seed):
        groups = [(mine[fitted], own.residual[fitted]), *pooled]
        centred = [(rows - rows.mean(axis=0), target - target.mean()) for rows, target in groups]
        slopes = ridge(np.concatenate([rows for rows, _ in centred]), np.concatenate([target for _, target in centred]))
        change = (mine[held_out] - mine[fitted].mean(axis=0)) @ slopes
        predicted[held_out] = own.residual[fitted].mean() + change
    return np.asarray(own.simulated_s * np.exp(predicted))


def _matrix(executions: Executions, names: Sequence[str]) -> FloatArray:
    return np.array([[row.get(name, 0.0) for name in names] for row in executions.features])


def ridge(rows: FloatArray, target: FloatArray) -> FloatArray:
    """`[F]` slopes of ridge regression of `[R]` values on `[R, F]`, with the penalty of the least leave-one-out error.

    Hoerl and Kennard 1970; the leave-one-out error follows from one fit (Allen 1974).
    """
    scale = np.sqrt((rows**2).mean(axis=0))
    scaled = rows / np.where(scale > 0, scale, 1.0)
    left, singular, right = np.linalg.svd(scaled, full_matrices=False)
    least, best = np.inf, np.zeros(rows.shape[1])
    for penalty in _PENALTIES:
        shrink = singular**2 / (singular**2 + penalty * len(rows))
        fitted = (left * shrink) @ (left.T @ target)
        leverage = np.einsum("rk,k,rk->r", left, shrink, left)
        error = float(np.mean(((target - fitted) / np.maximum(1e-9, 1 - leverage)) ** 2))
        if error < least:
            least = error
            best = right.T @ (singular / (singular**2 + penalty * len(rows)) * (left.T @ target))
    return np.asarray(best / np.where(scale > 0, scale, 1.0))
