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
    """Writes the weights on each device to `resident` `[D]`; a shared weight counts once per device."""
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
    """Makespan, period and bytes above capacity of a finished run; all infinite if a route was missing."""
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
    tables: EngineTables, assignments: IntArray, state: EngineState, record: Recording, out: FloatArray
) -> None:
    """Runs `[B, N]` assignments (in the graph's numbers) and writes `result` of each to a row of `out` `[B, 3]`."""
    num_ops = len(tables.num_inputs)
    assignment = np.empty(num_ops, dtype=np.uint32)
    resident = np.empty(len(tables.capacity_bytes), dtype=np.int64)
    for row in range(len(assignments)):
        for op in range(num_ops):
            assignment[op] = assignments[row, tables.old_op[op]]
        reset(tables, assignment, state)
        advance(tables, assignment, state, record, num_ops, np.inf)
        out[row, 0], out[row, 1], out[row, 2] = result(tables, assignment, state, resident)
