"""The engine's queues: ready ops as bits, coming events as a heap, transfers as chains. Compiled, a few instructions each."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray
from gnnplace.sim.tables import IndexArray

__all__ = ["Int32Array", "WordArray", "join", "pop_event", "pop_ready", "push_event", "push_ready", "touch"]

Int32Array = NDArray[Any]
WordArray = NDArray[Any]
Index = Any

ONE = np.uint64(1)  # unsigned plus a plain 1 would be a float
WORD = np.uint64(6)  # 64 = 2**6 bits in a word
LOW = np.uint64(63)
NOTHING = np.uint32(2**32 - 1)  # where a transfer's row would stand
_NEXT = 4  # column of a transfer's row, see EngineState


def _lowest_bit_code(typing_context: Any, word: Any) -> Any:
    """The position of the lowest bit that is set; the word is not zero. One machine instruction."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


_lowest_bit: Any = intrinsic(_lowest_bit_code)


@njit(cache=True, nogil=True, error_model="numpy")
def push_ready(bits: WordArray, summary: WordArray, device: Index, op: Index) -> None:
    """Marks an op as ready; `summary` has a bit for every word of `bits` that is not zero.

    >>> bits, summary = np.zeros((1, 2), dtype=np.uint64), np.zeros((1, 1), dtype=np.uint64)
    >>> push_ready(bits, summary, 0, np.uint64(70))
    >>> bits.tolist(), summary.tolist()  # bit 6 of the second word, and that the second word has one
    ([[0, 64]], [[2]])
    """
    word = op >> WORD
    bits[device, word] |= ONE << (op & LOW)
    summary[device, word >> WORD] |= ONE << (word & LOW)


@njit(cache=True, nogil=True, error_model="numpy")
def pop_ready(bits: WordArray, summary: WordArray, device: Index) -> Index:
    """Takes the smallest ready op, that is the one of highest priority; there is one.

    >>> bits, summary = np.zeros((1, 2), dtype=np.uint64), np.zeros((1, 1), dtype=np.uint64)
    >>> for op in (70, 3):
    ...     push_ready(bits, summary, 0, np.uint64(op))
    >>> [int(pop_ready(bits, summary, 0)) for _ in range(2)]
    [3, 70]
    """
    block = np.uint64(0)
    while summary[device, block] == 0:
        block += ONE
    word = (block << WORD) + _lowest_bit(summary[device, block])
    op = (word << WORD) + _lowest_bit(bits[device, word])
    bits[device, word] &= bits[device, word] - ONE
    if bits[device, word] == 0:
        summary[device, block] &= summary[device, block] - ONE
    return op


@njit(cache=True, nogil=True, error_model="numpy")
def push_event(event_s: FloatArray, event_id: Int32Array, size: Index, when_s: float, what: Index) -> None:
    """Adds an event to a heap of `size`; the earliest is on top, of one instant the smallest id.

    >>> event_s, event_id = np.empty(3), np.empty(3, dtype=np.int32)
    >>> for size, (when_s, what) in enumerate([(2.0, 0), (1.0, 7), (1.0, 4)]):
    ...     push_event(event_s, event_id, size, when_s, what)
    >>> float(event_s[0]), int(event_id[0])
    (1.0, 4)
    """
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if event_s[parent] < when_s or (event_s[parent] == when_s and event_id[parent] < what):
            break
        event_s[child] = event_s[parent]
        event_id[child] = event_id[parent]
        child = parent
    event_s[child] = when_s
    event_id[child] = what


@njit(cache=True, nogil=True, error_model="numpy")
def pop_event(event_s: FloatArray, event_id: Int32Array, size: Index) -> None:
    """Closes the gap at the top of a heap that keeps `size` events.

    >>> event_s, event_id = np.array([1.0, 2.0, 1.5]), np.array([4, 0, 7], dtype=np.int32)
    >>> pop_event(event_s, event_id, 2)
    >>> event_s[:2].tolist(), event_id[:2].tolist()
    ([1.5, 2.0], [7, 0])
    """
    last_s, last_id = event_s[size], event_id[size]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            event_s[right] < event_s[child] or (event_s[right] == event_s[child] and event_id[right] < event_id[child])
        ):
            child = right
        if event_s[child] > last_s or (event_s[child] == last_s and event_id[child] >= last_id):
            break
        event_s[hole] = event_s[child]
        event_id[hole] = event_id[child]
        hole = child
    event_s[hole] = last_s
    event_id[hole] = last_id


@njit(cache=True, nogil=True, error_model="numpy")
def touch(device: Index, touched: IndexArray, num_touched: int) -> int:
    """Notes, once, that a device may have something to start or a new peak. Returns how many are noted.

    >>> touched = np.zeros(2, dtype=np.uint32)
    >>> touch(1, touched, 0), touch(1, touched, 1), touched.tolist()
    (1, 1, [1, 0])
    """
    for position in range(num_touched):
        if touched[position] == device:
            return num_touched
    touched[num_touched] = device
    return num_touched + 1


@njit(cache=True, nogil=True, error_model="numpy")
def join(
    transfer: Index,
    channel: Index,
    queue_head: IndexArray,
    queue_tail: IndexArray,
    transfers: IndexArray,
    wake: IndexArray,
    num_wake: int,
) -> int:
    """Joins a channel's queue; an idle channel is noted in `wake`. Returns how many are noted.

    >>> head, tail, wake = np.array([NOTHING]), np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.uint32)
    >>> transfers = np.zeros((2, 5), dtype=np.uint32)
    >>> [join(transfer, 0, head, tail, transfers, wake, num_wake) for transfer, num_wake in ((0, 0), (1, 1))]
    [1, 1]
    >>> head.tolist(), tail.tolist()
    ([0], [1])
    """
    transfers[transfer, _NEXT] = NOTHING
    if queue_head[channel] == NOTHING:
        queue_head[channel] = transfer
        wake[num_wake] = channel
        num_wake += 1
    else:
        transfers[queue_tail[channel], _NEXT] = transfer
    queue_tail[channel] = transfer
    return num_wake
