"""Schedules whose decisions the policy makes, compiled: ops in order of upward rank, each unit on a device drawn by its scores.

One loop builds a placement from nothing, and decides a part of a complete one anew, given the rest: units that are not free
keep their device, and the complete schedule says what lies ahead.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.planners.classical.intervals import Busy, block, insert, no_intervals, slot
from gnnplace.planners.classical.list_state import (
    State,
    Work,
    copied_bytes,
    empty_state,
    free_read,
    missing_bytes,
    place_unit,
    ready_s,
    segment_start_s,
)
from gnnplace.planners.gnn.decision_features import Scratch, new_scratch, note_device, write_context, write_pair
from gnnplace.planners.gnn.decision_tables import DecisionTables, Reference
from gnnplace.policy.decisions import DECISION_CONTEXT, DECISION_INPUTS, DecisionParts, decision_scores


class Choice(NamedTuple):
    """How devices are drawn."""

    temperature: float
    """Of the scores; 0 takes the highest."""
    budget: float
    """The feature: 0 where one sample counts, 1 where the best of many does."""
    teacher: IntArray
    """`[U]` devices to take, as far as they are allowed; -1 or empty: the policy's."""


class DecisionTrace(NamedTuple):
    """Decisions with the features that they were made from; without rows nothing is recorded."""

    used: IntArray  # [1] number of rows so far
    pair: Float32Array  # [R, D, F]
    context: Float32Array  # [R, C]
    mask: BoolArray  # [R, D]
    units: IntArray  # [R]
    chosen: IntArray  # [R]


class Decided(NamedTuple):
    """A placement with its estimated schedule."""

    devices: IntArray  # [U]
    assignment: IntArray  # [N]
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    arrival_s: FloatArray  # [T, D] of copies; infinite where none was sent
    connected: bool
    """Whether all inputs had a route."""


class Decider(NamedTuple):
    """All that a search needs to decide units of its current placement anew."""

    tables: DecisionTables
    parts: DecisionParts
    reference: Reference
    choice: Choice
    untraced: DecisionTrace


def empty_trace(rows: int, num_devices: int) -> DecisionTrace:
    """Room for the features of `rows` decisions."""
    return DecisionTrace(
        np.zeros(1, dtype=np.int64), np.zeros((rows, num_devices, DECISION_INPUTS), dtype=np.float32),
        np.zeros((rows, len(DECISION_CONTEXT)), dtype=np.float32), np.zeros((rows, num_devices), dtype=np.bool_),
        np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64),
    )  # fmt: skip


NO_TEACHER: IntArray = np.zeros(0, dtype=np.int64)


@njit(cache=True, nogil=True, error_model="numpy")
def decide(
    tables: DecisionTables,
    reference: Reference,
    parts: DecisionParts,
    choice: Choice,
    trace: DecisionTrace,
    rng: np.random.Generator,
) -> Decided:
    """The decisions for all units that are free in the reference, and the schedule that they lead to.

    A device that lacks memory is an option only where all do, the one that lacks least.
    """
    work, machine, scales = tables.work, tables.machine, tables.scales
    num_ops, num_devices = work.op_time_s.shape
    state, busy = empty_state(work, machine), no_intervals(num_devices, num_ops)
    live_bytes, peak_bytes, readers = np.zeros(num_devices), np.zeros(num_devices), work.readers.copy()
    scratch = new_scratch(tables, parts)
    mask, end_s = scratch.mask, scratch.end_s
    free_share = reference.free.sum() / len(reference.free)
    horizon_s, longest_s, done_s, last, connected = 0.0, 0.0, 0.0, -1, True
    left_bytes = tables.needed_bytes.sum()
    for op in tables.order:
        unit = work.unit_of_op[op]
        is_new = state.unit_device[unit] < 0
        kept = state.unit_device[unit]
        if is_new and not reference.free[unit]:
            kept = reference.devices[unit]
        options = _try_devices(op, unit, kept, is_new, tables, state, busy, live_bytes, peak_bytes, scratch)
        best = kept
        if options == 0:
            connected = False
            best = _unconnected(op, kept, horizon_s, work, busy, scratch)
        elif kept < 0:
            best = np.argmax(mask)
            if options > 1:
                write_pair(op, unit, last, longest_s, tables, reference, state, busy, scratch)
                progress = done_s / scales.all_ops_s
                room = _room(left_bytes, live_bytes, tables, state)
                write_context(
                    op, unit, progress, horizon_s, free_share, room, choice.budget, tables, reference, scratch
                )
                decision_scores(
                    parts, unit, scratch.pair, scratch.context, mask, scratch.hidden, scratch.last, scratch.scores
                )
                best = _drawn(scratch, choice.temperature, rng)
                if len(choice.teacher) and choice.teacher[unit] >= 0 and mask[choice.teacher[unit]]:
                    best = choice.teacher[unit]
                _record(trace, unit, best, scratch)
        if is_new:
            place_unit(unit, best, work, machine, state)
            note_device(unit, best, tables, scratch)
            last = best
            left_bytes -= tables.needed_bytes[unit]
        if machine.live:
            memory = machine.memory_home[best]
            live_bytes[memory] += work.output_bytes[op] + copied_bytes(op, best, work, machine, state)
            peak_bytes[memory] = max(peak_bytes[memory], live_bytes[memory] + work.workspace_bytes[op])
        ready_s(op, best, work, machine, state, True)
        insert(best, scratch.place[best], scratch.start_s[best], end_s[best], True, busy)
        for device in range(num_devices):
            if machine.excludes[best, device]:
                block(device, scratch.start_s[best], end_s[best], busy)
        state.assignment[op], state.start_s[op], state.end_s[op] = best, scratch.start_s[best], end_s[best]
        if machine.live:
            free_read(op, work, machine, state, live_bytes, readers)
        horizon_s = max(horizon_s, end_s[best])
        longest_s = max(longest_s, end_s[best] + reference.tail_s[op])
        done_s += tables.mean_s[op]
    return Decided(state.unit_device, state.assignment, state.start_s, state.end_s, state.arrival_s, connected)


