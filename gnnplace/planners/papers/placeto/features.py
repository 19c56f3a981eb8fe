"""Placeto's features: which units depend on which, for pooling, and the node features of each step."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.process import PlacementProcess
from gnnplace.evaluation import Problem


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
class StaticInputs:
    """Inputs of the network for one graph that no step changes."""

    visited: IntArray  # [T] units that have a choice, in topological order
    visited_at: Tensor  # [U] step that visits the unit; the largest integer for units that cannot move
    amounts: Tensor  # [U, 2] cost and output size, each over the largest of the graph
    neighbours: tuple[Tensor, Tensor]  # sparse [U, U] each, see `adjacency`
    pools: Tensor  # [T, 3, U] see `pooling_sets`
    num_devices: int


class DynamicFeatures(NamedTuple):
    """Features that steps change, of `B` placements before one step."""

    start: Tensor  # [U, B] start of each unit as a fraction of the makespan
    device: Tensor  # [U, B]


def static_inputs(problem: Problem) -> StaticInputs:
    """The static inputs of a problem.

    Departures: a unit's cost, of which Placeto has one, is the mean over the devices that may run it. Episodes do not visit units
    that may only go to one device.
    """
    units, visited = problem.num_units, problem.movable_units.copy()
    allowed = problem.action_mask[problem.unit_of_op]
    times = np.where(allowed & np.isfinite(problem.op_time_s), problem.op_time_s, 0.0)
    cost = np.bincount(problem.unit_of_op, times.sum(axis=1) / np.maximum(1, allowed.sum(axis=1)), minlength=units)
    owner = problem.unit_of_op[problem.graph.tensor_producer]
    sizes = np.bincount(owner, problem.graph.tensor_bytes.astype(np.float64), minlength=units)
    visited_at = np.full(units, np.iinfo(np.int64).max)
    visited_at[visited] = np.arange(len(visited))
    amounts = np.stack([_over_largest(cost), _over_largest(sizes)], axis=1)
    return StaticInputs(
        visited,
        torch.from_numpy(visited_at),
        torch.from_numpy(amounts).float(),
        adjacency(problem.unit_edges, units),
        torch.from_numpy(pooling_sets(reachability(problem))[visited]).float(),
        problem.topology.num_devices,
    )


def adjacency(edges: IntArray, units: int) -> tuple[Tensor, Tensor]:
    """Sparse `[U, U]` matrices whose row `v` sums over the producers of `v`'s inputs, and over the consumers of its outputs."""
    ends, ones = torch.tensor(edges), torch.ones(edges.shape[1])
    along, against = (
        torch.sparse_coo_tensor(rows, ones, (units, units), check_invariants=False).coalesce()
        for rows in (ends.flip(0), ends)
    )
    return along, against


def dynamic_features(process: PlacementProcess) -> DynamicFeatures:
    """The dynamic features of placements between two steps."""
    timing, ops, first = process.schedules(), process.tables.unit_ops, process.tables.unit_offsets[:-1]
    start = np.minimum.reduceat(timing.start_s[:, ops], first, axis=1)
    relative = start / np.maximum(timing.makespan_s[:, None], 1e-300)
    return DynamicFeatures(torch.from_numpy(relative.T).float(), torch.from_numpy(process.devices.T.copy()))


def node_features(static: StaticInputs, dynamic: DynamicFeatures, current: Tensor, steps: Tensor) -> Tensor:
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
