"""From rewards to what an action was worth."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["generalised_advantages", "returns_to_go"]


def generalised_advantages(rewards: Tensor, values: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """`[T, B]` advantages of whole episodes: the value after the last step is 0.

    Schulman et al. 2016, equation (16), from the last step to the first.
    """
    advantages = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[0])
    next_values = torch.zeros_like(rewards[0])
    for step in range(len(rewards) - 1, -1, -1):
        delta = rewards[step] + gamma * next_values - values[step]
        following = delta + gamma * gae_lambda * following
        advantages[step] = following
        next_values = values[step]
    return advantages


def returns_to_go(rewards: Tensor, gamma: float) -> Tensor:
    """`[T, B]` discounted sum of the rewards of each step and those after it.

    >>> returns_to_go(torch.tensor([[1.0], [2.0], [4.0]]), gamma=0.5).flatten().tolist()
    [3.0, 4.0, 4.0]
    """
    return generalised_advantages(rewards, torch.zeros_like(rewards), gamma, 1.0)
