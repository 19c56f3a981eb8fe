"""Coarsening: a smaller acyclic graph of op groups, and the mapping between ops and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray, csr, frozen
from gnnplace.graph.clustering import Clusters, merge_bands, merge_convex, merge_intervals, merge_single_ended
from gnnplace.graph.op_graph import OpGraph
from gnnplace.graph.orders import topological_order

_Value = TypeVar("_Value", np.int64, np.float64)
_LARGE, _NEAR = 20_000, 500
"""From `_LARGE` ops on, colocated and fused ops merge only within `_NEAR` ops of the topological order."""
STALLED = 0.98
"""Share of clusters that a round may leave at most; a round that leaves more ends the contraction."""


@dataclass(frozen=True, eq=False)
class Coarsening:
    """`G` op groups in place of `N` ops.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> chain = OpGraph.build("chain", [Op("a"), Op("b"), Op("c")], [Tensor("a", 9, ("b",)), Tensor("b", 1, ("c",))])
    >>> coarse = coarsen(chain, max_groups=2)
    >>> coarse.expand(np.array([7, 8])).tolist(), coarse.project(np.array([4, 4, 5])).tolist()
    ([7, 7, 8], [4, 5])
    >>> coarse.total(np.array([1.0, 2.0, 4.0])).tolist()
    [3.0, 4.0]
    >>> coarsen(coarse.graph, max_groups=1).after(coarse).group_of_op.tolist()
    [0, 0, 0]
    """

    graph: OpGraph
    """Graph of the `G` groups, in topological order; the original object when no ops merged."""
    group_of_op: IntArray  # [N]
    representative: IntArray  # [G] op whose device the group takes in `project`

    def expand(self, values: NDArray[_Value]) -> NDArray[_Value]:
        """`[..., N]` from `[..., G]`: gives every op the value of its group, such as a device or a priority."""
        return values[..., self.group_of_op]

    def project(self, assignment: IntArray) -> IntArray:
        """`[G]` from `[N]`: gives every group the device of its heaviest op (of its colocated ops, if there are any)."""
        return assignment[self.representative]

    def after(self, finer: Coarsening) -> Coarsening:
        """The composition of two coarsenings: the ops of this one are the groups of `finer`."""
        return Coarsening(self.graph, self.group_of_op[finer.group_of_op], finer.representative[self.representative])

    def total(self, values: FloatArray) -> FloatArray:
        """`[G, ...]` from `[N, ...]`: sums over the ops of each group, for example seconds per op and device."""
        return _sums(values, self.group_of_op, self.graph.num_ops)


def coarsen(
    graph: OpGraph, max_groups: int = 512, max_fraction: float | None = None, fused: IntArray | None = None
) -> Coarsening:
    """Merges ops into at most `max_groups` groups, as far as the rules allow; near linear.

    1. The ops of a colocation group merge as far as the graph stays acyclic; the remaining ops keep its label.
       Then ops with equal numbers in `fused` `[N]`, which a runtime fuses into one kernel, merge in the same way.
    2. While more than `max_groups` groups remain, edges that close no cycle are contracted, heaviest tensors first.
       A group has at most `max_fraction` (default `4 / max_groups`) of the graph's compute or memory.
    3. If that does not suffice, consecutive pieces of a depth-first topological order merge.

    Ops of different colocation groups never merge. Ops with different allowed devices merge only within a colocation
    group, and only if the devices of one op are allowed for every other member.

    A group has the name, type, dtype and stage of its heaviest op. FLOPs, accessed bytes and resident bytes are sums;
    accessed bytes include inner tensors, as the ops still run one by one. Seconds are sums for every device or kind that
    all members state. A shared weight of a single group becomes resident there. Workspace is what the group
    needs beside its inputs and outputs, at its peak when the members run in topological order. Inner tensors vanish; each
    other tensor keeps one row.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> chain = OpGraph.build("chain", [Op("a"), Op("b"), Op("c")], [Tensor("a", 9, ("b",)), Tensor("b", 1, ("c",))])
    >>> coarse = coarsen(chain, max_groups=2)
    >>> coarse.group_of_op.tolist(), coarse.graph.tensor_bytes.tolist()
    ([0, 0, 1], [1])
    """
    if max_groups < 1:
        raise ValueError(f"max_groups is {max_groups}; at least one group is needed")
    load = op_loads(graph)
    num_bytes = graph.tensor_bytes[graph.consumer_tensor].astype(np.float64)
    alone = np.arange(graph.num_ops)
    clusters = Clusters(*graph.edges, num_bytes, load, graph.colocation, device_kinds(graph), alone)
    clusters = clusters.merged(_merge_colocation(graph))
    if fused is not None:
        clusters = clusters.merged(_merge_fused(clusters, fused))
    cap = 4.0 / max_groups if max_fraction is None else max_fraction
    while (surplus := clusters.num_clusters - max_groups) > 0:
        stalled_at = max(max_groups, STALLED * clusters.num_clusters)
        clusters = clusters.merged(merge_single_ended(clusters, clusters.heaviest_first(), cap, surplus))
        for parity in (0, 1):
            if clusters.num_clusters > stalled_at:
                surplus = clusters.num_clusters - max_groups
                neighbours = clusters.successors(), clusters.predecessors()
                parents = merge_bands(clusters, clusters.heaviest_first(), neighbours, cap, surplus, parity)
                clusters = clusters.merged(parents)
        if clusters.num_clusters > stalled_at:
            clusters = clusters.merged(merge_intervals(clusters, max_groups))
            break
    if clusters.num_clusters == graph.num_ops:
        return Coarsening(graph, frozen(alone, np.int64), frozen(alone, np.int64))
    place = np.argsort(topological_order(clusters.num_clusters, *clusters.successors()))
    return _coarse_graph(graph, place[clusters.of_op], clusters.num_clusters, load.max(axis=1))


def op_loads(graph: OpGraph) -> FloatArray:
    """`[N, 2]` fractions of the graph's compute (by stated seconds, else FLOPs and bytes) and resident memory."""

    def fraction(values: FloatArray | IntArray) -> FloatArray:
        total = float(values.sum())
        return values / total if total > 0 else np.zeros(len(values))

    compute = (fraction(graph.flops) + fraction(graph.bytes_accessed)) / 2
    if graph.time_s:
        rows = [fraction(np.nan_to_num(row)) for row in graph.time_s.values()]
        stated = ~np.isnan(list(graph.time_s.values())).all(axis=0)
        compute = np.where(stated, np.mean(rows, axis=0), compute)
    memory = graph.memory_bytes.astype(np.float64)
    sharers = np.diff(graph.weight_offsets)
    np.add.at(memory, graph.weight_consumers, np.repeat(graph.weight_bytes / np.maximum(1, sharers), sharers))
    return np.stack([compute, fraction(memory)], axis=1)


