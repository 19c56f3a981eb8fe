"""What the grouper sees of an op and the placer of a group (Mirhoseini et al. 2018, architecture of Grouper and Placer).

Departures: what the paper calls an op is a unit here, a free op or a colocation group; a graph states bytes and no shapes, so
the sizes of outputs are their bytes; amounts enter the networks as logarithms, because they span ten orders of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.learned.unit_edges import unit_edges

__all__ = [
    "MAX_NEIGHBOURS",
    "MAX_OUTPUTS",
    "UnitTraits",
    "group_embeddings",
    "placer_inputs",
    "unit_embeddings",
    "unit_traits",
]

MAX_OUTPUTS = 5
"""Outputs whose sizes are listed; that many in the authors' code (TensorFlow, `hierarchical_controller.py`)."""
MAX_NEIGHBOURS = 10
"""Neighbours that are listed, each as a position and a direction; that many in the authors' code."""


@dataclass(frozen=True, eq=False)
class UnitTraits:
    """The three vectors of every unit, as plain amounts."""

    type_counts: FloatArray  # [U, K] ops of each type that occurs in the graph, types in alphabetic order
    output_bytes: FloatArray  # [U, MAX_OUTPUTS] of the first outputs; 0 where there are fewer
    num_outputs: FloatArray  # [U]
    neighbours: (
        FloatArray  # [U, 2 * MAX_NEIGHBOURS] (position in topological order from 1, 1 after or -1 before); 0 for none
    )
    edges: IntArray  # [2, E] producing and consuming unit, each pair once


def unit_traits(problem: Problem) -> UnitTraits:
    """The traits of a problem's units.

    >>> from gnnplace.sim.example import diamond
    >>> traits = unit_traits(diamond())
    >>> traits.output_bytes[:, 0].tolist(), traits.neighbours[0, :4].tolist(), traits.edges.tolist()
    ([8.0, 8.0, 8.0, 0.0], [2.0, 1.0, 3.0, 1.0], [[0, 0, 1, 2], [1, 2, 3, 3]])
    """
    graph, units = problem.graph, problem.num_units
    types, type_of_op = np.unique(np.array(graph.op_types, dtype=object).astype(str), return_inverse=True)
    type_counts = np.zeros((units, len(types)))
    np.add.at(type_counts, (problem.unit_of_op, type_of_op), 1.0)
    owner = problem.unit_of_op[graph.tensor_producer]
    by_owner = np.argsort(owner, kind="stable")
    num_outputs = np.bincount(owner, minlength=units)
    slot = np.arange(len(owner)) - np.repeat(np.cumsum(num_outputs) - num_outputs, num_outputs)
    listed = slot < MAX_OUTPUTS
    output_bytes = np.zeros((units, MAX_OUTPUTS))
    output_bytes[owner[by_owner][listed], slot[listed]] = graph.tensor_bytes[by_owner][listed]
    edges = unit_edges(problem)
    return UnitTraits(type_counts, output_bytes, num_outputs.astype(np.float64), _neighbours(edges, units), edges)


def unit_embeddings(traits: UnitTraits) -> FloatArray:
    """`[U, F]` what the grouper sees: op types, output sizes and number of outputs, adjacency.

    >>> from gnnplace.sim.example import diamond
    >>> unit_embeddings(unit_traits(diamond()))[0, :3].round(3).tolist()  # one op of its type, 8 bytes, no second output
    [0.301, 0.954, 0.0]
    """
    neighbours = traits.neighbours.copy()
    neighbours[:, ::2] /= max(1, len(neighbours))
    amounts = np.concatenate([traits.type_counts, traits.output_bytes, traits.num_outputs[:, None]], axis=1)
    return np.concatenate([_compressed(amounts), neighbours], axis=1)


def group_embeddings(traits: UnitTraits, groups: IntArray, num_groups: int) -> FloatArray:
    """`[M, G, K + MAX_OUTPUTS + 1 + G]` of `M` groupings `[M, U]`, as plain amounts; `placer_inputs` makes them fit for a network.

    For each group: the count of each op type, the summed output sizes and number of outputs, and a 1 at `i` when the group has
    an edge to another group `i`.

    >>> from gnnplace.sim.example import diamond
    >>> embedding = group_embeddings(unit_traits(diamond()), np.array([[0, 0, 1, 1]]), num_groups=2)
    >>> embedding[0, :, [0, 1, -2, -1]].T.tolist()  # two ops each, bytes, which group feeds which
    [[2.0, 16.0, 0.0, 1.0], [2.0, 8.0, 0.0, 0.0]]
    """
    count, kinds = len(groups), traits.type_counts.shape[1]
    embeddings = np.zeros((count, num_groups, kinds + MAX_OUTPUTS + 1 + num_groups))
    rows = np.arange(count)[:, None]
    amounts = np.concatenate([traits.type_counts, traits.output_bytes, traits.num_outputs[:, None]], axis=1)
    np.add.at(embeddings[:, :, : kinds + MAX_OUTPUTS + 1], (rows, groups), amounts[None])
    adjacency = embeddings[:, :, kinds + MAX_OUTPUTS + 1 :]
    adjacency[rows, groups[:, traits.edges[0]], groups[:, traits.edges[1]]] = 1.0
    own = np.arange(num_groups)
    adjacency[:, own, own] = 0.0
    return embeddings


def placer_inputs(embeddings: FloatArray, num_groups: int) -> FloatArray:
    """Group embeddings as the placer reads them: amounts compressed, adjacency as it is.

    >>> placer_inputs(np.array([9.0, 99.0, 0.0, 1.0]), num_groups=2).tolist()
    [1.0, 2.0, 0.0, 1.0]
    """
    amounts, adjacency = embeddings[..., :-num_groups], embeddings[..., -num_groups:]
    return np.concatenate([_compressed(amounts), adjacency], axis=-1)


def _compressed(amounts: FloatArray) -> FloatArray:
    """Logarithms: 1 becomes 0.3, a megabyte 6."""
    return np.log10(1.0 + amounts)


def _neighbours(edges: IntArray, units: int) -> FloatArray:
    """Consumers first, then producers, each in topological order."""
    listed = np.zeros((units, MAX_NEIGHBOURS, 2))
    filled = np.zeros(units, dtype=np.int64)
    for direction, (here, there) in ((1.0, edges), (-1.0, edges[::-1])):
        for unit, neighbour in zip(here.tolist(), there.tolist(), strict=True):
            if filled[unit] < MAX_NEIGHBOURS:
                listed[unit, filled[unit]] = neighbour + 1, direction
                filled[unit] += 1
    return listed.reshape(units, 2 * MAX_NEIGHBOURS)
