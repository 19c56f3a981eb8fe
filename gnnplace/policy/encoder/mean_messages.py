"""Bidirectional message passing with means over the neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnplace.policy.encoder.neighbours import Messages

__all__ = ["MeanRound"]


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
