"""Which units exchange data, as the published graph and group encoders see it."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem

__all__ = ["unit_edges"]


def unit_edges(problem: Problem) -> IntArray:
    """`[2, E]` producing and consuming unit of all data between units, each pair once.

    >>> from gnnplace.sim.example import diamond
    >>> unit_edges(diamond()).tolist()
    [[0, 0, 1, 2], [1, 2, 3, 3]]
    """
    producers, consumers = problem.graph.edges
    ends = np.stack([problem.unit_of_op[producers], problem.unit_of_op[consumers]])
    return np.unique(ends[:, ends[0] != ends[1]], axis=1)
