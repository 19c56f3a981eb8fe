"""States of a run at some instants, from which later runs go on; compiled."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.sim.state import FAILED, NUM_TRANSFERS, EngineState
from gnnplace.sim.tables import EngineTables, IndexArray

_BLOCK = 64  # entries that are tested for zero at once


class KeptStates(NamedTuple):
    """Copies of `EngineState` at `K` instants; pages that are never written take no memory."""

    when_s: FloatArray  # [K]
    memory: IntArray  # [K, ...]
    num_uses: IntArray  # [K] entries of `uses` that are not zero; only these are copied
    used_at: IndexArray  # [K, T * D] where they are
    uses: IndexArray  # [K, T * D]
    transfers: IndexArray  # [K, C, 5] only the first NUM_TRANSFERS rows are copied


def kept_states(state: EngineState, count: int) -> KeptStates:
    """Room for `count` states."""
    return KeptStates(
        np.empty(count),
        np.empty((count, len(state.memory)), dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.empty((count, len(state.uses)), dtype=np.uint32),
        np.empty((count, len(state.uses)), dtype=np.int32),
        np.empty((count, *state.transfers.shape), dtype=np.uint32),
    )


def bytes_per_state(state: EngineState) -> int:
    """Bytes of one kept state, about: few of its uses and transfers are ever written."""
    return int(state.memory.nbytes + state.uses.nbytes)


@njit(cache=True, nogil=True, error_model="numpy")
def keep(state: EngineState, saved: KeptStates, row: int) -> None:
    """Copies the state to a row."""
    uses, count = state.uses, 0
    for begin in range(0, len(uses), _BLOCK):
        end, found = min(begin + _BLOCK, len(uses)), 0
        for entry in range(begin, end):
            found |= uses[entry]
        if found != 0:
            for entry in range(begin, end):
                if uses[entry] != 0:
                    saved.used_at[row, count], saved.uses[row, count] = entry, uses[entry]
                    count += 1
    saved.num_uses[row] = count
    saved.when_s[row] = state.now_s[0]
    saved.memory[row] = state.memory
    count = state.counters[NUM_TRANSFERS]
    saved.transfers[row, :count] = state.transfers[:count]


@njit(cache=True, nogil=True, error_model="numpy")
def restore(state: EngineState, saved: KeptStates, row: int) -> None:
    """Copies a row to the state, whose `uses` are all zero unless its run failed. Loops cost less than slices here."""
    if state.counters[FAILED]:
        state.uses[:] = 0
    for entry in range(saved.num_uses[row]):
        state.uses[saved.used_at[row, entry]] = saved.uses[row, entry]
    for entry in range(len(state.memory)):
        state.memory[entry] = saved.memory[row, entry]
    for transfer in range(state.counters[NUM_TRANSFERS]):
        for column in range(5):
            state.transfers[transfer, column] = saved.transfers[row, transfer, column]


def tensor_producers(tables: EngineTables) -> IntArray:
    """`[T]` the op that produces each tensor."""
    return np.repeat(np.arange(len(tables.num_inputs)), np.diff(tables.output_offsets))


@njit(cache=True, nogil=True, error_model="numpy")
def first_input_s(tables: EngineTables, producer: IntArray, end_s: FloatArray, op: int) -> float:
    """First end of a producer of `op`, 0 without inputs: nothing before it depends on the device of `op`.

    `producer` is `[T]`, `end_s` `[N]` the ends of ops.
    """
    first_s = np.inf
    for entry in range(tables.input_offsets[op], tables.input_offsets[op + 1]):
        first_s = min(first_s, end_s[producer[tables.input_tensors[entry]]])
    return first_s if first_s < np.inf else 0.0