def device_kinds(graph: OpGraph) -> IntArray:
    """`[N]` number of the set of allowed devices of each op, from 0; a colocation group may narrow the set."""
    kinds: dict[frozenset[str] | None, int] = {}
    sets = (None if allowed is None else frozenset(allowed) for allowed in _allowed_in_group(graph))
    return np.array([kinds.setdefault(allowed, len(kinds)) for allowed in sets], dtype=np.int64)


def _allowed_in_group(graph: OpGraph) -> list[tuple[str, ...] | None]:
    """`[N]` allowed devices; a colocation group takes those of its strictest op if all members allow them."""
    allowed = list(graph.allowed_devices)
    for members in _colocated(graph):
        stated = {frozenset(a) for op in members if (a := allowed[op]) is not None}
        if not stated:
            continue
        strictest = min(stated, key=lambda names: (len(names), sorted(names)))
        if all(strictest <= names for names in stated):
            for op in members:
                allowed[op] = tuple(sorted(strictest))
    return allowed


def _colocated(graph: OpGraph) -> list[list[int]]:
    """The ops of each colocation group."""
    members: list[list[int]] = [[] for _ in graph.colocation_names]
    for op in np.flatnonzero(graph.colocation >= 0).tolist():
        members[graph.colocation[op]].append(op)
    return members


