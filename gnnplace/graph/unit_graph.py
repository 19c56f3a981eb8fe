"""Units and the units that they exchange tensors with, and random connected sets of them; compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.compiled_code import njit

__all__ = ["UnitGraph", "first_above", "grow_cluster", "unit_graph"]


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
def _geometric(rng: np.random.Generator, mean: float) -> int:
    """A geometrically distributed integer, at least 1."""
    if mean <= 1.0:
        return 1
    return 1 + int(np.log(1.0 - rng.random()) / np.log(1.0 - 1.0 / mean))
