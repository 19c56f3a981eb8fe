"""Compiled intervals in which the devices of a list schedule are busy, and the gaps between them."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.compiled_code import inlined


class Busy(NamedTuple):
    """Intervals in which a device cannot run an op, in order of time; device `d` has `size[d]` of them.

    The device is busy itself, or a device that it shares a resource with is; such intervals are joined where they overlap.
    """

    start_s: FloatArray  # [D, N]
    end_s: FloatArray  # [D, N]
    is_own: BoolArray  # [D, N] true where the interval ends with an op of the device itself
    size: IntArray  # [D]


@njit(cache=True, nogil=True)
def no_intervals(num_devices: int, num_ops: int) -> Busy:
    """Room for the intervals of all ops on every device."""
    shape = (num_devices, num_ops)
    return Busy(
        np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.bool_), np.zeros(num_devices, dtype=np.int64)
    )


@inlined
def insert(
    device: int,
    place: int,
    interval: tuple[float, float, bool],
    start_s: FloatArray,
    end_s: FloatArray,
    is_own: BoolArray,
    size: IntArray,
) -> None:
    """Inserts an interval of a device before the one at `place`; the arrays are those of `Busy`."""
    for at in range(size[device], place, -1):
        start_s[device, at], end_s[device, at] = start_s[device, at - 1], end_s[device, at - 1]
        is_own[device, at] = is_own[device, at - 1]
    start_s[device, place], end_s[device, place], is_own[device, place] = interval
    size[device] += 1


@njit(cache=True, nogil=True)
def block(device: int, start: float, end: float, busy: Busy) -> None:
    """Adds an interval of another device, joined with those that it overlaps."""
    place, is_own = int(np.searchsorted(busy.end_s[device, : busy.size[device]], start, side="right")), False
    last = place
    while last < busy.size[device] and busy.start_s[device, last] < end:
        start = min(start, busy.start_s[device, last])
        if busy.end_s[device, last] > end:
            end, is_own = busy.end_s[device, last], busy.is_own[device, last]
        last += 1
    removed = last - place
    for at in range(last, busy.size[device] if removed else 0):
        busy.start_s[device, at - removed], busy.end_s[device, at - removed] = (
            busy.start_s[device, at],
            busy.end_s[device, at],
        )
        busy.is_own[device, at - removed] = busy.is_own[device, at]
    busy.size[device] -= removed
    insert(device, place, (start, end, is_own), busy.start_s, busy.end_s, busy.is_own, busy.size)


@inlined
def slot(
    ready: float,
    seconds: float,
    overhead_s: float,
    device: int,
    start_s: FloatArray,
    end_s: FloatArray,
    is_own: BoolArray,
    size: IntArray,
) -> tuple[float, float, int]:
    """Start, end and place of the earliest gap that is long enough; the arrays are those of `Busy`.

    The overhead counts unless the device itself was busy until then.
    """
    count = size[device]
    place = int(np.searchsorted(end_s[device, :count], ready))
    while True:
        free = end_s[device, place - 1] if place else 0.0
        start = max(ready, free)
        goes_on = start == free and (place == 0 or is_own[device, place - 1])
        end = start + seconds + (0.0 if goes_on else overhead_s)
        if place == count or end <= start_s[device, place]:
            break
        place += 1
    return start, end, place
