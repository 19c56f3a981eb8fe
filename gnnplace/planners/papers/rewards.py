"""What published learners see of a placement's cost: whether it ran, and how it compares with the best single device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.single import fastest_elsewhere, unit_time_s

__all__ = [
    "FAILED",
    "LONG",
    "MovingAverage",
    "landing_devices",
    "relative_runtime",
    "single_device_s",
    "unit_edges",
    "which_ran",
]


LONG = 10.0
"""Runtimes above this are compressed; Placeto's authors cap theirs at the same number."""
FAILED = 2.0 * LONG
"""What no runtime reaches, compressed; what does not fit begins here."""


def single_device_s(problem: Problem) -> float:
    """Seconds of computing on the best single device, by which runtimes are divided; never 0.

    >>> from gnnplace.sim.example import diamond
    >>> single_device_s(diamond())
    6.0
    """
    seconds, landing = unit_time_s(problem), landing_devices(problem)
    rows = np.arange(problem.num_units)[:, None]
    return max(float(seconds[rows, landing].sum(axis=0).min()), 1e-12)


def which_ran(problem: Problem, seconds: FloatArray) -> BoolArray:
    """`[B]` true where penalised seconds are those of a placement that ran.

    A measured one ran when it has a time at all: times that are only simulated do not bound it, and bytes that are missing in the
    simulation alone make it slow, not failed.

    >>> from gnnplace.sim.example import diamond
    >>> which_ran(diamond(), np.array([6.0, 20.0, np.inf])).tolist()  # 20 seconds hold a penalty
    [True, False, False]
    """
    if problem.evaluator.kind == "measured":
        return np.isfinite(seconds)
    return seconds <= problem.worst_case_s * (1.0 + 1e-9)


def relative_runtime(problem: Problem, seconds: FloatArray, reference_s: float) -> FloatArray:
    """Penalised seconds over `reference_s`: below `FAILED` for what runs, from there to twice that for what does not fit.

    Above `LONG` a runtime `x` counts as `FAILED - LONG**2 / x`, which goes on with slope 1 and rises for ever: a learner that
    begins among placements many times slower than one device still sees which is better, and no outlier drowns the rest.
    A search's own penalty for missing memory is orders of magnitude above any runtime, so that a learner would see
    nothing else. Here too it falls with the missing bytes.

    >>> from gnnplace.sim.example import diamond
    >>> relative_runtime(diamond(), np.array([3.0, 6.0, np.inf]), reference_s=6.0).tolist()
    [0.5, 1.0, 40.0]
    """
    worst_s, ratio = max(problem.worst_case_s, 1e-9), seconds / reference_s
    ran = np.where(ratio <= LONG, ratio, FAILED - LONG**2 / np.maximum(ratio, LONG))
    failed = FAILED * np.clip(seconds / worst_s, 1.0, 2.0)
    return np.asarray(np.where(which_ran(problem, seconds), ran, failed))


def landing_devices(problem: Problem) -> IntArray:
    """`[U, D]` where a unit goes when it is sent to a device: there, or to the fastest one that may run it.

    >>> from dataclasses import replace
    >>> from gnnplace.sim.example import diamond
    >>> times = np.array([[1.0, np.inf], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]])
    >>> landing_devices(replace(diamond(), op_time_s=times)).tolist()
    [[0, 0], [0, 1], [0, 1], [0, 1]]
    """
    seconds, mask = unit_time_s(problem), problem.action_mask
    columns = [
        np.where(mask[:, device], device, fastest_elsewhere(problem, seconds, device))
        for device in range(problem.topology.num_devices)
    ]
    return np.stack(columns, axis=1)


@dataclass(eq=False)
class MovingAverage:
    """An exponential moving average of the mean rewards of batches.

    >>> import numpy as np
    >>> baseline = MovingAverage(decay=0.9)
    >>> baseline.advantages(np.array([-1.0, -3.0])).tolist(), round(baseline.value, 3)
    ([1.0, -1.0], -2.0)
    >>> baseline.advantages(np.array([-1.0])).tolist(), round(baseline.value, 3)
    ([1.0], -1.9)
    """

    decay: float
    """Share of the old average in the new one."""
    value: float | None = None
    """None before the first batch, which is then judged by its own mean."""

    def advantages(self, rewards: FloatArray) -> FloatArray:
        """`[K]` rewards of a batch less the average before it; the average then takes the batch in."""
        mean = float(rewards.mean())
        before = mean if self.value is None else self.value
        self.value = self.decay * before + (1.0 - self.decay) * mean
        return rewards - before


def unit_edges(problem: Problem) -> IntArray:
    """`[2, E]` producing and consuming unit of all data between units, each pair once.

    >>> from gnnplace.sim.example import diamond
    >>> unit_edges(diamond()).tolist()
    [[0, 0, 1, 2], [1, 2, 3, 3]]
    """
    producers, consumers = problem.graph.edges
    ends = np.stack([problem.unit_of_op[producers], problem.unit_of_op[consumers]])
    return np.unique(ends[:, ends[0] != ends[1]], axis=1)
