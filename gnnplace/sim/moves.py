"""Many moves from one placement, which share the simulation of all that happens before a move can have an effect.

A move changes nothing before the first producer of a moved op ends. The base placement runs once and the worker keeps its
state at up to `K` instants. Each move starts from the last kept state before its effect: about half an evaluation.
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

__all__ = ["EngineWorker", "Moves"]

_MAX_CHECKPOINTS = 32
_MOVES_WORTH_A_BASE_RUN = 4


class Moves(NamedTuple):
    """`M` moves of ops, in the engine's numbers."""

    offsets: IntArray  # [M + 1] where the ops of each move begin in `ops`
    ops: IntArray
    devices: IntArray  # [M]


class _Checkpoints(NamedTuple):
    """Copies of `EngineState` at `K` instants of the base run."""

    when_s: FloatArray  # [K]
    missing: IndexArray  # [K, N]
    uses: IndexArray  # [K, T * D]
    uses_window: IntArray  # [K, 2] first and last nonzero entry of `uses`; only these are copied
    ready: IndexArray  # [K, D, N / 64]
    ready_words: IndexArray  # [K, D, N / 4096]
    small_ints: IndexArray  # [K, ...]
    small_bytes: IntArray  # [K, ...]
    small_seconds: FloatArray  # [K, ...]
    queues: IndexArray  # [K, ...]
    transfers: IndexArray  # [K, C, 5] only the first NUM_TRANSFERS rows are copied


class _BaseRun(NamedTuple):
    """The placement that moves start from, after its run."""

    assignment: IndexArray  # [N]
    producer: IndexArray  # [T] producer of each tensor
    end_s: FloatArray  # [N]
    saved: _Checkpoints
    kept: int


def _checkpoints(state: EngineState, count: int) -> _Checkpoints:
    """Arrays for `count` checkpoints; pages that are never written take no memory."""

    def room(array: IndexArray) -> IndexArray:
        return np.empty((count, *array.shape), dtype=array.dtype)

    return _Checkpoints(
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
def _keep(state: EngineState, saved: _Checkpoints, row: int) -> None:
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
def _restore(state: EngineState, saved: _Checkpoints, row: int) -> None:
    """Copies a checkpoint to the state, whose `uses` are all zero unless its run failed. Loops cost less than slices here."""
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
def _keep_checkpoints(
    tables: EngineTables, base: IndexArray, state: EngineState, record: Recording, saved: _Checkpoints
) -> int:
    """Runs `base` `[N]` (in the engine's numbers), keeps evenly spread checkpoints and returns their number.

    `record` receives the ends of all ops. A base that lacks a route keeps no checkpoint.
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
def _first_change_s(tables: EngineTables, base: _BaseRun, op: int) -> float:
    """First end of a producer of `op`; nothing before it depends on the device of `op`."""
    first_s = np.inf
    for entry in range(tables.input_offsets[op], tables.input_offsets[op + 1]):
        first_s = min(first_s, base.end_s[base.producer[tables.input_tensors[entry]]])
    return first_s if first_s < np.inf else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _evaluate_moves(
    tables: EngineTables, base: _BaseRun, moves: Moves, state: EngineState, record: Recording, out: FloatArray
) -> None:
    """Writes makespan, period and shortfall of every move to `out` `[M, 3]`; `record` records nothing."""
    num_ops = len(base.assignment)
    assignment = base.assignment.copy()
    resident = np.empty(len(tables.capacity_bytes), dtype=np.int64)
    for move in range(len(moves.devices)):
        change_s = np.inf
        for op in moves.ops[moves.offsets[move] : moves.offsets[move + 1]]:
            if base.assignment[op] != moves.devices[move]:
                change_s = min(change_s, _first_change_s(tables, base, op))
                assignment[op] = moves.devices[move]
        row = int(np.searchsorted(base.saved.when_s[: base.kept], change_s)) - 1
        if row >= 0:
            _restore(state, base.saved, row)
        else:
            reset(tables, assignment, state)
        advance(tables, assignment, state, record, num_ops, np.inf)
        out[move, 0], out[move, 1], out[move, 2] = result(tables, assignment, state, resident)
        for op in moves.ops[moves.offsets[move] : moves.offsets[move + 1]]:
            assignment[op] = base.assignment[op]


class EngineWorker:
    """Engine state for one thread at a time, with the last base run of moves."""

    def __init__(self, tables: EngineTables) -> None:
        self.state = engine_state(tables)
        num_ops = len(tables.num_inputs)
        self._end_s = np.zeros(num_ops)
        self._saved = _checkpoints(self.state, min(_MAX_CHECKPOINTS, num_ops))
        self._assignment: IndexArray | None = None
        self._kept = 0

    def evaluate_moves(
        self, tables: EngineTables, producer: IndexArray, assignment: IndexArray, moves: Moves
    ) -> FloatArray:
        """`[M, 3]` makespan, period and shortfall after each move from `assignment` `[N]`, in the engine's numbers.

        `producer` `[T]` is the producer of each tensor. Few moves from a new assignment are evaluated without checkpoints.
        """
        if self._assignment is None or not np.array_equal(self._assignment, assignment):
            self._assignment, self._kept = None, 0
            if len(moves.devices) >= _MOVES_WORTH_A_BASE_RUN:
                record = no_recording()._replace(start_s=np.empty(len(assignment)), end_s=self._end_s)
                self._kept = _keep_checkpoints(tables, assignment, self.state, record, self._saved)
                self._assignment = assignment
        out = np.empty((len(moves.devices), 3))
        base = _BaseRun(assignment, producer, self._end_s, self._saved, self._kept)
        _evaluate_moves(tables, base, moves, self.state, no_recording(), out)
        return out
