"""Many moves from one placement: what happens before a move can matter is simulated once, for all of them.

A move changes nothing before the first of its ops' producers ends. The base placement is run once and its state kept at up to
`K` instants; each move then starts from the last of them that lies before that moment, so it costs about half an evaluation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.sim.batch import result
from gnnplace.sim.engine import advance
from gnnplace.sim.state import (
    COMPLETED,
    FAILED,
    NUM_TRANSFERS,
    EngineState,
    Recording,
    engine_state,
    no_recording,
    reset,
)
from gnnplace.sim.tables import EngineTables, IndexArray

__all__ = ["MoveBase", "checkpoints", "evaluate_moves", "keep_checkpoints"]

_MAX_CHECKPOINTS = 32


class Checkpoints(NamedTuple):
    """Copies of `EngineState` at `K` instants of the base run; `uses` only where it is not zero."""

    when_s: FloatArray  # [K]
    missing: IndexArray  # [K, N]
    uses: IndexArray  # [K, T * D]
    uses_window: IntArray  # [K, 2] first and last entry of `uses` that is not zero
    ready: IndexArray  # [K, D, N / 64]
    ready_words: IndexArray  # [K, D, N / 4096]
    small_ints: IndexArray  # [K, ...]
    small_bytes: IntArray  # [K, ...]
    small_seconds: FloatArray  # [K, ...]
    queues: IndexArray  # [K, ...]
    transfers: IndexArray  # [K, C, 5] the first NUM_TRANSFERS rows


def checkpoints(tables: EngineTables, state: EngineState, count: int) -> Checkpoints:
    """Room for `count` checkpoints; pages that are never written take no memory.

    >>> from gnnplace.sim.example import diamond_tables
    >>> from gnnplace.sim.state import engine_state
    >>> tables = diamond_tables()
    >>> room = checkpoints(tables, engine_state(tables), 2)
    >>> room.when_s.shape, room.missing.shape  # two instants, four ops
    ((2,), (2, 4))
    """

    def room(array: IndexArray) -> IndexArray:
        return np.empty((count, *array.shape), dtype=array.dtype)

    return Checkpoints(
        when_s=np.empty(count),
        missing=room(state.missing),
        uses=room(state.uses),
        uses_window=np.empty((count, 2), dtype=np.int64),
        ready=room(state.ready),
        ready_words=room(state.ready_words),
        small_ints=room(state.small_ints),
        small_bytes=room(state.small_bytes),
        small_seconds=room(state.small_seconds),
        queues=room(state.queues),
        transfers=room(state.transfers),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _keep(state: EngineState, saved: Checkpoints, row: int) -> None:
    first, last = len(state.uses), -1
    for entry in range(len(state.uses)):
        if state.uses[entry] != 0:
            first = min(first, entry)
            last = entry
    saved.uses_window[row, 0], saved.uses_window[row, 1] = first, last
    saved.uses[row, first : last + 1] = state.uses[first : last + 1]
    saved.when_s[row] = state.now_s[0]
    saved.missing[row] = state.missing
    saved.ready[row] = state.ready
    saved.ready_words[row] = state.ready_words
    saved.small_ints[row] = state.small_ints
    saved.small_bytes[row] = state.small_bytes
    saved.small_seconds[row] = state.small_seconds
    count = state.counters[NUM_TRANSFERS]
    saved.queues[row] = state.queues
    saved.transfers[row, :count] = state.transfers[:count]


@njit(cache=True, nogil=True, error_model="numpy")
def _restore(state: EngineState, saved: Checkpoints, row: int) -> None:
    """The other way; `uses` is all zero after a run that has not failed. Plain loops, as slices cost more than they copy."""
    if state.counters[FAILED]:
        state.uses[:] = 0
    for entry in range(saved.uses_window[row, 0], saved.uses_window[row, 1] + 1):
        state.uses[entry] = saved.uses[row, entry]
    for op in range(len(state.missing)):
        state.missing[op] = saved.missing[row, op]
    for entry in range(len(state.small_ints)):
        state.small_ints[entry] = saved.small_ints[row, entry]
    for entry in range(len(state.small_bytes)):
        state.small_bytes[entry] = saved.small_bytes[row, entry]
    for entry in range(len(state.small_seconds)):
        state.small_seconds[entry] = saved.small_seconds[row, entry]
    for device in range(len(state.ready)):
        for word in range(state.ready.shape[1]):
            state.ready[device, word] = saved.ready[row, device, word]
        for word in range(state.ready_words.shape[1]):
            state.ready_words[device, word] = saved.ready_words[row, device, word]
    for entry in range(len(state.queues)):
        state.queues[entry] = saved.queues[row, entry]
    for transfer in range(state.counters[NUM_TRANSFERS]):
        for column in range(5):
            state.transfers[transfer, column] = saved.transfers[row, transfer, column]


@njit(cache=True, nogil=True, error_model="numpy")
def keep_checkpoints(
    tables: EngineTables, base: IndexArray, state: EngineState, record: Recording, saved: Checkpoints
) -> int:
    """Runs `base` `[N]` (in the engine's numbers) and keeps its state evenly spread; returns how many were kept.

    `record` takes the ends of all ops. A base without a route keeps nothing.

    >>> from gnnplace.sim.example import diamond_tables
    >>> from gnnplace.sim.state import engine_state, recording
    >>> tables, alone = diamond_tables(), np.zeros(4, dtype=np.uint32)
    >>> state, record = engine_state(tables), recording(tables)
    >>> saved = checkpoints(tables, state, 2)
    >>> keep_checkpoints(tables, alone, state, record, saved), saved.when_s.tolist(), record.end_s.tolist()
    (2, [1.0, 5.0], [1.0, 3.0, 5.0, 6.0])
    """
    num_ops = len(base)
    count = len(saved.when_s)
    reset(tables, base, state)
    kept = 0
    for row in range(count):
        advance(tables, base, state, record, (row * num_ops) // count + 1, np.inf)
        if state.counters[COMPLETED] >= num_ops:
            break
        if kept == 0 or saved.when_s[kept - 1] < state.now_s[0]:
            _keep(state, saved, kept)
            kept += 1
    advance(tables, base, state, record, num_ops, np.inf)
    return kept if state.counters[COMPLETED] == num_ops else 0


@njit(cache=True, nogil=True, error_model="numpy")
def _first_change_s(tables: EngineTables, op: int, producer: IndexArray, end_s: FloatArray) -> float:
    """The moment up to which nothing depends on where `op` is: the first end of one of its producers."""
    first_s = np.inf
    for entry in range(tables.input_offsets[op], tables.input_offsets[op + 1]):
        first_s = min(first_s, end_s[producer[tables.input_tensors[entry]]])
    return first_s if first_s < np.inf else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_moves(
    tables: EngineTables,
    base: IndexArray,
    producer: IndexArray,
    state: EngineState,
    record: Recording,
    end_s: FloatArray,
    saved: Checkpoints,
    kept: int,
    move_offsets: IntArray,
    moved_ops: IntArray,
    devices: IntArray,
    out: FloatArray,
) -> None:
    """Writes (makespan, period, shortfall) of every move to `out` `[M, 3]`.

    >>> from gnnplace.sim.example import diamond_tables
    >>> from gnnplace.sim.state import engine_state, no_recording, recording
    >>> tables, alone, producer = diamond_tables(), np.zeros(4, dtype=np.uint32), np.array([0, 1, 2], dtype=np.uint32)
    >>> state, record, out = engine_state(tables), recording(tables), np.empty((2, 3))
    >>> saved = checkpoints(tables, state, 2)
    >>> kept = keep_checkpoints(tables, alone, state, record, saved)
    >>> moves = np.array([0, 1, 2]), np.array([2, 3]), np.array([1, 1])  # the third op, or the fourth, to the other device
    >>> evaluate_moves(tables, alone, producer, state, no_recording(), record.end_s, saved, kept, *moves, out)
    >>> out[:, 0].round(3).tolist()
    [4.002, 6.001]

    Args:
        tables: of the problem.
        base: `[N]` the placement that every move starts from, in the engine's numbers.
        producer: `[T]` producer of each tensor, in the engine's numbers.
        state: of this thread.
        record: one that writes nothing.
        end_s: `[N]` ends of the ops in the base run.
        saved: checkpoints of the base run.
        kept: how many there are.
        move_offsets: `[M + 1]` where the ops of each move begin in `moved_ops`.
        moved_ops: ops that move, in the engine's numbers.
        devices: `[M]` where they go.
        out: `[M, 3]`.
    """
    num_ops = len(base)
    assignment = base.copy()
    resident = np.empty(len(tables.capacity_bytes), dtype=np.int64)
    for move in range(len(devices)):
        change_s = np.inf
        for op in moved_ops[move_offsets[move] : move_offsets[move + 1]]:
            if base[op] != devices[move]:
                change_s = min(change_s, _first_change_s(tables, op, producer, end_s))
                assignment[op] = devices[move]
        row = int(np.searchsorted(saved.when_s[:kept], change_s)) - 1
        if row >= 0:
            _restore(state, saved, row)
        else:
            reset(tables, assignment, state)
        advance(tables, assignment, state, record, num_ops, np.inf)
        out[move, 0], out[move, 1], out[move, 2] = result(tables, assignment, state, resident)
        for op in moved_ops[move_offsets[move] : move_offsets[move + 1]]:
            assignment[op] = base[op]


class MoveBase:
    """Engine state of one thread, and the base run that it evaluated moves from last."""

    def __init__(self, tables: EngineTables) -> None:
        self.state = engine_state(tables)
        self.end_s = np.zeros(len(tables.num_inputs))
        self.saved: Checkpoints = checkpoints(tables, self.state, min(_MAX_CHECKPOINTS, len(self.end_s)))
        self._assignment: IntArray | None = None
        self._kept = 0

    def knows(self, assignment: IntArray) -> bool:
        """Whether the last base run was of this assignment."""
        return self._assignment is not None and np.array_equal(self._assignment, assignment)

    def forget(self) -> None:
        """Makes the next moves run their base again."""
        self._assignment = None

    def base(self, tables: EngineTables, base: IndexArray, assignment: IntArray) -> tuple[IndexArray, int]:
        """Runs the base placement, unless it was the last one; gives it and its number of checkpoints."""
        if not self.knows(assignment):
            no_hops = no_recording()
            record = no_hops._replace(start_s=np.empty(len(base)), end_s=self.end_s)
            self._kept = keep_checkpoints(tables, base, self.state, record, self.saved)
            self._assignment = np.array(assignment, dtype=np.int64)
        return base, self._kept