def _merge_colocation(graph: OpGraph) -> IntArray:
    """`[N]` representative op of the cluster of each op after colocation groups merged."""
    allowed = _allowed_in_group(graph)
    alike: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}  # ops of one colocation group on equal devices
    for label, colocated in enumerate(_colocated(graph)):
        for op in colocated:
            alike.setdefault((label, allowed[op]), []).append(op)
    sets = [ops for ops in alike.values() if len(ops) > 1]
    if not sets:
        return np.arange(graph.num_ops)
    members, number = np.concatenate(sets), np.repeat(np.arange(len(sets)), [len(ops) for ops in sets])
    predecessors = csr(graph.consumers, graph.edges[0], graph.num_ops)
    successors = graph.successor_offsets, graph.successors
    return _merged_sets(graph.topological_order, members, number, predecessors, successors)


def _merged_sets(
    order: IntArray,
    members: IntArray,
    set_of_member: IntArray,
    predecessors: tuple[IntArray, IntArray],
    successors: tuple[IntArray, IntArray],
) -> IntArray:
    """`[C]` representative of each node after `merge_convex` of disjoint sets; members are grouped by set.

    Merging a set takes time in proportion to its span in the order, so all sets of a large graph could take quadratic
    time. There, members that are far apart do not merge. They would rarely merge anyway, because most have a path
    between them that leaves the set.
    """
    splits = np.diff(set_of_member) > 0
    if len(order) >= _LARGE:
        position = np.argsort(order)
        sorted_by = np.lexsort((position[members], set_of_member))
        far = np.diff(position[members[sorted_by]]) > _NEAR
        if far.any():
            members, splits = members[sorted_by], far | splits
    offsets = np.flatnonzero(np.concatenate([[True], splits, [True]]))
    return np.asarray(merge_convex(order, offsets, members, predecessors, successors))


def _merge_fused(clusters: Clusters, fused: IntArray) -> IntArray:
    """`[C]` representative of each cluster after the clusters of each kernel merged.

    A cluster with ops of several kernels merges with the last of these. Clusters of different colocation groups or
    allowed devices stay apart.
    """
    kernel = np.zeros(clusters.num_clusters, dtype=np.int64)
    kernel[clusters.of_op] = np.unique(fused, return_inverse=True)[1]  # numbers below N, in the same order
    label = np.full(len(fused), -1, dtype=np.int64)  # the label that a free cluster takes when it merges
    np.maximum.at(label, kernel, clusters.label)
    apart = np.where(clusters.label >= 0, clusters.label, label[kernel])
    by_set = np.lexsort((apart, clusters.kind, kernel))
    keys = np.stack([kernel, clusters.kind, apart])[:, by_set]
    number = np.cumsum((keys != np.roll(keys, 1, axis=1)).any(axis=0))
    successors = clusters.successors()
    topological = topological_order(clusters.num_clusters, *successors)
    return _merged_sets(topological, by_set, number, clusters.predecessors(), successors)


def _coarse_graph(graph: OpGraph, group: IntArray, count: int, weight: FloatArray) -> Coarsening:
    """The graph of the groups `[N]`, which are numbered in topological order."""
    heaviest = _first_of_each(np.lexsort((np.arange(graph.num_ops), -weight, group)), group, count)
    labelled = np.lexsort((np.arange(graph.num_ops), -weight, graph.colocation < 0, group))
    representative = _first_of_each(labelled, group, count)
    sizes = np.bincount(group, minlength=count)
    tensors, offsets, consumers = _outer_tensors(graph, group, count)
    readers = [np.unique(group[graph.weights_of(weight)]) for weight in range(len(graph.weight_bytes))]
    shared = [len(groups) > 1 for groups in readers]
    memory = _sums(graph.memory_bytes, group, count)
    for groups, size in zip(readers, graph.weight_bytes.tolist(), strict=True):
        if len(groups) <= 1:
            memory[groups] += size
    shared_readers = [groups for groups in readers if len(groups) > 1]
    label = graph.colocation[representative]
    spread = np.bincount(label[label >= 0], minlength=len(graph.colocation_names)) > 1
    renumbered = np.cumsum(spread) - 1
    allowed = _allowed_in_group(graph)
    coarse = OpGraph(
        name=graph.name,
        op_names=tuple(graph.op_names[op] for op in heaviest),
        op_types=tuple(graph.op_types[op] for op in heaviest),
        flops=frozen(_sums(graph.flops, group, count), np.float64),
        bytes_accessed=frozen(_sums(graph.bytes_accessed, group, count), np.float64),
        memory_bytes=frozen(memory, np.int64),
        workspace_bytes=frozen(_workspaces(graph, group, count), np.int64),
        tensor_producer=frozen(group[graph.tensor_producer[tensors]], np.int64),
        tensor_bytes=frozen(graph.tensor_bytes[tensors], np.int64),
        consumer_offsets=frozen(offsets, np.int64),
        consumers=frozen(consumers, np.int64),
        weight_bytes=frozen(graph.weight_bytes[shared], np.int64),
        weight_offsets=frozen(np.cumsum([0, *map(len, shared_readers)]), np.int64),
        weight_consumers=frozen([reader for groups in shared_readers for reader in groups], np.int64),
        time_s={key: frozen(_sums(row, group, count), np.float64) for key, row in graph.time_s.items()},
        colocation=frozen(
            np.where((label >= 0) & spread[label], renumbered[label], -1) if len(spread) else label, np.int64
        ),
        colocation_names=tuple(graph.colocation_names[i] for i in np.flatnonzero(spread)),
        allowed_devices=tuple(allowed[op] for op in representative),
        dtypes=tuple(graph.dtypes[op] for op in heaviest),
        signatures=tuple(
            graph.signatures[op] if size == 1 else "" for op, size in zip(heaviest, sizes.tolist(), strict=True)
        ),
        stages=frozen(graph.stages[heaviest], np.int64),
    )
    return Coarsening(coarse, frozen(group, np.int64), frozen(representative, np.int64))


