"""Placeto's features: which units depend on which, for pooling, and the node features of each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.batch import PlacementBatch
from gnnplace.evaluation import Problem

__all__ = [
    "NUM_PLAIN_FEATURES",
    "DynamicFeatures",
    "StaticFeatures",
    "dynamic_features",
    "node_features",
    "pooling_sets",
    "reachability",
    "static_features",
]


def reachability(problem: Problem) -> BoolArray:
    """`[U, U]` true at `u, v` when some op of `v` depends on some op of another unit `u`; reads `O(E U / 8)` bytes.

    Departure: Placeto finds shortest paths between all pairs, in cubic time, and keeps only whether there is one. Two
    colocation groups may depend on each other.
    """
    graph, units = problem.graph, problem.num_units
    own = np.packbits(np.eye(units, dtype=np.bool_), axis=1)
    # Bit u of a row: unit u is the op's own unit or depends on the op.
    below = np.zeros((graph.num_ops, own.shape[1]), dtype=np.uint8)
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
    """`[U, 3, U]` for each unit, the other units that are its ancestors, its descendants, and neither."""
    parallel = ~(reachable | reachable.T | np.eye(len(reachable), dtype=np.bool_))
    return np.stack([reachable.T, reachable, parallel], axis=1)


NUM_PLAIN_FEATURES = 5
"""Features before the one column per device: cost, output size, number of visits, is current, relative start."""


@dataclass(frozen=True, eq=False)
class StaticFeatures:
    """Features that are constant during an episode."""

    amounts: Tensor  # [U, 2] cost and output size, each over the largest of the graph
    first_op: IntArray  # [U] an op of each unit
    visited_at: Tensor  # [U] step that visits the unit; the largest integer for units that cannot move
    num_devices: int


@dataclass(frozen=True, eq=False)
class DynamicFeatures:
    """Features that steps change, of `B` placements before one step."""

    start: Tensor  # [U, B] start of each unit as a fraction of the makespan
    device: Tensor  # [U, B]


def static_features(problem: Problem, visited: IntArray) -> StaticFeatures:
    """The static features for episodes that visit units in this order.

    Departure: the one cost of a unit, as Placeto has it, is here the mean over the devices that may run it.
    """
    first_op = np.array([ops[0] for ops in problem.unit_ops], dtype=np.int64)
    allowed = problem.action_mask[problem.unit_of_op]
    times = np.where(allowed & np.isfinite(problem.op_time_s), problem.op_time_s, 0.0)
    cost = np.bincount(
        problem.unit_of_op, times.sum(axis=1) / np.maximum(1, allowed.sum(axis=1)), minlength=problem.num_units
    )
    owner = problem.unit_of_op[problem.graph.tensor_producer]
    sizes = np.bincount(owner, problem.graph.tensor_bytes.astype(np.float64), minlength=problem.num_units)
    visited_at = np.full(problem.num_units, np.iinfo(np.int64).max)
    visited_at[visited] = np.arange(len(visited))
    amounts = np.stack([_over_largest(cost), _over_largest(sizes)], axis=1)
    return StaticFeatures(
        torch.from_numpy(amounts).float(), first_op, torch.from_numpy(visited_at), problem.topology.num_devices
    )


def dynamic_features(batch: PlacementBatch, static: StaticFeatures) -> DynamicFeatures:
    """The dynamic features of placements between two steps."""
    timing, tables = batch.timing, batch.tables
    start = np.minimum.reduceat(timing.start_s[:, tables.unit_ops], tables.unit_offsets[:-1], axis=1)
    relative = start / np.maximum(timing.makespan_s[:, None], 1e-300)
    device = timing.assignment[:, static.first_op]
    return DynamicFeatures(torch.from_numpy(relative.T).float(), torch.from_numpy(device.T.copy()))


def node_features(static: StaticFeatures, dynamic: DynamicFeatures, current: Tensor, steps: Tensor) -> Tensor:
    """`[U, R, F]` before `R` decisions about units `current` `[R]` at `steps` `[R]`; `dynamic` has a column for each.

    Departure: starts are divided by the makespan, where Placeto divides by the largest start relative to the current unit, which
    may be almost 0.
    """
    units, rows = dynamic.start.shape
    features = torch.zeros(units, rows, NUM_PLAIN_FEATURES + static.num_devices)
    features[:, :, :2] = static.amounts[:, None]
    features[:, :, 2] = (static.visited_at[:, None] < steps).float()
    features[current, torch.arange(rows), 3] = 1.0
    features[:, :, 4] = dynamic.start - dynamic.start[current, torch.arange(rows)]
    features[:, :, NUM_PLAIN_FEATURES:].scatter_(2, dynamic.device[:, :, None], 1.0)
    return features


def _over_largest(amounts: FloatArray | IntArray) -> FloatArray:
    return amounts / max(float(amounts.max(initial=0.0)), 1e-300)
