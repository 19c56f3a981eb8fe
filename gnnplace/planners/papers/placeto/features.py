"""Which units depend on which: the sets over which Placeto pools."""

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
    "Seen",
    "StaticFeatures",
    "look",
    "node_features",
    "pooling_sets",
    "reachability",
    "static_features",
]


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


NUM_PLAIN_FEATURES = 5
"""Cost, output size, number of visits, is current, relative start; then one column per device."""


@dataclass(frozen=True, eq=False)
class StaticFeatures:
    """What does not change during an episode."""

    amounts: Tensor  # [U, 2] cost and output size, each over the largest of the graph
    first_op: IntArray  # [U] an op of each unit
    visited_at: Tensor  # [U] the step that visits the unit; never for units that cannot move
    num_devices: int


@dataclass(frozen=True, eq=False)
class Seen:
    """What changes, before one step of `B` placements."""

    start: Tensor  # [U, B] when units start, as a fraction of the makespan
    device: Tensor  # [U, B]


def static_features(problem: Problem, visited: IntArray) -> StaticFeatures:
    """The static features for episodes that visit units in this order.

    Departure: one cost per unit whatever the device, as in Placeto, is here its mean over the devices that may run it.

    >>> from gnnplace.sim.example import diamond
    >>> static = static_features(diamond(), np.array([1, 2]))
    >>> static.amounts.tolist(), static.visited_at[1:3].tolist()
    ([[0.5, 1.0], [1.0, 1.0], [1.0, 1.0], [0.5, 0.0]], [0, 1])
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


def look(batch: PlacementBatch, static: StaticFeatures) -> Seen:
    """What is seen of placements between two steps.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> batch = PlacementBatch(problem).reset(np.array([[0, 0, 1, 1]]))
    >>> seen = look(batch, static_features(problem, np.arange(4)))
    >>> seen.start[:, 0].round(decimals=2).tolist(), seen.device[:, 0].tolist()
    ([0.0, 0.25, 0.25, 0.75], [0, 0, 1, 1])
    """
    timing, tables = batch.timing, batch.tables
    start = np.minimum.reduceat(timing.start_s[:, tables.unit_ops], tables.unit_offsets[:-1], axis=1)
    relative = start / np.maximum(timing.makespan_s[:, None], 1e-300)
    device = timing.assignment[:, static.first_op]
    return Seen(torch.from_numpy(relative.T).float(), torch.from_numpy(device.T.copy()))


def node_features(static: StaticFeatures, seen: Seen, current: Tensor, steps: Tensor) -> Tensor:
    """`[U, R, F]` before `R` decisions about units `current` `[R]` at `steps` `[R]`; `seen` has a column for each.

    Departure: starts are divided by the makespan, where Placeto divides by the largest one after the current unit's start has
    been taken off, which may be next to nothing.

    >>> from gnnplace.sim.example import diamond
    >>> static = static_features(diamond(), np.arange(4))
    >>> seen = Seen(torch.tensor([[0.0], [0.25], [0.25], [0.75]]), torch.tensor([[0], [0], [1], [1]]))
    >>> node_features(static, seen, current=torch.tensor([1]), steps=torch.tensor([1]))[1:3, 0].tolist()
    [[1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    """
    units, rows = seen.start.shape
    features = torch.zeros(units, rows, NUM_PLAIN_FEATURES + static.num_devices)
    features[:, :, :2] = static.amounts[:, None]
    features[:, :, 2] = (static.visited_at[:, None] < steps).float()
    features[current, torch.arange(rows), 3] = 1.0
    features[:, :, 4] = seen.start - seen.start[current, torch.arange(rows)]
    features[:, :, NUM_PLAIN_FEATURES:].scatter_(2, seen.device[:, :, None], 1.0)
    return features


def _over_largest(amounts: FloatArray | IntArray) -> FloatArray:
    return amounts / max(float(amounts.max(initial=0.0)), 1e-300)
