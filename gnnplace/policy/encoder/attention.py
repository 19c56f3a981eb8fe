"""Attention over neighbours (GATv2: Brody, Alon and Yahav 2022, equation 7), producers and consumers apart.

Departures: edge features enter the scores; no unit attends to itself, the residual does that; two directions are joined by a linear layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnplace.policy.encoder.neighbours import Messages, Neighbours

__all__ = ["NUM_HEADS", "AttentionRound"]

NUM_HEADS = 4
"""Each looks at its own part of an embedding."""


class _Attention(nn.Module):
    """What every unit hears over one direction of the edges."""

    def __init__(self, hidden: int, edge_features: int) -> None:
        super().__init__()
        self.sent = nn.Linear(hidden, hidden)
        self.received = nn.Linear(hidden, hidden)
        self.edge = nn.Linear(edge_features, hidden, bias=False)
        self.score = nn.Parameter(torch.empty(NUM_HEADS, hidden // NUM_HEADS))
        nn.init.xavier_uniform_(self.score)

    def forward(self, neighbours: Neighbours, nodes: Tensor, edges: Tensor) -> Tensor:
        sent = self.sent(nodes)
        both = neighbours.ends_sum(sent, self.received(nodes)) + self.edge(edges)
        by_head = torch.unflatten(nn.functional.leaky_relu(both, 0.2), -1, self.score.shape)
        scores = (by_head * self.score).sum(dim=-1, keepdim=True)
        return neighbours.attend(scores, torch.unflatten(sent, -1, self.score.shape)).flatten(-2)


class AttentionRound(nn.Module):
    """One round of attention to producers and to consumers: residual, then layer norm."""

    def __init__(self, hidden: int, edge_features: int) -> None:
        """Weights for embeddings of width `hidden`, which `NUM_HEADS` divides."""
        super().__init__()
        self.along = _Attention(hidden, edge_features)
        self.against = _Attention(hidden, edge_features)
        self.update = nn.Linear(2 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, messages: Messages, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]`."""
        along = self.along(messages.along, nodes, edges)
        against = self.against(messages.against, nodes, edges)
        updated: Tensor = self.norm(nodes + torch.relu(self.update(torch.cat([along, against], dim=-1))))
        return updated
