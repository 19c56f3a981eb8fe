"""From rewards to what an action was worth."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["returns_to_go"]


def returns_to_go(rewards: Tensor, gamma: float) -> Tensor:
    """`[T, B]` discounted sum of the rewards of each step and those after it.

    >>> returns_to_go(torch.tensor([[1.0], [2.0], [4.0]]), gamma=0.5).flatten().tolist()
    [3.0, 4.0, 4.0]
    """
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[0])
    for step in range(len(rewards) - 1, -1, -1):
        following = rewards[step] + gamma * following
        returns[step] = following
    return returns
