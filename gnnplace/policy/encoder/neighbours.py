"""Who hears from whom: what a round of messages asks of a graph, and the plain-torch answer that is DGL's parity oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Messages", "Neighbours", "ScatterNeighbours", "scatter_messages"]


class Neighbours(Protocol):
    """`E` edges between `U` units, each from a sender to a receiver; what differs between DGL and plain torch."""

    def mean(self, sent: Tensor, edges: Tensor) -> Tensor:
        """`[U, B, H]` mean over a receiver's edges of `relu(sent[sender] + edges)`; 0 without edges."""

    def ends_sum(self, sent: Tensor, received: Tensor) -> Tensor:
        """`[E, B, H]` `sent[sender] + received[receiver]` of every edge."""

    def attend(self, scores: Tensor, sent: Tensor) -> Tensor:
        """`[U, B, K, C]` sum over a receiver's edges of `sent[sender]` `[U, B, K, C]`, weighted by the softmax of `scores` `[E, B, K, 1]`."""


@dataclass(frozen=True, eq=False)
class Messages:
    """The graph of a problem, both ways along its edges."""

    along: Neighbours
    """Units hear from the producers of their inputs."""
    against: Neighbours
    """Units hear from the consumers of their outputs."""


class ScatterNeighbours:
    """Neighbours by plain torch indexing; easy to check."""

    def __init__(self, senders: Tensor, receivers: Tensor, num_units: int) -> None:
        """Edges `[E]` from `senders` to `receivers`."""
        self._senders, self._receivers, self._num_units = senders, receivers, num_units

    def mean(self, sent: Tensor, edges: Tensor) -> Tensor:
        """See `Neighbours.mean`."""
        count = torch.bincount(self._receivers, minlength=self._num_units).clamp(min=1)
        return self._total(torch.relu(sent[self._senders] + edges)) / count[:, None, None]

    def ends_sum(self, sent: Tensor, received: Tensor) -> Tensor:
        """See `Neighbours.ends_sum`."""
        return sent[self._senders] + received[self._receivers]

    def attend(self, scores: Tensor, sent: Tensor) -> Tensor:
        """See `Neighbours.attend`."""
        # A softmax stays as it is when all its scores are lowered by one number; by the highest, exp neither overflows nor vanishes.
        index = self._receivers[:, None, None, None].expand_as(scores)
        highest = torch.zeros(self._num_units, *scores.shape[1:], dtype=scores.dtype)
        highest = highest.scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
        weights = torch.exp(scores - highest[self._receivers])
        total = self._total(weights)
        return self._total(weights / total[self._receivers] * sent[self._senders])

    def _total(self, messages: Tensor) -> Tensor:
        zeros = torch.zeros(self._num_units, *messages.shape[1:], dtype=messages.dtype)
        return zeros.index_add(0, self._receivers, messages)


def scatter_messages(ends: Tensor, num_units: int) -> Messages:
    """Messages along the edges `ends` `[2, E]` between units, by plain torch."""
    return Messages(ScatterNeighbours(ends[0], ends[1], num_units), ScatterNeighbours(ends[1], ends[0], num_units))
