"""What Placeto subtracts from a return: the mean at the same step of recent episodes (Addanki et al. 2019)."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

__all__ = ["StepBaseline"]


class StepBaseline:
    """The mean return at each step over the last episodes of one graph.

    Departure: episodes that have just ended are included in what their own returns are compared with.
    """

    def __init__(self, episodes: int) -> None:
        """Over the last `episodes`; more where a single batch has more."""
        self._returns: deque[Tensor] = deque(maxlen=episodes)

    def take_in(self, returns: Tensor) -> Tensor:
        """`[T]` the baseline of each step once the returns `[T, B]` of `B` episodes are known.

        >>> StepBaseline(2).take_in(torch.tensor([[1.0, 3.0], [0.0, 4.0]])).tolist()
        [2.0, 2.0]
        """
        if returns.shape[1] > (self._returns.maxlen or 0):
            self._returns = deque(maxlen=returns.shape[1])
        self._returns.extend(returns.unbind(dim=1))
        return torch.stack(tuple(self._returns)).mean(dim=0)
