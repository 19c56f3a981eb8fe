"""Seconds of the placements that a search has evaluated, so that none is paid for twice: a hash table for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray

__all__ = ["HashArray", "Known", "KnownTable", "placement_hash", "recall", "unit_hashes"]

HashArray = NDArray[np.uint64]


class KnownTable(NamedTuple):
    """Open addressing with linear probing; a hash of 0 is an empty place."""

    hashes: HashArray  # [places] a power of two, at least half of them empty
    seconds: FloatArray  # [places]


class Known:
    """A table that grows."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.table = _empty(1024)
        self._count = 0

    def note(self, hashes: HashArray, seconds: FloatArray) -> None:
        """What placements of these hashes `[K]` take."""
        self._count += len(hashes)
        if 2 * self._count > len(self.table.hashes):
            larger = _empty(1 << (4 * self._count).bit_length())
            taken = self.table.hashes != 0
            _insert(larger, self.table.hashes[taken], self.table.seconds[taken])
            self.table = larger
        _insert(self.table, hashes, seconds)


def unit_hashes(num_units: int, num_devices: int) -> HashArray:
    """`[U, D]` random numbers, always the same ones; a placement's hash is their exclusive or (Zobrist 1970)."""
    return np.random.default_rng(0).integers(2**64, size=(num_units, num_devices), dtype=np.uint64)


@njit(cache=True, nogil=True)
def placement_hash(hashes: HashArray, devices: IntArray) -> np.uint64:
    """Of the units' devices `[U]`; never 0."""
    value = np.uint64(0)
    for unit in range(len(devices)):
        value ^= hashes[unit, devices[unit]]
    return max(value, np.uint64(1))


@njit(cache=True, nogil=True)
def recall(table: KnownTable, value: np.uint64) -> float:
    """Seconds of a placement; NaN where it is not known."""
    place = _place(table, value)
    return float(table.seconds[place]) if table.hashes[place] == value else np.nan


def _empty(places: int) -> KnownTable:
    return KnownTable(np.zeros(places, dtype=np.uint64), np.empty(places))


@njit(cache=True, nogil=True)
def _place(table: KnownTable, value: np.uint64) -> int:
    """Where a hash is, or would be."""
    last = np.uint64(len(table.hashes) - 1)
    place = value & last
    while table.hashes[place] != np.uint64(0) and table.hashes[place] != value:
        place = (place + np.uint64(1)) & last
    return int(place)


@njit(cache=True, nogil=True)
def _insert(table: KnownTable, hashes: HashArray, seconds: FloatArray) -> None:
    for entry in range(len(hashes)):
        place = _place(table, hashes[entry])
        table.hashes[place], table.seconds[place] = hashes[entry], seconds[entry]
