"""Which units depend on which: the sets over which Placeto pools."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import BoolArray
from gnnplace.evaluation import Problem

__all__ = ["pooling_sets", "reachability"]


def reachability(problem: Problem) -> BoolArray:
    """`[U, U]` true at `u, v` when some op of `v` depends on some op of another unit `u`; `O(E U / 8)` bytes are read.

    Departure: Placeto finds shortest paths between all pairs, in cubic time, of which it keeps whether there is one. Two
    colocation groups may depend on each other.

    >>> from gnnplace.sim.example import diamond
    >>> reachability(diamond())[1].tolist()  # what depends on the left branch
    [False, False, False, True]
    """
    graph, units = problem.graph, problem.num_units
    own = np.packbits(np.eye(units, dtype=np.bool_), axis=1)
    below = np.zeros(
        (graph.num_ops, own.shape[1]), dtype=np.uint8
    )  # bit u: unit u is the op's own or depends on the op
    offsets, successors = graph.successor_offsets, graph.successors
    for op in graph.topological_order[::-1].tolist():
        reached = below[successors[offsets[op] : offsets[op + 1]]]
        below[op] = np.bitwise_or.reduce(reached, axis=0) | own[problem.unit_of_op[op]]
    found = np.zeros_like(own)
    np.bitwise_or.at(found, problem.unit_of_op, below)
    reachable = np.unpackbits(found, axis=1, count=units).astype(np.bool_)
    np.fill_diagonal(reachable, False)
    return reachable


def pooling_sets(reachable: BoolArray) -> BoolArray:
    """`[U, 3, U]` for each unit, which others are its ancestors, its descendants, and neither.

    >>> chain = np.array([[False, True], [False, False]])
    >>> pooling_sets(chain)[1].tolist()  # of the second unit
    [[True, False], [False, False], [False, False]]
    """
    parallel = ~(reachable | reachable.T | np.eye(len(reachable), dtype=np.bool_))
    return np.stack([reachable.T, reachable, parallel], axis=1)