def _sums(values: NDArray[Any], group: IntArray, count: int) -> NDArray[Any]:
    """`[G, ...]` sums in the dtype of `values` `[N, ...]`; NaN if one member is NaN."""
    sums = np.zeros((count, *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, group, values)
    return sums


def _first_of_each(order: IntArray, group: IntArray, count: int) -> IntArray:
    """`[G]` first op of each group in an order that is sorted by group."""
    return order[np.searchsorted(group[order], np.arange(count))]


def _outer_tensors(graph: OpGraph, group: IntArray, count: int) -> tuple[IntArray, IntArray, IntArray]:
    """Tensors `[K]` that leave their group or are results, by producing group; offsets `[K + 1]` and reading groups."""
    producer, reader = group[graph.tensor_producer], group[graph.consumers]
    outer = reader != producer[graph.consumer_tensor]
    keep = np.diff(graph.consumer_offsets) == 0
    keep[graph.consumer_tensor[outer]] = True
    kept = np.flatnonzero(keep)
    kept = kept[np.argsort(producer[kept], kind="stable")]
    row = np.empty(graph.num_tensors, dtype=np.int64)
    row[kept] = np.arange(len(kept))
    pairs = np.unique(row[graph.consumer_tensor[outer]] * count + reader[outer])
    return kept, np.searchsorted(pairs // count, np.arange(len(kept) + 1)), pairs % count


def _workspaces(graph: OpGraph, group: IntArray, count: int) -> IntArray:
    """`[G]` bytes that a group needs beside its inputs and its outputs, at the peak of its members in topological order.

    An output takes room from the member that produces it on, an inner tensor until the last member that reads it.
    """
    order = np.lexsort((np.argsort(graph.topological_order), group))
    place = np.argsort(order)  # position when the groups run one after the other
    home = group[graph.tensor_producer]
    begin, end = place[graph.tensor_producer], np.full(graph.num_tensors, -1, dtype=np.int64)
    np.maximum.at(end, graph.consumer_tensor, place[graph.consumers])
    is_output = end < 0
    np.logical_or.at(is_output, graph.consumer_tensor, group[graph.consumers] != home[graph.consumer_tensor])
    first = np.searchsorted(group[order], np.arange(count + 1))
    end[is_output] = first[home[is_output] + 1] - 1
    change = np.zeros(graph.num_ops + 1, dtype=np.int64)
    np.add.at(change, begin, graph.tensor_bytes)
    np.subtract.at(change, end + 1, graph.tensor_bytes)
    level = np.cumsum(change[:-1]) + graph.workspace_bytes[order]
    if not count:
        return level
    outputs = np.zeros(count, dtype=np.int64)
    np.add.at(outputs, home[is_output], graph.tensor_bytes[is_output])
    return np.maximum(np.maximum.reduceat(level, first[:-1]) - outputs, 0)
