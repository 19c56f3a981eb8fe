"""Units of decision: colocated ops, units joined because they exchange many bytes, and random connected sets of units.

The graph between joined units may have cycles, unlike the graph between the groups of `coarsen.py`: each op of a unit
still runs by itself.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr, frozen
from gnnplace.compiled_code import njit
from gnnplace.graph.clustering import Clusters, may_merge
from gnnplace.graph.coarsen import STALLED, Coarsening, coarsen, device_kinds, op_loads
from gnnplace.graph.op_graph import OpGraph


def colocated_units(graph: OpGraph) -> IntArray:
    """`[N]` unit of each op, from 0: a colocation group is one unit, and so is every other op."""
    alone = len(graph.colocation_names) + np.arange(graph.num_ops)
    key = np.where(graph.colocation >= 0, graph.colocation, alone)
    return np.asarray(np.unique(key, return_inverse=True)[1], dtype=np.int64)


def unit_bytes(graph: OpGraph, unit_of_op: IntArray, tensor_share: FloatArray | BoolArray | float = 0.0) -> FloatArray:
    """`[U]` bytes of each unit: its weights, with an equal part of each shared one, and a share of the tensors that it produces.

    `tensor_share` is one number or `[T]`.
    """
    readers = np.diff(graph.weight_offsets)
    part = np.repeat(graph.weight_bytes / np.maximum(1, readers), readers)
    num_bytes = np.zeros(int(unit_of_op.max(initial=-1)) + 1)
    np.add.at(num_bytes, unit_of_op, graph.memory_bytes)
    np.add.at(num_bytes, unit_of_op[graph.weight_consumers], part)
    np.add.at(num_bytes, unit_of_op[graph.tensor_producer], tensor_share * graph.tensor_bytes)
    return num_bytes


def joined_units(graph: OpGraph, unit_of_op: IntArray, most: int, apart: IntArray | None = None) -> IntArray:
    """`[N]` joined unit of each op, from 0: at most `most` units, as far as loads allow.

    Rounds of heavy-edge matching (Karypis and Kumar 1998, section 3.1). Each round joins the pairs that exchange the
    most bytes, then pairs with a common neighbour. A joined unit has at most the fraction `4 / most` of the graph's
    compute and memory. `unit_of_op` `[N]` numbers the units from 0. Units of different classes in `apart` `[N]`, or of
    different allowed devices, never join.
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
    clusters = Clusters(source, target, num_bytes, load, np.full(count, -1), kind, unit_of_op).merged(np.arange(count))
    while clusters.num_clusters > most:
        before = clusters.num_clusters
        clusters = clusters.merged(_matching(clusters, clusters.heaviest_first(), 4.0 / most, before - most))
        if clusters.num_clusters > max(most, STALLED * before):
            break
    return clusters.of_op


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


class UnitGraph(NamedTuple):
    """Neighbours and allowed devices of `U` units."""

    neighbour_offsets: IntArray  # [U + 1]
    neighbours: IntArray
    allowed: BoolArray  # [U, D]


def unit_graph(unit_edges: IntArray, allowed: BoolArray) -> UnitGraph:
    """The undirected graph of `unit_edges` `[2, E]`; each neighbour of a unit is listed once, in ascending order."""
    pairs = np.unique(np.concatenate([unit_edges, unit_edges[::-1]], axis=1), axis=1)
    offsets, neighbours = csr(pairs[0], pairs[1], len(allowed))
    return UnitGraph(offsets, neighbours, allowed)


@njit(cache=True, nogil=True, error_model="numpy")
def first_above(cumulative: FloatArray, value: float) -> int:
    """The first index whose entry is above `value`; the last index if there is none."""
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True, error_model="numpy")
def grow_cluster(
    graph: UnitGraph, mean_cluster: float, device_of_unit: IntArray, rng: np.random.Generator, scratch: IntArray
) -> int:
    """Grows a random connected set of units on one device; returns its number of units.

    `scratch` `[3, U]` holds the first unit in `scratch[0, 0]`; the whole set is written to `scratch[0]`. The set grows
    from a random unit at its border by that unit's neighbours on the device, until the drawn size is reached.
    """
    members, border, fresh = scratch[0], scratch[1], scratch[2]
    missing, count, open_ends = _geometric(rng, mean_cluster), 1, 1
    here = device_of_unit[members[0]]
    border[0] = members[0]
    while open_ends > 0 and missing > 0:
        chosen = int(rng.random() * open_ends)
        unit = border[chosen]
        open_ends -= 1
        border[chosen] = border[open_ends]
        found = 0
        for entry in range(graph.neighbour_offsets[unit], graph.neighbour_offsets[unit + 1]):
            candidate = graph.neighbours[entry]
            position = 0  # a linear search among the few members is faster than marking them
            while position < count and members[position] != candidate:
                position += 1
            if position == count and device_of_unit[candidate] == here:
                fresh[found] = candidate
                found += 1
        added = min(found, missing)
        for index in range(added):
            other = index + int(rng.random() * (found - index))
            joins = fresh[other]
            fresh[other] = fresh[index]
            members[count] = border[open_ends] = joins
            count += 1
            open_ends += 1
        missing -= added
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def draw_region(
    graph: UnitGraph, first: int, size: int, region: BoolArray, border: IntArray, rng: np.random.Generator
) -> None:
    """Marks in `region` `[U]` at most `size` units around the unit `first`: consecutive ones or, as often, connected ones.

    Units are numbered in topological order. `border` `[U]` is scratch.
    """
    if rng.random() < 0.5:
        region[:] = False
        region[max(0, first - size // 2) : first + size - size // 2] = True
    else:
        grow_region(graph, first, size, region, border, rng)


@njit(cache=True, nogil=True, error_model="numpy")
def grow_region(
    graph: UnitGraph, first: int, size: int, region: BoolArray, border: IntArray, rng: np.random.Generator
) -> None:
    """Marks in `region` `[U]` a random connected set of at most `size` units around the unit `first`; `border` `[U]` is scratch."""
    region[:] = False
    region[first] = True
    border[0] = first
    count = open_ends = 1
    while open_ends > 0 and count < size:
        at = int(rng.random() * open_ends)
        unit, found, joins = border[at], 0, -1
        for entry in range(graph.neighbour_offsets[unit], graph.neighbour_offsets[unit + 1]):
            if not region[graph.neighbours[entry]]:
                found += 1
                if rng.random() * found < 1.0:
                    joins = graph.neighbours[entry]
        if joins < 0:
            open_ends -= 1
            border[at] = border[open_ends]
        else:
            region[joins] = True
            border[open_ends] = joins
            open_ends += 1
            count += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _geometric(rng: np.random.Generator, mean: float) -> int:
    """A geometrically distributed integer, at least 1."""
    if mean <= 1.0:
        return 1
    return 1 + int(np.log(1.0 - rng.random()) / np.log(1.0 - 1.0 / mean))