@njit(cache=True, nogil=True, error_model="numpy")
def _room(left_bytes: float, live_bytes: FloatArray, tables: DecisionTables, state: State) -> float:
    """Memory that undecided units need as a share of what is free in scarce memories, at most 2; 0 where none is scarce."""
    free_bytes = 0.0
    for memory in tables.scarce:
        used_bytes = state.resident[memory] + live_bytes[memory]
        free_bytes += max(0.0, tables.machine.limit_bytes[memory] - used_bytes)
    return min(2.0, left_bytes / max(1.0, free_bytes)) if len(tables.scarce) else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _try_devices(
    op: int,
    unit: int,
    kept: int,
    is_new: bool,
    tables: DecisionTables,
    state: State,
    busy: Busy,
    live_bytes: FloatArray,
    peak_bytes: FloatArray,
    scratch: Scratch,
) -> int:
    """Number of devices that the op may run on, with its times there; `kept` is the only one unless it is negative."""
    work, machine, mask = tables.work, tables.machine, scratch.mask
    options, least = 0, np.inf
    for device in range(len(mask)):
        mask[device] = False
        if work.op_time_s[op, device] == np.inf or (kept >= 0 and device != kept):
            continue
        ready = ready_s(op, device, work, machine, state, False)
        seconds = work.op_time_s[op, device] + segment_start_s(op, device, work, machine, state)
        start, end, place = slot(ready, seconds, machine.overhead_s[device], device, busy)
        if end == np.inf:
            continue
        over = 0.0
        if is_new:
            used_bytes = 0.0
            if machine.live:
                memory = machine.memory_home[device]
                used_bytes = live_bytes[memory] + work.output_bytes[op] + work.workspace_bytes[op]
                used_bytes = max(peak_bytes[memory], used_bytes + copied_bytes(op, device, work, machine, state))
            missing = missing_bytes(unit, device, work, machine, state) + used_bytes
            over = max(0.0, missing)
            scratch.filled[device] = 1.0 + missing / max(1.0, machine.limit_bytes[device])
        mask[device] = True
        scratch.ready_s[device], scratch.start_s[device], scratch.end_s[device] = ready, start, end
        scratch.place[device], scratch.over_bytes[device] = place, over
        options += 1
        least = min(least, over)
    if options > 1:
        options = 0
        for device in range(len(mask)):
            mask[device] = mask[device] and scratch.over_bytes[device] <= least
            options += mask[device]
    return options


@njit(cache=True, nogil=True, error_model="numpy")
def _unconnected(op: int, kept: int, horizon_s: float, work: Work, busy: Busy, scratch: Scratch) -> int:
    """The device of an op that no device can be reached for, and its times there: after all that runs there."""
    best = kept
    for device in range(work.op_time_s.shape[1]):
        if best < 0 and work.op_time_s[op, device] < np.inf:
            best = device
    place = busy.size[best]
    start = max(horizon_s, busy.end_s[best, place - 1]) if place else horizon_s
    scratch.place[best], scratch.start_s[best] = place, start
    scratch.end_s[best] = start + work.op_time_s[op, best]
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _drawn(scratch: Scratch, temperature: float, rng: np.random.Generator) -> int:
    """A device drawn by the scores (Gumbel-max), or the one with the highest."""
    best, highest = -1, -np.inf
    for device in range(len(scratch.mask)):
        if scratch.mask[device]:
            value = scratch.scores[device]
            if temperature > 0.0:
                value -= temperature * np.log(-np.log(rng.random()))
            if best < 0 or value > highest:
                best, highest = device, value
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _record(trace: DecisionTrace, unit: int, device: int, scratch: Scratch) -> None:
    at = trace.used[0]
    if at < len(trace.units):
        trace.pair[at], trace.context[at], trace.mask[at] = scratch.pair, scratch.context, scratch.mask
        trace.units[at], trace.chosen[at] = unit, device
        trace.used[0] = at + 1
