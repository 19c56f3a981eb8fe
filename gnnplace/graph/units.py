"""Units of ops that exchange much, joined into fewer: what is joined is decided on as one, and still runs op by op.

Unlike the groups of `coarsen.py`, joined units need no acyclic graph between them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnplace.arrays import BoolArray, IntArray, frozen
from gnnplace.compiled_code import njit
from gnnplace.graph.clustering import Clusters, may_merge
from gnnplace.graph.coarsen import Coarsening, coarsen, device_kinds, op_loads
from gnnplace.graph.op_graph import OpGraph

__all__ = ["coarsen_units", "colocated_units", "joined_units"]

_STALLED = 0.98  # a round that leaves more than this share of the units has come to an end


def colocated_units(graph: OpGraph) -> IntArray:
    """`[N]` from 0, equal for ops of one colocation group.

    >>> from gnnplace.graph.op_graph import Op
    >>> colocated_units(OpGraph.build("three", [Op("a", group="1"), Op("b"), Op("c", group="1")])).tolist()
    [0, 1, 0]
    """
    alone = len(graph.colocation_names) + np.arange(graph.num_ops)
    key = np.where(graph.colocation >= 0, graph.colocation, alone)
    return np.asarray(np.unique(key, return_inverse=True)[1], dtype=np.int64)


def joined_units(graph: OpGraph, unit_of_op: IntArray, most: int, apart: IntArray | None = None) -> IntArray:
    """`[N]` from 0, equal for the ops of a joined unit: at most `most` units, as far as loads allow.

    Rounds of heavy-edge matching (Karypis and Kumar 1998, section 3.1): the pairs that exchange most bytes join first; then units
    that read from, or are read by, the same one. A joined unit has at most the fraction `4 / most` of the graph's compute and memory.

    Args:
        graph: whose tensors and loads count.
        unit_of_op: `[N]` from 0.
        most: the wished number of units.
        apart: `[N]` units with different numbers, or allowed devices, do not join; one number for all ops of a unit.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> names = ("a", "b", "c", "d")
    >>> chain = OpGraph.build("chain", [Op(n) for n in names], [Tensor("a", 9, ("b",)), Tensor("b", 1, ("c",)), Tensor("c", 8, ("d",))])
    >>> joined_units(chain, np.arange(4), most=2).tolist()
    [0, 0, 1, 1]
    """
    count = int(unit_of_op.max(initial=-1)) + 1
    kind_of_op = device_kinds(graph)
    if apart is not None:
        kind_of_op = kind_of_op * (int(apart.max(initial=0)) + 1) + apart
    kind, load = np.empty(count, dtype=np.int64), np.zeros((count, 2))
    kind[unit_of_op] = kind_of_op
    np.add.at(load, unit_of_op, op_loads(graph))
    source, target = (unit_of_op[ends] for ends in graph.edges)
    num_bytes = graph.tensor_bytes[graph.consumer_tensor].astype(np.float64)
    clusters, _ = Clusters(source, target, num_bytes, load, np.full(count, -1), kind).merged(np.arange(count))
    unit = unit_of_op
    while clusters.num_clusters > most:
        before = clusters.num_clusters
        clusters, index = clusters.merged(_matched(clusters, clusters.heaviest_first(), 4.0 / most, before - most))
        unit = index[unit]
        if clusters.num_clusters > max(most, _STALLED * before):
            break
    return unit


def coarsen_units(graph: OpGraph, max_groups: int) -> Coarsening:
    """As `coarsen`, and where colocation keeps more than `max_groups` units apart, those that exchange most are joined too.

    More groups than that may remain, where joined ones would close a cycle; they share colocation groups then.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> ops = [Op("a", group="1"), Op("b", group="2"), Op("c", group="1"), Op("d", group="2")]
    >>> chain = OpGraph.build("chain", ops, [Tensor(*pair) for pair in (("a", 9, ("b",)), ("b", 1, ("c",)), ("c", 8, ("d",)))])
    >>> [coarse.graph.num_ops for coarse in (coarsen(chain, max_groups=1), coarsen_units(chain, max_groups=1))]
    [4, 1]
    """
    coarse = coarsen(graph, max_groups)
    unit = colocated_units(coarse.graph)
    if unit.max(initial=-1) < max_groups:
        return coarse
    joined = joined_units(coarse.graph, unit, max_groups)
    labelled = np.bincount(joined)[joined] > 1
    names = tuple(f"joined {number}" for number in range(int(joined.max()) + 1))
    relabelled = replace(
        coarse.graph, colocation=frozen(np.where(labelled, joined, -1), np.int64), colocation_names=names
    )
    return coarsen(relabelled, max_groups).after(coarse)


@njit(cache=True, nogil=True)
def _matched(clusters: Clusters, edges: IntArray, cap: float, surplus: int) -> IntArray:
    """`[C]` parents of one round: pairs along edges in this order, then pairs that have a neighbour in common."""
    parent = np.arange(len(clusters.label))
    taken = np.zeros(len(parent), dtype=np.bool_)
    for edge in edges:
        if surplus > 0 and _joined(clusters.source[edge], clusters.target[edge], clusters, cap, parent, taken):
            surplus -= 1
    waiting = np.full(len(parent), -1)  # the last neighbour of each that has no partner
    for edge in edges:
        for turn in range(2):
            hub, leaf = clusters.source[edge], clusters.target[edge]
            if turn == 1:
                hub, leaf = leaf, hub
            if surplus <= 0 or taken[leaf]:
                continue
            other = waiting[hub]
            waiting[hub] = leaf
            if other >= 0 and other != leaf and _joined(other, leaf, clusters, cap, parent, taken):
                surplus -= 1
    return parent


@njit(cache=True, nogil=True)
def _joined(a: int, b: int, clusters: Clusters, cap: float, parent: IntArray, taken: BoolArray) -> bool:
    """Whether two have become a pair."""
    if taken[a] or taken[b] or clusters.kind[a] != clusters.kind[b]:
        return False
    if not may_merge(a, b, clusters.load, clusters.label, cap):
        return False
    parent[b] = a
    taken[a] = taken[b] = True
    return True
