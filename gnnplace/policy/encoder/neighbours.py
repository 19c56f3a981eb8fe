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
        messages = torch.relu(sent[self._senders] + edges)
        zeros = torch.zeros(self._num_units, *messages.shape[1:], dtype=messages.dtype)
        return zeros.index_add(0, self._receivers, messages) / count[:, None, None]


def scatter_messages(ends: Tensor, num_units: int) -> Messages:
    """Messages along the edges `ends` `[2, E]` between units, by plain torch."""
    return Messages(ScatterNeighbours(ends[0], ends[1], num_units), ScatterNeighbours(ends[1], ends[0], num_units))
