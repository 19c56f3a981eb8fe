"""Units of decision: colocated ops, and units joined because they exchange many bytes.

The graph between joined units may have cycles, unlike the graph between the groups of `coarsen.py`: each op of a unit
still runs by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnplace.arrays import BoolArray, IntArray, frozen
from gnnplace.compiled_code import njit
from gnnplace.graph.clustering import Clusters, may_merge
from gnnplace.graph.coarsen import STALLED, Coarsening, coarsen, device_kinds, op_loads
from gnnplace.graph.op_graph import OpGraph

__all__ = ["coarsen_units", "colocated_units", "joined_units"]


def colocated_units(graph: OpGraph) -> IntArray:
    """`[N]` unit of each op, from 0: a colocation group is one unit, and so is every other op."""
    alone = len(graph.colocation_names) + np.arange(graph.num_ops)
    key = np.where(graph.colocation >= 0, graph.colocation, alone)
    return np.asarray(np.unique(key, return_inverse=True)[1], dtype=np.int64)


def joined_units(graph: OpGraph, unit_of_op: IntArray, most: int, apart: IntArray | None = None) -> IntArray:
    """`[N]` joined unit of each op, from 0: at most `most` units, as far as loads allow.

    Rounds of heavy-edge matching (Karypis and Kumar 1998, section 3.1). Each round joins the pairs that exchange the
    most bytes, then pairs with a common neighbour. A joined unit has at most the fraction `4 / most` of the graph's
    compute and memory.

    Args:
        graph: The op graph, whose tensors and loads count.
        unit_of_op: `[N]` current unit of each op, from 0.
        most: Number of units to reach.
        apart: `[N]` class of each op, equal within a unit; units of different classes or allowed devices never join.
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
        clusters, index = clusters.merged(_matching(clusters, clusters.heaviest_first(), 4.0 / most, before - most))
        unit = index[unit]
        if clusters.num_clusters > max(most, STALLED * before):
            break
    return unit


def coarsen_units(graph: OpGraph, max_groups: int) -> Coarsening:
    """Like `coarsen`, but also joins colocation groups where these keep more than `max_groups` units apart.

    More than `max_groups` groups may remain where merging would close a cycle; these share colocation groups.
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
def _matching(clusters: Clusters, edges: IntArray, cap: float, surplus: int) -> IntArray:
    """`[C]` parents after one round: pairs along `edges` in this order, then pairs with a common neighbour."""
    parent = np.arange(len(clusters.label))
    taken = np.zeros(len(parent), dtype=np.bool_)
    for edge in edges:
        if surplus > 0 and _join(clusters.source[edge], clusters.target[edge], clusters, cap, parent, taken):
            surplus -= 1
    waiting = np.full(len(parent), -1)  # the last neighbour of each cluster that has no partner yet
    for edge in edges:
        for turn in range(2):
            hub, leaf = clusters.source[edge], clusters.target[edge]
            if turn == 1:
                hub, leaf = leaf, hub
            if surplus <= 0 or taken[leaf]:
                continue
            other = waiting[hub]
            waiting[hub] = leaf
            if other >= 0 and other != leaf and _join(other, leaf, clusters, cap, parent, taken):
                surplus -= 1
    return parent


@njit(cache=True, nogil=True)
def _join(a: int, b: int, clusters: Clusters, cap: float, parent: IntArray, taken: BoolArray) -> bool:
    """Joins two clusters where that is allowed; returns whether it did."""
    if taken[a] or taken[b] or clusters.kind[a] != clusters.kind[b]:
        return False
    if not may_merge(a, b, clusters.load, clusters.label, cap):
        return False
    parent[b] = a
    taken[a] = taken[b] = True
    return True
