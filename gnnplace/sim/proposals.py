"""Which units a random move takes, and where to. Compiled; a few numbers of chance per move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem, Proposals
from gnnplace.graph.unit_graph import UnitGraph, first_above, grow_cluster

__all__ = ["ProposalTables", "draw_move", "proposal_tables"]


class ProposalTables(NamedTuple):
    """`Proposals` as compiled code reads them."""

    units: IntArray  # [M] that moves begin at
    cumulative: FloatArray  # [M] weights of these units, summed up
    device_weights: FloatArray  # [U, D], zero where a unit may not go
    follow_neighbour: float
    cluster_share: float
    mean_cluster: float


def proposal_tables(problem: Problem, proposals: Proposals) -> ProposalTables:
    """No unit to begin at where none may move, or none that may has a weight.

    >>> from gnnplace.sim.example import diamond
    >>> proposals = Proposals(0.8, 0.5, 3.0, unit_weights=np.array([0.0, 1.0, 3.0, 0.0]))
    >>> tables = proposal_tables(diamond(), proposals)
    >>> tables.units.tolist(), tables.cumulative.tolist()
    ([1, 2], [1.0, 4.0])
    """
    units = problem.movable_units
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
    >>> draw_move(problem.unit_graph, tables, np.zeros(4, dtype=np.int64), np.random.default_rng(0), room)
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
