"""The engine for loops that other compiled code runs: the seconds of a placement of units, and its schedule."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.sim.engine import advance, resident_bytes, result
from gnnplace.sim.state import FAILED, NO_RECORDING, RECORDED, EngineState, Recording, engine_state, recording, reset
from gnnplace.sim.tables import EngineTables, IndexArray


class Minimised(NamedTuple):
    """What a search minimises: the seconds of `Problem.penalised_batch_s`."""

    throughput: bool
    penalty_s: float
    penalty_bytes: float

    @classmethod
    def of(cls, problem: Problem) -> "Minimised":
        """The objective and penalty of a problem."""
        return cls(problem.objective == "throughput", *problem.penalty)


@njit(cache=True, nogil=True, error_model="numpy")
def minimised_s(minimised: Minimised, outcome: tuple[float, float, float]) -> float:
    """The value of `Problem.penalised_batch_s`, bit for bit, from makespan, period and bytes above capacity."""
    makespan_s, period_s, shortfall_bytes = outcome
    objective_s = period_s if minimised.throughput else makespan_s
    if shortfall_bytes > 0:
        objective_s += (1.0 + shortfall_bytes / minimised.penalty_bytes) * minimised.penalty_s
    return objective_s


class CompiledRun(NamedTuple):
    """Arguments of the functions below; one thread uses them at a time."""

    minimised: Minimised
    tables: EngineTables
    state: EngineState
    record: Recording
    unit_of_op: IntArray  # [N] of the ops in the engine's numbers
    assignment: IndexArray  # [N] scratch
    resident: IntArray  # [D] scratch


def compiled_run(minimised: Minimised, tables: EngineTables, unit_of_op: IntArray, with_schedule: bool) -> CompiledRun:
    """The arguments for a graph; `unit_of_op` `[N]` has the graph's numbers."""
    num_ops, num_devices = tables.op_time_s.shape
    return CompiledRun(
        minimised,
        tables,
        engine_state(tables),
        recording(tables) if with_schedule else NO_RECORDING,
        unit_of_op[tables.old_op].astype(np.int64),
        np.zeros(num_ops, dtype=np.uint32),
        np.zeros(num_devices, dtype=np.int64),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run_units(run: CompiledRun, devices: IntArray) -> float:
    """The seconds that a search minimises of the devices `[U]` of units; infinite if a route was missing."""
    for op in range(len(run.unit_of_op)):
        run.assignment[op] = devices[run.unit_of_op[op]]
    reset(run.tables, run.assignment, run.state)
    advance(run.tables, run.assignment, run.state, run.record, len(run.unit_of_op), np.inf)
    return minimised_s(run.minimised, result(run.tables, run.assignment, run.state, run.resident))


@njit(cache=True, nogil=True, error_model="numpy")
def schedule_units(
    run: CompiledRun, devices: IntArray, op_s: FloatArray, hops: IntArray, hop_end_s: FloatArray, peak_bytes: FloatArray
) -> int:
    """Writes the schedule of the devices `[U]` of units; gives the number of hops, or -1 if a route was missing.

    In the graph's numbers: starts and ends of ops to `op_s` `[2, N]`, tensors and final destinations of hops to `hops` `[2, K]`,
    their ends to `hop_end_s` `[K]`, peak memory to `peak_bytes` `[D]`.
    """
    run_units(run, devices)
    if run.state.counters[FAILED]:
        return -1
    tables, record, count = run.tables, run.record, run.state.counters[RECORDED]
    for op in range(len(run.unit_of_op)):
        op_s[0, tables.old_op[op]], op_s[1, tables.old_op[op]] = record.start_s[op], record.end_s[op]
    for hop in range(count):
        hops[0, hop], hops[1, hop] = tables.old_tensor[record.tensor[hop]], record.target[hop]
        hop_end_s[hop] = record.hop_end_s[hop]
    resident_bytes(tables, run.assignment, run.resident)
    for device in range(len(peak_bytes)):
        home = tables.memory_home[device]
        peak_bytes[device] = run.resident[home] + run.state.peak_bytes[home]
    return int(count)
