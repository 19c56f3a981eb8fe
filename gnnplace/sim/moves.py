"""Many moves from one placement, which share the simulation of all that happens before a move can have an effect.

A move changes nothing before the first producer of a moved op ends. The base placement runs once and the worker keeps its
state at up to `K` instants. Each move starts from the last kept state before its effect: about half an evaluation.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.sim.engine import advance, result
from gnnplace.sim.kept_states import KeptStates, first_input_s, keep, kept_states, restore, tensor_producers
from gnnplace.sim.state import (
    COMPLETED,
    NO_RECORDING,
    EngineState,
    Recording,
    engine_state,
    reset,
)
from gnnplace.sim.tables import EngineTables, IndexArray

_MAX_CHECKPOINTS = 32
_MOVES_WORTH_A_BASE_RUN = 4


class Moves(NamedTuple):
    """`M` moves of ops, in the engine's numbers."""

    offsets: IntArray  # [M + 1] where the ops of each move begin in `ops`
    ops: IntArray
    devices: IntArray  # [M]


class _BaseRun(NamedTuple):
    """The placement that moves start from, after its run."""

    assignment: IndexArray  # [N]
    producer: IntArray  # [T] producer of each tensor
    end_s: FloatArray  # [N]
    saved: KeptStates
    kept: int


@njit(cache=True, nogil=True, error_model="numpy")
def _keep_checkpoints(
    tables: EngineTables, base: IndexArray, state: EngineState, record: Recording, saved: KeptStates
) -> int:
    """Runs `base` `[N]` (in the engine's numbers), keeps evenly spread checkpoints and returns their number.

    `record` receives the ends of all ops. A base that lacks a route keeps no checkpoint.
    """
    num_ops, count, kept = len(base), len(saved.when_s), 0
    reset(tables, base, state)
    for row in range(count):
        advance(tables, base, state, record, (row * num_ops) // count + 1, np.inf)
        if state.counters[COMPLETED] >= num_ops:
            break
        if kept == 0 or saved.when_s[kept - 1] < state.now_s[0]:
            keep(state, saved, kept)
            kept += 1
    advance(tables, base, state, record, num_ops, np.inf)
    return kept if state.counters[COMPLETED] == num_ops else 0


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
                change_s = min(change_s, first_input_s(tables, base.producer, base.end_s, op))
                assignment[op] = moves.devices[move]
        row = int(np.searchsorted(base.saved.when_s[: base.kept], change_s)) - 1
        if row >= 0:
            restore(state, base.saved, row)
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
        saved = kept_states(self.state, min(_MAX_CHECKPOINTS, num_ops))
        self._base = _BaseRun(np.empty(0, dtype=np.uint32), tensor_producers(tables), np.zeros(num_ops), saved, 0)

    def evaluate_moves(self, tables: EngineTables, assignment: IndexArray, moves: Moves) -> FloatArray:
        """`[M, 3]` makespan, period and shortfall after each move from `assignment` `[N]`, in the engine's numbers.

        Few moves from a new assignment are evaluated without checkpoints.
        """
        base = self._base
        if not np.array_equal(base.assignment, assignment):
            base = base._replace(assignment=assignment, kept=0)
            if len(moves.devices) >= _MOVES_WORTH_A_BASE_RUN:
                record = NO_RECORDING._replace(start_s=np.empty(len(assignment)), end_s=base.end_s)
                kept = _keep_checkpoints(tables, assignment, self.state, record, base.saved)
                base = self._base = base._replace(kept=kept)
        out = np.empty((len(moves.devices), 3))
        _evaluate_moves(tables, base, moves, self.state, NO_RECORDING, out)
        return out
