"""Random moves of units, as `Proposals` says, in compiled code."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.graph.units import UnitGraph, first_above, grow_cluster, unit_bytes
from gnnplace.local_search import Proposals

_TRIES = 16  # draws of units that may make room


class ProposalTables(NamedTuple):
    """`Proposals` as compiled code reads them."""

    units: IntArray  # [M] units that a move can begin at
    cumulative: FloatArray  # [M] cumulative weights of these units
    device_weights: FloatArray  # [U, D] zero where a unit may not go
    follow_neighbour: float
    cluster_share: float
    mean_cluster: float
    exchange_share: float
    unit_bytes: FloatArray  # [U]


def proposal_tables(problem: Problem, proposals: Proposals) -> ProposalTables:
    """The tables of `proposals`; `units` is empty if no movable unit has a weight."""
    units = problem.movable_units
    weights = np.ones(problem.num_units) if proposals.unit_weights is None else proposals.unit_weights
    units = units[weights[units] > 0]
    device_weights = problem.action_mask.astype(np.float64)
    if proposals.device_weights is not None:
        device_weights = np.where(problem.action_mask, proposals.device_weights, 0.0)
    return ProposalTables(
        units, np.cumsum(weights[units], dtype=np.float64), device_weights,
        proposals.follow_neighbour, proposals.cluster_share, proposals.mean_cluster, proposals.exchange_share,
        unit_bytes(problem.graph, problem.unit_of_op, 1.0),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def draw_move(
    graph: UnitGraph, tables: ProposalTables, device_of_unit: IntArray, rng: np.random.Generator, scratch: IntArray
) -> tuple[int, int, int]:
    """Draws a move: the number of units that move, the device that they move to, and the number of units that make room.

    The units are written to `scratch[0]` of `[3, U]`; all are on one other device. Those that make room come after them; they
    go the other way. Plain loops compile several times faster than array expressions, and such moves are small.
    """
    unit = tables.units[first_above(tables.cumulative, rng.random() * tables.cumulative[-1])]
    device = _target(graph, tables, device_of_unit, rng, unit)
    members = scratch[0]
    members[0] = unit
    count = 1
    if rng.random() < tables.cluster_share:
        count = grow_cluster(graph, tables.mean_cluster, device_of_unit, rng, scratch)
    kept = 0
    for index in range(count):
        if graph.allowed[members[index], device]:
            members[kept] = members[index]
            kept += 1
    back = 0
    if tables.exchange_share > 0.0 and rng.random() < tables.exchange_share:
        back = _draw_back(graph, tables, device_of_unit, rng, members, (kept, device))
    return kept, device, back


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_back(
    graph: UnitGraph,
    tables: ProposalTables,
    device_of_unit: IntArray,
    rng: np.random.Generator,
    members: IntArray,
    move: tuple[int, int],
) -> int:
    """Number of units that leave the device of a move, until they hold the bytes of its units; written behind these in `members`."""
    (count, device), back, missing = move, 0, 0.0
    here = device_of_unit[members[0]]
    for index in range(count):
        missing += tables.unit_bytes[members[index]]
    for _ in range(_TRIES):
        unit = tables.units[int(rng.random() * len(tables.units))]
        is_drawn = False
        for index in range(back):
            is_drawn = is_drawn or members[count + index] == unit
        if is_drawn or device_of_unit[unit] != device or not graph.allowed[unit, here]:
            continue
        members[count + back] = unit
        back += 1
        missing -= tables.unit_bytes[unit]
        if missing <= 0.0:
            break
    return back


@njit(cache=True, nogil=True, error_model="numpy")
def _target(
    graph: UnitGraph, tables: ProposalTables, device_of_unit: IntArray, rng: np.random.Generator, unit: int
) -> int:
    """A random neighbour's device, or a device drawn by its weight; never the unit's own."""
    here, weights = device_of_unit[unit], tables.device_weights
    begin, end = graph.neighbour_offsets[unit], graph.neighbour_offsets[unit + 1]
    if end > begin and rng.random() < tables.follow_neighbour:
        device = device_of_unit[graph.neighbours[begin + int(rng.random() * (end - begin))]]
        if device != here and graph.allowed[unit, device]:
            return int(device)
    total, others = 0.0, 0
    for device in range(weights.shape[1]):
        if device != here and graph.allowed[unit, device]:
            total += weights[unit, device]
            others += 1
    evenly = total == 0.0  # no other device has a weight
    left, chosen = rng.random() * (others if evenly else total), -1
    for device in range(weights.shape[1]):
        weight = 1.0 if evenly else weights[unit, device]
        if device != here and graph.allowed[unit, device] and weight > 0.0:
            chosen = device
            left -= weight
            if left < 0.0:
                break
    return chosen
