"""Messages in topological order, from the roots to the leaves and back (Addanki et al. 2019, section 3.2).

In one round, news of every ancestor and every descendant arrives. Departures: edge features; means instead of sums; the way back
begins with what the way there gave, instead of both side by side; residual and layer norm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnplace.policy.encoder.levels import Level, Levels
from gnnplace.policy.encoder.neighbours import Messages, Neighbours

__all__ = ["SweepRound"]


class _Sweep(nn.Module):
    """Every unit hears from neighbours that have already heard from theirs."""

    def __init__(self, hidden: int, edge_features: int) -> None:
        super().__init__()
        self.own = nn.Linear(hidden, hidden)
        self.send = nn.Linear(hidden, hidden)
        self.heard = nn.Linear(hidden, hidden, bias=False)
        self.edge = nn.Linear(edge_features, hidden, bias=False)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, levels: Levels[Neighbours], nodes: Tensor, edges: Tensor) -> Tensor:
        """A level at a time; all that does not depend on the levels before is computed at once."""
        nodes, edges = nodes[levels.units], self.edge(edges[levels.edges])
        own = self.own(nodes)
        counts = [level.num_units for level in levels.levels]
        into = torch.split(edges, [level.num_edges for level in levels.levels])
        swept: list[Tensor] = []
        sent: list[Tensor] = []
        for level, before, update, edge in zip(
            levels.levels, torch.split(nodes, counts), torch.split(own, counts), into, strict=True
        ):
            change = update + self._news(level, sent, edge) if level.heard else update
            swept.append(self.norm(before + torch.relu(change)))
            sent.append(self.send(swept[-1]))
        return torch.cat(swept)[levels.place]

    def _news(self, level: Level[Neighbours], sent: list[Tensor], edges: Tensor) -> Tensor:
        """What a level hears from those before, `[units of the level, B, H]`."""
        news: Tensor = self.heard(level.neighbours.mean(torch.cat([sent[index] for index in level.heard]), edges))
        return news


class SweepRound(nn.Module):
    """One round: there and back."""

    def __init__(self, hidden: int, edge_features: int) -> None:
        """Weights for embeddings of width `hidden`."""
        super().__init__()
        self.along = _Sweep(hidden, edge_features)
        self.against = _Sweep(hidden, edge_features)

    def forward(self, messages: Messages, nodes: Tensor, edges: Tensor) -> Tensor:
        """Embeddings `[U, B, H]`."""
        there = self.along(messages.levels_along, nodes, edges)
        back: Tensor = self.against(messages.levels_against, there, edges)
        return back
