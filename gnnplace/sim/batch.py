"""Many placements of one problem in one compiled call."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.sim.engine import advance
from gnnplace.sim.state import FAILED, EngineState, Recording, reset
from gnnplace.sim.tables import EngineTables

__all__ = ["evaluate_all", "resident_bytes", "result"]


@njit(cache=True, nogil=True, error_model="numpy")
def resident_bytes(tables: EngineTables, assignment: NDArray[np.uint32], resident: IntArray) -> None:
    """Writes the weights on each device to `resident` `[D]`; a shared weight counts once per device.

    >>> from gnnplace.sim.example import diamond_tables
    >>> tables, resident = diamond_tables()._replace(memory_bytes=np.array([1, 2, 4, 8])), np.empty(2, dtype=np.int64)
    >>> resident_bytes(tables, np.array([0, 0, 1, 1], dtype=np.uint32), resident)
    >>> resident.tolist()
    [3, 12]
    """
    resident[:] = 0
    for op in range(len(tables.memory_bytes)):
        resident[assignment[op]] += tables.memory_bytes[op]
    for weight in range(len(tables.weight_bytes)):
        begin, end = tables.weight_offsets[weight], tables.weight_offsets[weight + 1]
        for entry in range(begin, end):
            device = assignment[tables.weight_consumers[entry]]
            first = True
            for earlier in range(begin, entry):
                if assignment[tables.weight_consumers[earlier]] == device:
                    first = False
                    break
            if first:
                resident[device] += tables.weight_bytes[weight]


@njit(cache=True, nogil=True, error_model="numpy")
def result(
    tables: EngineTables, assignment: NDArray[np.uint32], state: EngineState, resident: IntArray
) -> tuple[float, float, float]:
    """(makespan, period, bytes above capacity) of the run that `state` has finished; infinite when it had no route.

    >>> from gnnplace.sim.example import diamond_tables
    >>> from gnnplace.sim.state import engine_state, no_recording
    >>> tables, assignment = diamond_tables(), np.array([0, 0, 1, 1], dtype=np.uint32)
    >>> state = engine_state(tables)
    >>> reset(tables, assignment, state)
    >>> advance(tables, assignment, state, no_recording(), 4, np.inf)
    >>> [round(value, 3) for value in result(tables, assignment, state, np.empty(2, dtype=np.int64))]
    [4.001, 3.0, 0.0]
    """
    if state.counters[FAILED]:
        return np.inf, np.inf, np.inf
    resident_bytes(tables, assignment, resident)
    period_s, shortfall = 0.0, 0.0
    for device in range(len(resident)):
        period_s = max(period_s, state.device_busy_s[device])
        shortfall += max(0, resident[device] + state.peak_bytes[device] - tables.capacity_bytes[device])
    for channel in range(tables.num_channels):
        period_s = max(period_s, state.channel_busy_s[channel])
    return state.now_s[0], period_s, shortfall


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_all(
    tables: EngineTables,
    assignments: IntArray,
    state: EngineState,
    record: Recording,
    makespan_s: FloatArray,
    period_s: FloatArray,
    shortfall_bytes: FloatArray,
) -> None:
    """Runs `[B, N]` assignments (in the graph's numbers) one after the other and writes `[B]` results.

    >>> from gnnplace.sim.example import diamond_tables
    >>> from gnnplace.sim.state import engine_state, no_recording
    >>> tables, assignments = diamond_tables(), np.array([[0, 0, 0, 0], [0, 0, 1, 1]])
    >>> makespan_s, period_s, shortfall_bytes = np.empty((3, 2))
    >>> evaluate_all(tables, assignments, engine_state(tables), no_recording(), makespan_s, period_s, shortfall_bytes)
    >>> makespan_s.round(3).tolist(), period_s.tolist(), shortfall_bytes.tolist()
    ([6.0, 4.001], [6.0, 3.0], [0.0, 0.0])
    """
    num_ops = len(tables.num_inputs)
    assignment = np.empty(num_ops, dtype=np.uint32)
    resident = np.empty(len(tables.capacity_bytes), dtype=np.int64)
    for row in range(len(assignments)):
        for op in range(num_ops):
            assignment[op] = assignments[row, tables.old_op[op]]
        reset(tables, assignment, state)
        advance(tables, assignment, state, record, num_ops, np.inf)
        makespan_s[row], period_s[row], shortfall_bytes[row] = result(tables, assignment, state, resident)
