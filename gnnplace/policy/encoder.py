"""Who hears from whom: what a round of messages asks of a graph, and the plain-torch answer that is DGL's parity oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

__all__ = [
    "GraphEncoder",
    "InputSizes",
    "MeanRound",
    "MessagePassingEncoder",
    "Messages",
    "Neighbours",
    "ScatterNeighbours",
    "scatter_messages",
]


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


class MeanRound(nn.Module):
    """One round of mean messages from producers and from consumers, with edge features: residual, then layer norm."""

    def __init__(self, hidden: int, edge_features: int) -> None:
        """Weights for embeddings of width `hidden`."""
        super().__init__()
        self.send_along = nn.Linear(hidden, hidden)
        self.send_against = nn.Linear(hidden, hidden)
        self.edge_along = nn.Linear(edge_features, hidden, bias=False)
        self.edge_against = nn.Linear(edge_features, hidden, bias=False)
        self.update = nn.Linear(3 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, messages: Messages, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]`."""
        along = messages.along.mean(self.send_along(nodes), self.edge_along(edges))
        against = messages.against.mean(self.send_against(nodes), self.edge_against(edges))
        updated: Tensor = self.norm(nodes + torch.relu(self.update(torch.cat([nodes, along, against], dim=-1))))
        return updated


class GraphEncoder(Protocol):
    """Features and edges -> embeddings `[U, B, H]`."""

    def __call__(self, messages: Messages, type_buckets: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """`type_buckets` `[U]`, `nodes` `[U, B, F]`, `edges` `[E, B, F]`."""


@dataclass(frozen=True)
class InputSizes:
    """What describes a unit, and an edge."""

    node_features: int
    type_buckets: int
    type_width: int
    """Numbers that describe an op type."""
    edge_features: int


class MessagePassingEncoder(nn.Module):
    """Rounds of messages between embeddings `[U, B, H]`; without rounds, each unit sees itself alone.

    The placements of a batch share the graph, so a batch is one more dimension of the features and not a larger graph. Attention over
    neighbours (GATv2: Brody, Alon and Yahav 2022) was no better: trained alike, searches of 1,000 evaluations on 48 generated problems
    ended 0.1 % later (standard error 0.6 %, four seeds each).
    """

    def __init__(self, sizes: InputSizes, hidden: int, rounds: int) -> None:
        """Weights for embeddings of width `hidden`."""
        super().__init__()
        self.types = nn.Embedding(sizes.type_buckets, sizes.type_width)
        self.inputs = nn.Linear(sizes.node_features + sizes.type_width, hidden)
        self.rounds = nn.ModuleList(MeanRound(hidden, sizes.edge_features) for _ in range(rounds))

    def forward(self, messages: Messages, type_buckets: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]`."""
        types = self.types(type_buckets)[:, None, :].expand(-1, nodes.shape[1], -1)
        hidden: Tensor = torch.relu(self.inputs(torch.cat([nodes, types], dim=-1)))
        for layer in self.rounds:
            hidden = layer(messages, hidden, edges)
        return hidden
