"""The baseline of the learners that draw whole placements: a moving average of their rewards."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.arrays import FloatArray

__all__ = ["MovingAverage"]


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
