"""The op groups that a sequence-to-sequence policy places one after the other, and their input vectors."""

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.env.timing import unit_tables
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.learning import first_values
from gnnplace.policy.features import NUM_TYPE_BUCKETS, type_bucket


@dataclass(frozen=True, eq=False)
class OpGroups:
    """`G` groups of units in topological order; the ops of a group share a device."""

    group_of_op: IntArray  # [N]
    action_mask: BoolArray  # [G, D] true where the group may go; all true for a group that may go nowhere
    type_shares: Float32Array  # [G, buckets] share of the group's ops of each type
    output_sizes: Float32Array  # [G, outputs] the largest tensors that leave the group, 0 to 1, padded with zeros
    adjacency: Float32Array  # [G, 2 G] 1 where the group feeds a group, then 1 where it is fed by one

    def assignments(self, decisions: IntArray) -> IntArray:
        """`[K, N]` assignments of `K` placements, from the device of each group `[G, K]`."""
        return np.ascontiguousarray(decisions[self.group_of_op].T)


def op_groups(problem: Problem, least_groups_per_device: int = 16, num_outputs: int = 4) -> OpGroups:
    """The groups of a problem and their vectors before learning (Mirhoseini et al. 2017, section 3.2).

    The paper describes an op by a learned vector of its type, the shapes of its outputs in a list of fixed length, and
    one-hot lists of the ops that it reads from and feeds. Departures: a graph holds bytes and no shapes, so a size is
    `log(1 + bytes)` over that of the graph's largest tensor; types are hashed into buckets and averaged over a group's ops.
    """
    group_of_unit = group_units(problem, least_groups_per_device)
    group_of_op = group_of_unit[problem.unit_of_op]
    count = int(group_of_unit.max(initial=-1)) + 1
    mask = np.ones((count, problem.topology.num_devices), dtype=np.bool_)
    np.logical_and.at(mask, group_of_unit, problem.action_mask)
    mask[~mask.any(axis=1)] = True  # it cannot run anywhere; the evaluator reports that
    types = np.zeros((count, NUM_TYPE_BUCKETS), dtype=np.float32)
    np.add.at(types, (group_of_op, np.array([type_bucket(t) for t in problem.graph.op_types], dtype=np.int64)), 1.0)
    types /= np.maximum(1.0, types.sum(axis=1, keepdims=True))
    feeds = np.zeros((count, count), dtype=np.float32)
    feeds[tuple(group_of_unit[problem.unit_edges])] = 1.0
    np.fill_diagonal(feeds, 0.0)
    adjacency = np.concatenate([feeds, feeds.T], axis=1)
    return OpGroups(group_of_op, mask, types, _output_sizes(problem, group_of_op, count, num_outputs), adjacency)


def group_units(problem: Problem, least_groups_per_device: int) -> IntArray:
    """`[U]` group of each unit: a unit that feeds only one other unit joins it (Mirhoseini et al. 2017, section 3.3).

    Departures: only units with the same allowed devices join, and only while a group stays below
    `1 / (least_groups_per_device * D)` of the graph's seconds and bytes (0: no such limit, as in the paper). The paper's
    training graphs read most outputs again in the backward pass; without a limit whole towers of an inference graph
    would become one group. The colocation groups of the graph replace the paper's two other rules (gradients with their forward
    ops, and the steps of a recurrent layer by hand).
    """
    producers, consumers = problem.unit_edges
    feeds = np.full(problem.num_units, -1)
    feeds[producers] = consumers
    feeds[np.bincount(producers, minlength=problem.num_units) != 1] = -1  # a unit that feeds none or several
    shares = _shares(problem)
    limit = 1.0 / (least_groups_per_device * problem.topology.num_devices) if least_groups_per_device else np.inf
    head = np.arange(problem.num_units)  # last unit of each unit's group
    held = shares.copy()
    for unit in range(problem.num_units - 1, -1, -1):
        consumer = feeds[unit]
        if consumer <= unit or (problem.action_mask[unit] != problem.action_mask[consumer]).any():
            continue
        into = head[consumer]
        if (held[into] + shares[unit] <= limit).all():
            head[unit] = into
            held[into] += shares[unit]
    return np.unique(head, return_inverse=True)[1]


def _shares(problem: Problem) -> FloatArray:
    """`[U, 2]` each unit's share of the graph's mean seconds and of its resident bytes."""
    tables, allowed = unit_tables(problem), problem.action_mask
    seconds = np.where(allowed, tables.unit_time_s, 0.0).sum(axis=1) / np.maximum(1, allowed.sum(axis=1))
    amounts = np.stack([seconds, tables.unit_memory_bytes], axis=1)
    return np.asarray(amounts / np.maximum(amounts.sum(axis=0), 1e-300))


def _output_sizes(problem: Problem, group_of_op: IntArray, count: int, num_outputs: int) -> Float32Array:
    graph = problem.graph
    producer = group_of_op[graph.tensor_producer]
    leaves = np.diff(graph.consumer_offsets) == 0
    np.logical_or.at(leaves, graph.consumer_tensor, group_of_op[graph.consumers] != producer[graph.consumer_tensor])
    size = np.log1p(graph.tensor_bytes) / max(1.0, float(np.log1p(graph.tensor_bytes.max(initial=0))))
    tensors = np.flatnonzero(leaves)
    tensors = tensors[np.argsort(-size[tensors], kind="stable")]
    return first_values(producer[tensors], size[tensors], count, num_outputs).astype(np.float32)
