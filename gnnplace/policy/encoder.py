"""Message passing over the graph, both ways along the edges, and the plain-torch messages that are DGL's parity oracle."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

__all__ = ["GraphEncoder", "MessagePassingEncoder", "Messages", "ScatterMessages"]


class Messages(Protocol):
    """A graph that passes messages along its edges; what differs between DGL and plain torch."""

    def along(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """`[U, B, H]` mean over incoming edges of `relu(nodes[producer] + edges)`; 0 without incoming edges."""

    def against(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """`[U, B, H]` mean over outgoing edges of `relu(nodes[consumer] + edges)`; 0 without outgoing edges."""


class GraphEncoder(Protocol):
    """Features and edges -> embeddings `[U, B, H]`."""

    def __call__(self, messages: Messages, type_buckets: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """`type_buckets` `[U]`, `nodes` `[U, B, F]`, `edges` `[E, B, F]`."""


class ScatterMessages:
    """Messages by plain torch indexing; slower than DGL on large graphs and easy to check."""

    def __init__(self, ends: Tensor, num_nodes: int) -> None:
        """The edges `ends` `[2, E]` (producer, consumer) between `num_nodes` units."""
        self._producer, self._consumer = ends[0], ends[1]
        self._num_nodes = num_nodes

    def along(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """See `Messages.along`."""
        return self._mean(torch.relu(nodes[self._producer] + edges), self._consumer)

    def against(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """See `Messages.against`."""
        return self._mean(torch.relu(nodes[self._consumer] + edges), self._producer)

    def _mean(self, messages: Tensor, to: Tensor) -> Tensor:
        total = torch.zeros(self._num_nodes, *messages.shape[1:], dtype=messages.dtype)
        count = torch.bincount(to, minlength=self._num_nodes).clamp(min=1)
        return total.index_add(0, to, messages) / count[:, None, None]


class _Round(nn.Module):
    """One round of messages: residual, then layer norm."""

    def __init__(self, hidden: int, edge_features: int) -> None:
        super().__init__()
        self.send_along = nn.Linear(hidden, hidden)
        self.send_against = nn.Linear(hidden, hidden)
        self.edge_along = nn.Linear(edge_features, hidden, bias=False)
        self.edge_against = nn.Linear(edge_features, hidden, bias=False)
        self.update = nn.Linear(3 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, messages: Messages, nodes: Tensor, edges: Tensor) -> Tensor:
        along = messages.along(self.send_along(nodes), self.edge_along(edges))
        against = messages.against(self.send_against(nodes), self.edge_against(edges))
        updated: Tensor = self.norm(nodes + torch.relu(self.update(torch.cat([nodes, along, against], dim=-1))))
        return updated


class MessagePassingEncoder(nn.Module):
    """Bidirectional mean-aggregating message passing with edge features, residual and layer norm.

    The placements of a batch share the graph, so a batch is one more dimension of the features and not a larger graph.
    """

    def __init__(
        self, node_features: int, edge_features: int, type_buckets: int, type_width: int, hidden: int, rounds: int
    ) -> None:
        """Weights for `rounds` rounds of width `hidden`; op types are embedded in `type_width` numbers."""
        super().__init__()
        self.types = nn.Embedding(type_buckets, type_width)
        self.inputs = nn.Linear(node_features + type_width, hidden)
        self.rounds = nn.ModuleList(_Round(hidden, edge_features) for _ in range(rounds))

    def forward(self, messages: Messages, type_buckets: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]`."""
        types = self.types(type_buckets)[:, None, :].expand(-1, nodes.shape[1], -1)
        hidden: Tensor = torch.relu(self.inputs(torch.cat([nodes, types], dim=-1)))
        for layer in self.rounds:
            hidden = layer(messages, hidden, edges)
        return hidden
