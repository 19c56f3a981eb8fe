"""What published learners see of a placement's cost: multiples of one device's time, bounded where it does not fit."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.heuristic.single import fastest_elsewhere, unit_time_s

__all__ = ["FAILED", "landing_devices", "relative_runtime", "single_device_s"]

FAILED = 10.0
"""The largest runtime that is told apart; Placeto's authors cap theirs at the same number."""


def single_device_s(problem: Problem) -> float:
    """Seconds of computing on the best single device, by which runtimes are divided; never 0."""
    seconds, landing = unit_time_s(problem), landing_devices(problem)
    rows = np.arange(problem.num_units)[:, None]
    return max(float(seconds[rows, landing].sum(axis=0).min()), 1e-12)


def relative_runtime(problem: Problem, seconds: FloatArray, reference_s: float) -> FloatArray:
    """Penalised seconds over `reference_s`: up to `FAILED` for what fits, from there to twice that for what does not.

    A search's own penalty for missing memory is orders of magnitude above any runtime, so that a learner would see
    nothing else. Here too it falls with the missing bytes.
    """
    worst_s = max(problem.worst_case_s, 1e-9)
    fits = np.minimum(seconds / reference_s, FAILED)
    return np.asarray(np.where(seconds <= worst_s, fits, FAILED * np.minimum(seconds / worst_s, 2.0)))


def landing_devices(problem: Problem) -> IntArray:
    """`[U, D]` where a unit goes when it is sent to a device: there, or to the fastest one that may run it."""
    seconds, mask = unit_time_s(problem), problem.action_mask
    columns = [
        np.where(mask[:, device], device, fastest_elsewhere(problem, seconds, device))
        for device in range(problem.topology.num_devices)
    ]
    return np.stack(columns, axis=1)
