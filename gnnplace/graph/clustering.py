"""Merges of clusters of ops that keep the graph acyclic; near linear in ops and edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.compiled_code import njit
from gnnplace.graph.orders import depth_first_order, topological_order


class Clusters(NamedTuple):
    """`C` clusters of ops with the bytes that they exchange, and the properties that decide whether two may merge."""

    source: IntArray  # [E] producing cluster; each pair once, no loops
    target: IntArray  # [E] consuming cluster
    num_bytes: FloatArray  # [E]
    load: FloatArray  # [C, R] fractions of the graph's totals, per resource
    label: IntArray  # [C] colocation group, -1 if none; different groups never merge
    kind: IntArray  # [C] number of the set of allowed devices; only equal sets merge
    of_op: IntArray  # [N] cluster of each op

    @property
    def num_clusters(self) -> int:
        """`C`: number of clusters."""
        return len(self.label)

    def merged(self, parent: IntArray) -> Clusters:
        """Merges every cluster `c` into `parent[c]` `[C]`."""
        _, index = np.unique(parent, return_inverse=True)
        count = int(index.max(initial=-1)) + 1
        load = np.zeros((count, self.load.shape[1]))
        np.add.at(load, index, self.load)
        label = np.full(count, -1, dtype=np.int64)
        np.maximum.at(label, index, self.label)
        kind = np.empty(count, dtype=np.int64)
        kind[index] = self.kind
        source, target = index[self.source], index[self.target]
        apart = source != target
        key, inverse = np.unique(source[apart] * count + target[apart], return_inverse=True)
        num_bytes = np.bincount(inverse, weights=self.num_bytes[apart], minlength=len(key)).astype(np.float64)
        source, target = key // max(1, count), key % max(1, count)
        return Clusters(source, target, num_bytes, load, label, kind, index[self.of_op])

    def successors(self) -> tuple[IntArray, IntArray]:
        """Offsets `[C + 1]` and targets `[E]`."""
        return csr(self.source, self.target, self.num_clusters)

    def predecessors(self) -> tuple[IntArray, IntArray]:
        """Offsets `[C + 1]` and sources `[E]`."""
        return csr(self.target, self.source, self.num_clusters)

    def heaviest_first(self) -> IntArray:
        """`[E]` edges, most bytes first."""
        return np.argsort(-self.num_bytes, kind="stable")


class _Line(NamedTuple):
    """Working state of `merge_convex`: a topological order in which the ops of each cluster are contiguous."""

    order: IntArray  # [N]
    position: IntArray  # [N]
    cluster: IntArray  # [N] representative op of the cluster of each op
    member: BoolArray  # [N] in the set being merged
    chosen: BoolArray  # [N] in the part of the set being merged
    returns: IntArray  # [N] `k` of `merge_convex`


@njit(cache=True, nogil=True)
def merge_convex(
    order: IntArray,
    set_offsets: IntArray,
    set_members: IntArray,
    predecessors: tuple[IntArray, IntArray],
    successors: tuple[IntArray, IntArray],
) -> IntArray:
    """`[N]` representative op of the cluster of each op, after each of the disjoint sets merged as far as it can.

    `order` is a topological order. Let `k(v)` be the largest number of times that a path to `v` leaves the set and
    returns. Members with equal `k` have no path between them that leaves the set, and `k` never decreases along a path.
    So merging all members of equal `k` closes no cycle. Sets merge in turn, each in the graph that the previous merges
    left.
    """
    num_ops = len(order)
    position = np.empty(num_ops, dtype=np.int64)
    position[order] = np.arange(num_ops)
    member, chosen = np.zeros(num_ops, dtype=np.bool_), np.zeros(num_ops, dtype=np.bool_)
    line = _Line(order.copy(), position, np.arange(num_ops), member, chosen, np.full(num_ops, -1))
    for row in range(len(set_offsets) - 1):
        ops = set_members[set_offsets[row] : set_offsets[row + 1]]
        if len(ops) < 2:
            continue
        member[ops] = True
        _count_returns(line, position[ops].min(), position[ops].max(), predecessors)
        member[ops] = False
        ops = ops[np.argsort(line.returns[ops], kind="mergesort")]
        begin = 0
        for end in range(1, len(ops) + 1):
            if end < len(ops) and line.returns[ops[end]] == line.returns[ops[begin]]:
                continue
            if end - begin > 1:
                chosen[ops[begin:end]] = True
                _bring_together(line, ops[begin:end], successors)
                chosen[ops[begin:end]] = False
                line.cluster[ops[begin:end]] = ops[begin]
            begin = end
    return line.cluster


@njit(cache=True, nogil=True)
def _count_returns(line: _Line, low: int, high: int, predecessors: tuple[IntArray, IntArray]) -> None:
    """Writes `k(v)` of the ops at positions `low` to `high`; -1 where no path from the set arrives."""
    offsets, values = predecessors
    begin = low
    while begin <= high:
        block = line.cluster[line.order[begin]]
        inside = line.member[line.order[begin]]
        count = 0 if inside else -1
        end = begin
        while end <= high and line.cluster[line.order[end]] == block:
            op = line.order[end]
            for edge in range(offsets[op], offsets[op + 1]):
                before = values[edge]
                if line.position[before] >= low and line.cluster[before] != block:
                    count = max(count, line.returns[before] + (1 if inside and not line.member[before] else 0))
            end += 1
        for place in range(begin, end):
            line.returns[line.order[place]] = count
        begin = end


@njit(cache=True, nogil=True)
def _bring_together(line: _Line, ops: IntArray, successors: tuple[IntArray, IntArray]) -> None:
    """Reorders the ops between the chosen ops: first their ancestors, then the chosen ops, then the rest."""
    offsets, values = successors
    low, high = line.position[ops].min(), line.position[ops].max()
    before = np.zeros(high - low + 1, dtype=np.bool_)
    end = high
    while end >= low:
        block = line.cluster[line.order[end]]
        begin, reaches = end, False
        while begin >= low and line.cluster[line.order[begin]] == block:
            op = line.order[begin]
            for edge in range(offsets[op], offsets[op + 1]):
                after = values[edge]
                if line.position[after] <= high and (line.chosen[after] or before[line.position[after] - low]):
                    reaches = True
            begin -= 1
        if reaches and not line.chosen[line.order[end]]:
            before[begin + 1 - low : end + 1 - low] = True
        end = begin
    window = line.order[low : high + 1].copy()
    place = low
    for turn in range(3):
        for index in range(len(window)):
            op = window[index]
            if turn == (1 if line.chosen[op] else 0 if before[index] else 2):
                line.order[place] = op
                line.position[op] = place
                place += 1


@njit(cache=True, nogil=True)
def merge_single_ended(clusters: Clusters, edges: IntArray, cap: float, surplus: int) -> IntArray:
    """`[C]` parents: contracts edges whose producer has no other successor or whose consumer no other predecessor.

    No other path connects the ends of such an edge, so no cycle closes. In one call a cluster either absorbs others or
    joins one, so the condition still holds when the loop reaches an edge. `edges` `[E]` come in this order, until
    `surplus` clusters are gone. A merged cluster has at most the fraction `cap` of every load.
    """
    out_degree, in_degree = np.zeros(len(clusters.label), dtype=np.int64), np.zeros(len(clusters.label), dtype=np.int64)
    for edge in edges:
        out_degree[clusters.source[edge]] += 1
        in_degree[clusters.target[edge]] += 1
    load, label = clusters.load.copy(), clusters.label.copy()
    parent = np.arange(len(label))
    absorbs = np.zeros(len(label), dtype=np.bool_)
    for edge in edges:
        if surplus <= 0:
            break
        leaf, centre = clusters.source[edge], clusters.target[edge]
        if out_degree[leaf] != 1 or absorbs[leaf]:
            leaf, centre = centre, leaf
            if in_degree[leaf] != 1 or absorbs[leaf]:
                continue
        if parent[leaf] != leaf or parent[centre] != centre or clusters.kind[leaf] != clusters.kind[centre]:
            continue
        if not may_merge(leaf, centre, load, label, cap):
            continue
        parent[leaf] = centre
        absorbs[centre] = True
        load[centre] += load[leaf]
        label[centre] = max(label[centre], label[leaf])
        surplus -= 1
    return parent


@njit(cache=True, nogil=True)
def may_merge(a: int, b: int, load: FloatArray, label: IntArray, cap: float) -> bool:
    """Whether two clusters have compatible colocation groups and a joint load of at most `cap`, or one has no load."""
    if label[a] != label[b] and label[a] >= 0 and label[b] >= 0:
        return False
    for resource in range(load.shape[1]):
        if load[a, resource] + load[b, resource] > cap and min(load[a, resource], load[b, resource]) > 0:
            return False
    return True


@njit(cache=True, nogil=True)
def merge_bands(
    clusters: Clusters,
    edges: IntArray,
    neighbours: tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]],
    cap: float,
    surplus: int,
    parity: int,
) -> IntArray:
    """`[C]` parents: contracts edges between neighbouring levels (Herrmann et al. 2019, section 4.1.2, by pairs).

    The level of a cluster is the number of edges on the longest path to it. Only edges from a level of this parity to
    the next level are contracted, so a cycle would stay within two levels. Other pairs would enter each pair on it at
    the consumer and leave it at the producer. No pair is made for which both would hold; the last pair of a cycle would
    be one, so no cycle closes. `edges`, `cap` and `surplus` are those of `merge_single_ended`, and `neighbours` the
    successors and predecessors.
    """
    (after_offsets, after), (before_offsets, before) = neighbours
    level = np.zeros(len(clusters.label), dtype=np.int64)
    for op in topological_order(len(level), after_offsets, after):
        for at in range(after_offsets[op], after_offsets[op + 1]):
            level[after[at]] = max(level[after[at]], level[op] + 1)
    parent = np.arange(len(level))
    paired = np.zeros(len(level), dtype=np.bool_)
    for edge in edges:
        if surplus <= 0:
            break
        producer, consumer = clusters.source[edge], clusters.target[edge]
        if level[producer] % 2 != parity or level[consumer] != level[producer] + 1:
            continue
        if paired[producer] or paired[consumer] or clusters.kind[producer] != clusters.kind[consumer]:
            continue
        if not may_merge(producer, consumer, clusters.load, clusters.label, cap):
            continue
        entered = left = False
        for at in range(before_offsets[consumer], before_offsets[consumer + 1]):
            entered |= paired[before[at]] and level[before[at]] == level[producer]
        for at in range(after_offsets[producer], after_offsets[producer + 1]):
            left |= paired[after[at]] and level[after[at]] == level[consumer]
        if entered and left:
            continue
        parent[consumer] = producer
        paired[producer] = paired[consumer] = True
        surplus -= 1
    return parent


def merge_intervals(clusters: Clusters, max_groups: int) -> IntArray:
    """`[C]` parents: consecutive pieces, as even as possible, of a depth-first topological order; always acyclic.

    More than `max_groups` pieces remain only where neighbours in the order must not merge.
    """
    offsets, successors = clusters.successors()
    order = depth_first_order(offsets, successors, -np.arange(clusters.num_clusters, dtype=np.float64))
    weight = np.maximum(clusters.load.max(axis=1, initial=0.0), 1.0 / max(1, clusters.num_clusters))
    low, high = 0.0, 2.0 * float(weight.sum())  # twice the total, so that rounding cannot cut a single piece
    for _ in range(40):
        middle = (low + high) / 2
        if _intervals(order, weight, clusters.label, clusters.kind, middle)[1] <= max_groups:
            high = middle
        else:
            low = middle
    return np.asarray(_intervals(order, weight, clusters.label, clusters.kind, high)[0])


@njit(cache=True, nogil=True)
def _intervals(
    order: IntArray, weight: FloatArray, label: IntArray, kind: IntArray, cap: float
) -> tuple[IntArray, int]:
    parent = np.empty(len(order), dtype=np.int64)
    count, first, filled, current = 0, -1, 0.0, -1
    for op in order:
        joins = first >= 0 and filled + weight[op] <= cap and kind[op] == kind[first]
        if not joins or (label[op] >= 0 and current >= 0 and label[op] != current):
            first, filled, current = op, 0.0, -1
            count += 1
        parent[op] = first
        filled += weight[op]
        current = max(current, label[op])
    return parent, count
