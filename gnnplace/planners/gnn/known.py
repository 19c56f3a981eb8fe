"""Seconds of the placements that a search has evaluated, so that none is paid for twice; compiled code reads and writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.typed import Dict
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray

__all__ = ["HashArray", "Known", "note", "nothing_known", "placement_hash", "recall", "unit_hashes"]


HashArray = NDArray[np.uint64]
Known = Any
"""A Numba dictionary from hash to seconds."""


def nothing_known() -> Known:
    """An empty one.

    >>> len(nothing_known())
    0
    """
    return Dict.empty(types.uint64, types.float64)


def unit_hashes(num_units: int, num_devices: int) -> HashArray:
    """`[U, D]` random numbers, always the same ones; a placement's hash is their exclusive or (Zobrist 1970).

    >>> unit_hashes(4, 2).shape, bool((unit_hashes(4, 2) == unit_hashes(4, 2)).all())
    ((4, 2), True)
    """
    return np.random.default_rng(0).integers(2**64, size=(num_units, num_devices), dtype=np.uint64)


@njit(cache=True, nogil=True)
def placement_hash(hashes: HashArray, devices: IntArray) -> np.uint64:
    """Of the units' devices `[U]`.

    >>> hashes = unit_hashes(2, 2)
    >>> int(placement_hash(hashes, np.array([0, 1]))) == int(hashes[0, 0] ^ hashes[1, 1])
    True
    """
    value = np.uint64(0)
    for unit in range(len(devices)):
        value ^= hashes[unit, devices[unit]]
    return value


@njit(cache=True, nogil=True)
def recall(known: Known, value: np.uint64) -> float:
    """Seconds of a placement; NaN where it is not known.

    >>> known, hashes = nothing_known(), np.array([7], dtype=np.uint64)
    >>> note(known, hashes, np.array([4.0]))
    >>> recall(known, hashes[0]), recall(known, np.uint64(8))
    (4.0, nan)
    """
    return float(known[value]) if value in known else np.nan


@njit(cache=True, nogil=True)
def note(known: Known, hashes: HashArray, seconds: FloatArray) -> None:
    """What placements of these hashes `[K]` take.

    >>> known = nothing_known()
    >>> note(known, np.array([7, 8], dtype=np.uint64), np.array([4.0, 6.0]))
    >>> [recall(known, np.uint64(value)) for value in (7, 8)]
    [4.0, 6.0]
    """
    for entry in range(len(hashes)):
        known[hashes[entry]] = seconds[entry]
