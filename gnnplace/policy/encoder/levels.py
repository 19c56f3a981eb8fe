"""A graph in topological order, level by level: a level hears only from levels before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import IntArray

__all__ = ["Level", "Levels", "topological_levels"]

N = TypeVar("N")
"""What is made of the edges into one level."""


@dataclass(frozen=True, eq=False)
class Level(Generic[N]):
    """Units that can be answered for at once."""

    num_units: int
    num_edges: int
    """Edges into the level."""
    heard: tuple[int, ...]
    """Levels with an edge into this one."""
    neighbours: N
    """From the units of the levels `heard`, one level after the other, to the units of this one."""


@dataclass(frozen=True, eq=False)
class Levels(Generic[N]):
    """The levels of a graph, and where their units and edges are."""

    units: Tensor  # [U] level after level
    edges: Tensor  # [E'] level after level; without those between units of one level
    place: Tensor  # [U] where each unit is in `units`
    levels: tuple[Level[N], ...]


def topological_levels(
    senders: Tensor, receivers: Tensor, num_units: int, connect: Callable[[Tensor, Tensor, int, int], N]
) -> Levels[N]:
    """The levels of the graph with edges `[E]` from senders to receivers; `connect` makes the neighbours of a level.

    A unit's level is the number of edges on the longest path that ends at it. Colocation can make units wait for each other in a
    circle: these share a level, and the edges between them are left out.
    """
    source, target = senders.numpy(), receivers.numpy()
    level_of = _level_of_units(source, target, num_units)
    units = np.argsort(level_of, kind="stable")
    starts = np.searchsorted(level_of[units], np.arange(level_of.max(initial=-1) + 2))
    place = np.argsort(units)
    order = np.argsort(level_of[target], kind="stable")
    edges = order[level_of[source[order]] < level_of[target[order]]]
    edge_starts = np.searchsorted(level_of[target[edges]], np.arange(len(starts)))
    levels = []
    for index in range(len(starts) - 1):
        into = edges[edge_starts[index] : edge_starts[index + 1]]
        heard, of_heard = np.unique(level_of[source[into]], return_inverse=True)
        sizes = starts[heard + 1] - starts[heard]
        offsets = np.cumsum(sizes) - sizes
        from_place = place[source[into]] - starts[heard][of_heard] + offsets[of_heard]
        to_place = place[target[into]] - starts[index]
        count = int(starts[index + 1] - starts[index])
        neighbours = connect(torch.from_numpy(from_place), torch.from_numpy(to_place), int(sizes.sum()), count)
        levels.append(Level(count, len(into), tuple(heard.tolist()), neighbours))
    return Levels(torch.from_numpy(units), torch.from_numpy(edges), torch.from_numpy(place), tuple(levels))


def _level_of_units(source: IntArray, target: IntArray, num_units: int) -> IntArray:
    """`[U]` the level of each unit."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(num_units))
    graph.add_edges_from(zip(source.tolist(), target.tolist(), strict=True))
    circles = nx.condensation(graph)
    level_of = np.zeros(num_units, dtype=np.int64)
    for index, generation in enumerate(nx.topological_generations(circles)):
        for circle in generation:
            level_of[list(circles.nodes[circle]["members"])] = index
    return level_of
