"""Ops and edges without costs: what every generator draws first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnnplace.arrays import IntArray
from gnnplace.errors import UnsupportedModel


@dataclass(frozen=True, eq=False)
class Structure:
    """`N` ops and `E` edges, each from a smaller to a larger number and there only once."""

    num_ops: int
    producers: IntArray  # [E]
    consumers: IntArray  # [E]

    @classmethod
    def of(cls, num_ops: int, producers: IntArray, consumers: IntArray) -> Structure:
        """The structure with these edges; repeated ones count once.

        >>> edges = Structure.of(3, np.array([0, 0, 0]), np.array([2, 1, 2]))
        >>> edges.producers.tolist(), edges.consumers.tolist()
        ([0, 0], [1, 2])
        """
        assert bool((producers < consumers).all())
        codes = np.unique(producers * num_ops + consumers)
        return cls(num_ops, codes // num_ops, codes % num_ops)


def connected(structure: Structure, level: IntArray, rng: np.random.Generator) -> Structure:
    """The structure with one edge more per component but one, so that it is connected.

    Such an edge leads from one level to the next. A component that begins at level 0 gets it from its first op, into
    the component of the first op of level 1; one that begins later gets it from an op of the level before, which is of
    a component that begins earlier, so by induction all are joined.

    Args:
        structure: edges lead from lower to higher levels.
        level: `[N]` ascending, from 0, without gaps; at least two levels.
        rng: chooses the other end of each edge.
    """
    count = structure.num_ops
    ones = np.ones(len(structure.producers), dtype=np.int8)
    number, component = connected_components(
        coo_array((ones, (structure.producers, structure.consumers)), shape=(count, count)), directed=False
    )
    if number == 1:
        return structure
    begin = np.searchsorted(level, np.arange(level[-1] + 2))
    main = component[begin[1]]
    firsts = np.unique(component, return_index=True)[1]
    firsts = firsts[component[firsts] != main]
    late = firsts[level[firsts] > 0]
    early = firsts[level[firsts] == 0]
    goals = np.flatnonzero(component[begin[1] : begin[2]] == main) + begin[1]
    before = rng.integers(begin[level[late] - 1], begin[level[late]])
    return Structure.of(
        count,
        np.concatenate([structure.producers, before, early]),
        np.concatenate([structure.consumers, late, rng.choice(goals, len(early))]),
    )


def level_widths(num_ops: int, lowest: float, highest: float, rng: np.random.Generator) -> IntArray:
    """`[levels]` random widths between two bounds that sum up to `num_ops`: at least two levels, the last one cut off."""
    most = max(1, num_ops // 2)
    low = min(max(1, round(lowest)), most)
    high = min(max(low, round(highest)), most)
    widths = rng.integers(low, high + 1, -(-num_ops // low))
    ends = np.minimum(np.cumsum(widths), num_ops)
    return np.diff(ends[: np.searchsorted(ends, num_ops) + 1], prepend=0)


def require(holds: bool, rule: str) -> None:
    """Refuses settings that break a rule.

    Raises:
        UnsupportedModel: the rule does not hold.
    """
    if not holds:
        raise UnsupportedModel(f"generated graph: {rule}")
