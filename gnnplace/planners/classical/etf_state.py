"""The state of a run of m-ETF: heaps of ops for each device, and what an op needs on a device."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.event_heap import pop_event, push_event
from gnnplace.planners.classical.list_state import (
    TRIED,
    Machine,
    State,
    Work,
    copied_bytes,
    hold_weights,
    inputs_s,
    new_bytes,
)

# Each device has four heaps of ops, ordered by key, then by place. An op is in at most one of the first three.
WAITING = 0  # its inputs arrive later than the device is free
AVAILABLE = 1  # its inputs are on the device
PARKED = 2  # the device lacks memory for now
URGENT = 3  # keys are the times at which the inputs could be on any device


class Run(NamedTuple):
    """The state of one scheduling run."""

    work: Work
    machine: Machine
    state: State
    order: IntArray  # [N] ops from the highest upward rank to the lowest; heaps hold places in this order
    place: IntArray  # [N] of each op in the order
    favourite: IntArray  # [N] child, -1: none
    stop: BoolArray  # [1] true once the schedule has to be finished in a hurry
    reserves: bool  # some op has a favourite child
    extra_s: FloatArray  # [N, D] time of the op beyond that on its fastest device
    successor_offsets: IntArray
    successors: IntArray
    free_s: FloatArray  # [D]
    last_op: IntArray  # [D] -1: none
    live_bytes: FloatArray  # [D] activations and copies, of a pool at its first device
    missing: IntArray  # [N] inputs that do not exist yet
    readers: IntArray  # [T] ops that have not read the tensor yet
    heap_key_s: FloatArray  # [4, D, N]
    heap_place: IntArray  # [4, D, N]
    heap_size: IntArray  # [4, D]


@njit(cache=True, nogil=True)
def push(run: Run, heap: int, device: int, key_s: float, place: int) -> None:
    """Adds an op by its place to a heap of the device."""
    push_event(run.heap_key_s[heap, device], run.heap_place[heap, device], run.heap_size[heap, device], key_s, place)
    run.heap_size[heap, device] += 1


@njit(cache=True, nogil=True)
def pop(run: Run, heap: int, device: int) -> None:
    """Removes the first op of a heap of the device."""
    run.heap_size[heap, device] -= 1
    pop_event(run.heap_key_s[heap, device], run.heap_place[heap, device], run.heap_size[heap, device])


@njit(cache=True, nogil=True)
def ready_s(op: int, device: int, row: int, run: Run) -> float:
    """Time at which all inputs of the op are on the device; see `inputs_s`."""
    work, machine, state = run.work, run.machine, run.state
    return inputs_s(
        op, device, row, work.input_offsets, work.input_tensors, work.producer, work.num_bytes, state.assignment, state.end_s,
        state.arrival_s, state.free_s, machine.channels, machine.route_offsets, machine.hop_latency_s, machine.hop_s_per_byte,
        machine.hop_channel, machine.segment_s, machine.intake_s_per_byte,
    )[0]  # fmt: skip


@njit(cache=True, nogil=True)
def bytes_to_copy(op: int, device: int, run: Run) -> float:
    """Bytes of the op's inputs that the device's memory would have to receive."""
    work, machine, state = run.work, run.machine, run.state
    return copied_bytes(
        op, device, work.input_offsets, work.input_tensors, work.producer, work.num_bytes, state.assignment, state.arrival_s,
        machine.memory_home, machine.pooled,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def place_unit(unit: int, device: int, run: Run) -> None:
    """Decides on the device of a unit and allocates its weights there."""
    work, state = run.work, run.state
    state.unit_device[unit] = device
    hold_weights(
        unit, run.machine.memory_home[device], work.unit_bytes, work.unit_weight_offsets, work.unit_weights, work.weight_bytes,
        state.held, state.resident,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def earliest_start_s(op: int, device: int, run: Run) -> float:
    """Start of an op on the device, later by its extra time there; infinite where it may not run or does not fit."""
    if not may_run(op, device, run) or lacking_bytes(op, device, run)[1] > 0:
        return np.inf
    ready, free = ready_s(op, device, TRIED, run), run.free_s[device]
    start = max(ready, free)
    return float(start + run.extra_s[op, device] + dispatch_s(start, device, run))


@njit(cache=True, nogil=True)
def dispatch_s(start: float, device: int, run: Run) -> float:
    """The device's dispatch overhead, unless the op follows on the device's last one."""
    last = run.last_op[device]
    ended = run.state.end_s[last] if last >= 0 else 0.0
    return float(run.machine.overhead_s[device] if start > ended else 0.0)


@njit(cache=True, nogil=True)
def may_run(op: int, device: int, run: Run) -> bool:
    """True where the op is not placed yet, and its times and its unit allow the device."""
    decided = run.state.unit_device[run.work.unit_of_op[op]]
    allowed = run.work.op_time_s[op, device] < np.inf and (decided < 0 or decided == device)
    return bool(run.state.assignment[op] < 0 and allowed)


@njit(cache=True, nogil=True)
def lacking_bytes(op: int, device: int, run: Run) -> tuple[float, float]:
    """Bytes that the device lacks for the op's weights, and for everything; 0 or less where it fits."""
    unit = run.work.unit_of_op[op]
    memory = run.machine.memory_home[device]
    weights = run.state.resident[memory] - run.machine.limit_bytes[device]
    if run.state.unit_device[unit] < 0:
        work = run.work
        weights += new_bytes(
            unit,
            memory,
            work.unit_bytes,
            work.unit_weight_offsets,
            work.unit_weights,
            work.weight_bytes,
            run.state.held,
        )
    activations = run.live_bytes[memory] + run.work.output_bytes[op] + run.work.workspace_bytes[op]
    return weights, weights + activations + bytes_to_copy(op, device, run)


@njit(cache=True, nogil=True)
def lacking_and_end(op: int, device: int, run: Run) -> tuple[float, float]:
    """Bytes that the device lacks for the op, and the end of the op there; a missing route is worse than missing memory."""
    ready = ready_s(op, device, TRIED, run)
    lacking = max(0.0, lacking_bytes(op, device, run)[1]) if ready < np.inf else 2.0**62
    return lacking, max(ready, run.free_s[device]) + run.work.op_time_s[op, device]
