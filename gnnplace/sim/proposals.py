"""Which units a random move takes, and where to. Compiled; a few numbers of chance per move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.evaluation import Problem, Proposals

__all__ = [
    "ProposalTables",
    "UnitGraph",
    "draw_move",
    "first_above",
    "grow_cluster",
    "movable_units",
    "proposal_tables",
    "unit_graph",
]


class UnitGraph(NamedTuple):
    """Units, what they exchange tensors with, and where they may go."""

    neighbour_offsets: IntArray  # [U + 1]
    neighbours: IntArray
    allowed: BoolArray  # [U, D]


class ProposalTables(NamedTuple):
    """`Proposals` as compiled code reads them."""

    units: IntArray  # [M] that moves begin at
    cumulative: FloatArray  # [M] weights of these units, summed up
    device_weights: FloatArray  # [U, D], zero where a unit may not go
    follow_neighbour: float
    cluster_share: float
    mean_cluster: float


def unit_graph(problem: Problem) -> UnitGraph:
    """Each neighbour of a unit once, whichever way and however many tensors go.

    >>> from gnnplace.sim.example import diamond
    >>> graph = unit_graph(diamond())
    >>> graph.neighbour_offsets.tolist(), graph.neighbours.tolist()
    ([0, 2, 4, 6, 8], [1, 2, 0, 3, 0, 3, 1, 2])
    """
    source, target = (problem.unit_of_op[ends] for ends in problem.graph.edges)
    pairs = np.stack([np.concatenate([source, target]), np.concatenate([target, source])])
    pairs = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1)
    offsets, neighbours = csr(pairs[0], pairs[1], problem.num_units)
    return UnitGraph(offsets, neighbours, problem.action_mask)


def movable_units(problem: Problem) -> IntArray:
    """Units that may go to more than one device.

    >>> from dataclasses import replace
    >>> from gnnplace.sim.example import diamond
    >>> times = np.array([[1.0, np.inf], [2.0, 2.0], [2.0, 2.0], [1.0, np.inf]])
    >>> movable_units(replace(diamond(), op_time_s=times)).tolist()
    [1, 2]
    """
    return np.flatnonzero(problem.action_mask.sum(axis=1) > 1)


def proposal_tables(problem: Problem, proposals: Proposals) -> ProposalTables:
    """No unit to begin at where none may move, or none that may has a weight.

    >>> from gnnplace.sim.example import diamond
    >>> proposals = Proposals(0.8, 0.5, 3.0, unit_weights=np.array([0.0, 1.0, 3.0, 0.0]))
    >>> tables = proposal_tables(diamond(), proposals)
    >>> tables.units.tolist(), tables.cumulative.tolist()
    ([1, 2], [1.0, 4.0])
    """
    units = movable_units(problem)
    weights = np.ones(problem.num_units) if proposals.unit_weights is None else proposals.unit_weights
    units = units[weights[units] > 0]
    device_weights = problem.action_mask.astype(np.float64)
    if proposals.device_weights is not None:
        device_weights = np.where(problem.action_mask, proposals.device_weights, 0.0)
    return ProposalTables(
        units, np.cumsum(weights[units], dtype=np.float64), device_weights,
        proposals.follow_neighbour, proposals.cluster_share, proposals.mean_cluster,
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def draw_move(
    graph: UnitGraph, tables: ProposalTables, device_of_unit: IntArray, rng: np.random.Generator, room: IntArray
) -> tuple[int, int]:
    """How many units move, and to which device; all are on one other device now.

    They are written to the first row of `room` `[3, U]`; the others are scratch. Plain loops: they compile in a fraction
    of the time that array expressions take, and such moves are small.

    >>> from gnnplace.sim.example import diamond
    >>> problem, room = diamond(), np.empty((3, 4), dtype=np.int64)
    >>> tables = proposal_tables(problem, Proposals(0.8, 0.0, 1.0, unit_weights=np.array([0.0, 0.0, 1.0, 0.0])))
    >>> draw_move(unit_graph(problem), tables, np.zeros(4, dtype=np.int64), np.random.default_rng(0), room)
    (1, 1)
    >>> int(room[0, 0])
    2
    """
    unit = tables.units[first_above(tables.cumulative, rng.random() * tables.cumulative[-1])]
    device = _target(graph, tables, device_of_unit, rng, unit)
    members = room[0]
    members[0] = unit
    count = 1
    if rng.random() < tables.cluster_share:
        count = grow_cluster(graph, tables.mean_cluster, device_of_unit, rng, room)
    kept = 0
    for index in range(count):
        if graph.allowed[members[index], device]:
            members[kept] = members[index]
            kept += 1
    return kept, device


@njit(cache=True, nogil=True, error_model="numpy")
def first_above(cumulative: FloatArray, value: float) -> int:
    """The first index whose entry is above the value, else the last one.

    >>> [first_above(np.array([1.0, 3.0, 6.0]), value) for value in (0.5, 1.0, 6.0)]
    [0, 1, 2]
    """
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True, error_model="numpy")
def _target(
    graph: UnitGraph, tables: ProposalTables, device_of_unit: IntArray, rng: np.random.Generator, unit: int
) -> int:
    """The device of a random neighbour at times, else one by its weight; never the one where the unit is."""
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
    evenly = total == 0.0  # no other device has any weight
    left, chosen = rng.random() * (others if evenly else total), -1
    for device in range(weights.shape[1]):
        weight = 1.0 if evenly else weights[unit, device]
        if device != here and graph.allowed[unit, device] and weight > 0.0:
            chosen = device
            left -= weight
            if left < 0.0:
                break
    return chosen


@njit(cache=True, nogil=True, error_model="numpy")
def grow_cluster(
    graph: UnitGraph, mean_cluster: float, device_of_unit: IntArray, rng: np.random.Generator, room: IntArray
) -> int:
    """Adds a random connected set of units on the device of the first member; returns how many there are then.

    From a random member at the border, all of its neighbours there that are not in yet, or so many as are still missing.

    >>> from gnnplace.sim.example import diamond
    >>> room, devices = np.zeros((3, 4), dtype=np.int64), np.array([0, 0, 0, 1])
    >>> count = grow_cluster(unit_graph(diamond()), 100.0, devices, np.random.default_rng(0), room)
    >>> sorted(room[0, :count].tolist())  # all that is connected on the device of unit 0
    [0, 1, 2]
    """
    members, border, fresh = room[0], room[1], room[2]
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
            # Looked for among the few members: quicker than keeping marks.
            position = 0
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
def _geometric(rng: np.random.Generator, mean: float) -> int:
    """A whole number from 1, geometrically distributed."""
    if mean <= 1.0:
        return 1
    return 1 + int(np.log(1.0 - rng.random()) / np.log(1.0 - 1.0 / mean))
