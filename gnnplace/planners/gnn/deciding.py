"""Schedules whose decisions the policy makes, compiled: ops in order of upward rank, each unit on a device drawn by its scores.

One loop builds a placement from nothing, and decides a part of a complete one anew, given the rest: units that are not free
keep their device, and the complete schedule says what lies ahead.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.planners.classical.intervals import block, insert, no_intervals, slot
from gnnplace.planners.classical.list_state import (
    SENT,
    TRIED,
    copied_bytes,
    empty_state,
    free_read,
    hold_weights,
    inputs_s,
    new_bytes,
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
    work, machine, scales, needed_bytes = tables.work, tables.machine, tables.scales, tables.needed_bytes
    input_offsets, input_tensors = work.input_offsets, work.input_tensors
    producer, num_bytes = work.producer, work.num_bytes
    op_time_s, unit_of_op = work.op_time_s, work.unit_of_op
    unit_bytes, weight_bytes = work.unit_bytes, work.weight_bytes
    weight_offsets, unit_weights = work.unit_weight_offsets, work.unit_weights
    limit_bytes, home, pooled, excludes = machine.limit_bytes, machine.memory_home, machine.pooled, machine.excludes
    channels, route_offsets, hop_latency_s = machine.channels, machine.route_offsets, machine.hop_latency_s
    hop_s_per_byte, hop_channel = machine.hop_s_per_byte, machine.hop_channel
    segment_s, intake_s_per_byte, overhead_s = machine.segment_s, machine.intake_s_per_byte, machine.overhead_s
    num_ops, num_devices = op_time_s.shape
    state, busy = empty_state(work, machine), no_intervals(num_devices, num_ops)
    assignment, op_end_s, arrival_s, free_s = state.assignment, state.end_s, state.arrival_s, state.free_s
    resident, held, unit_device = state.resident, state.held, state.unit_device
    busy_start_s, busy_end_s, is_own, size = busy.start_s, busy.end_s, busy.is_own, busy.size
    live_bytes, peak_bytes, readers = np.zeros(num_devices), np.zeros(num_devices), work.readers.copy()
    scratch = new_scratch(tables, parts)
    mask, ready_s, start_s, end_s = scratch.mask, scratch.ready_s, scratch.start_s, scratch.end_s
    places, over_bytes, filled = scratch.place, scratch.over_bytes, scratch.filled
    consumers, producers, unit_s = tables.consumers, tables.producers, tables.unit_s
    is_free, kept_devices, tail_s = reference.free, reference.devices, reference.tail_s
    free_share, shares = is_free.sum() / len(is_free), excludes.any()
    horizon_s, longest_s, done_s, last, connected = 0.0, 0.0, 0.0, -1, True
    left_bytes = needed_bytes.sum()
    for op in tables.order:
        unit = unit_of_op[op]
        kept = unit_device[unit]
        is_new = kept < 0
        if is_new and not is_free[unit]:
            kept = kept_devices[unit]
        options, least_bytes = 0, np.inf
        for device in range(num_devices):
            mask[device] = False
            if op_time_s[op, device] == np.inf or (kept >= 0 and device != kept):
                continue
            ready, intake_s = inputs_s(
                op, device, TRIED, input_offsets, input_tensors, producer, num_bytes, assignment, op_end_s, arrival_s, free_s,
                channels, route_offsets, hop_latency_s, hop_s_per_byte, hop_channel, segment_s, intake_s_per_byte,
            )  # fmt: skip
            seconds = op_time_s[op, device] + intake_s
            start, end, place = slot(ready, seconds, overhead_s[device], device, busy_start_s, busy_end_s, is_own, size)
            if end == np.inf:
                continue
            over = 0.0
            if is_new:
                memory, used_bytes = home[device], 0.0
                if machine.live:
                    copied = copied_bytes(
                        op, device, input_offsets, input_tensors, producer, num_bytes, assignment, arrival_s, home, pooled,
                    )  # fmt: skip
                    used_bytes = live_bytes[memory] + work.output_bytes[op] + work.workspace_bytes[op]
                    used_bytes = max(peak_bytes[memory], used_bytes + copied)
                added = new_bytes(unit, memory, unit_bytes, weight_offsets, unit_weights, weight_bytes, held)
                missing = resident[memory] + added - limit_bytes[device] + used_bytes
                over = max(0.0, missing)
                filled[device] = 1.0 + missing / max(1.0, limit_bytes[device])
            mask[device] = True
            ready_s[device], start_s[device], end_s[device] = ready, start, end
            places[device], over_bytes[device] = place, over
            options += 1
            least_bytes = min(least_bytes, over)
        best = kept
        if options == 0:
            # No device can receive all inputs: the op runs after all others of its device.
            connected = False
            for device in range(num_devices):
                if best < 0 and op_time_s[op, device] < np.inf:
                    best = device
            place = size[best]
            places[best], start_s[best] = place, max(horizon_s, busy_end_s[best, place - 1]) if place else horizon_s
            end_s[best] = start_s[best] + op_time_s[op, best]
        elif kept < 0:
            fitting = 0
            for device in range(num_devices):
                mask[device] = mask[device] and over_bytes[device] <= least_bytes
                fitting += mask[device]
            best = np.argmax(mask)
            if fitting > 1:
                write_pair(op, unit, last, longest_s, tables, reference, state, busy, scratch)
                progress = done_s / scales.all_ops_s
                room = _room(left_bytes, resident, live_bytes, limit_bytes, tables.scarce)
                write_context(
                    op, unit, progress, horizon_s, free_share, room, choice.budget, tables, reference, scratch
                )
                decision_scores(
                    parts, unit, scratch.pair, scratch.context, mask, scratch.hidden, scratch.last, scratch.scores
                )
                best = _drawn(mask, scratch.scores, choice.temperature, rng)
                if len(choice.teacher) and choice.teacher[unit] >= 0 and mask[choice.teacher[unit]]:
                    best = choice.teacher[unit]
                if trace.used[0] < len(trace.units):
                    _record(trace, unit, best, scratch)
        memory = home[best]
        if is_new:
            unit_device[unit] = best
            hold_weights(unit, memory, unit_bytes, weight_offsets, unit_weights, weight_bytes, held, resident)
            note_device(
                unit, best, consumers.offsets, consumers.units, consumers.num_bytes, producers.offsets, producers.units,
                unit_s, excludes, scratch.load_s, scratch.affinity, scratch.ancestors,
            )  # fmt: skip
            last = best
            left_bytes -= needed_bytes[unit]
        if machine.live:
            copied = copied_bytes(
                op, best, input_offsets, input_tensors, producer, num_bytes, assignment, arrival_s, home, pooled
            )
            live_bytes[memory] += work.output_bytes[op] + copied
            peak_bytes[memory] = max(peak_bytes[memory], live_bytes[memory] + work.workspace_bytes[op])
        inputs_s(
            op, best, SENT, input_offsets, input_tensors, producer, num_bytes, assignment, op_end_s, arrival_s, free_s,
            channels, route_offsets, hop_latency_s, hop_s_per_byte, hop_channel, segment_s, intake_s_per_byte,
        )  # fmt: skip
        insert(best, places[best], (start_s[best], end_s[best], True), busy_start_s, busy_end_s, is_own, size)
        if shares:
            for device in range(num_devices):
                if excludes[best, device]:
                    block(device, start_s[best], end_s[best], busy)
        assignment[op], state.start_s[op], op_end_s[op] = best, start_s[best], end_s[best]
        if machine.live:
            free_read(
                op, input_offsets, input_tensors, producer, num_bytes, assignment, arrival_s, home, pooled, live_bytes, readers
            )  # fmt: skip
        horizon_s = max(horizon_s, end_s[best])
        longest_s = max(longest_s, end_s[best] + tail_s[op])
        done_s += tables.mean_s[op]
    return Decided(unit_device, assignment, state.start_s, op_end_s, arrival_s, connected)


@njit(cache=True, nogil=True, error_model="numpy")
def _room(
    left_bytes: float, resident: FloatArray, live_bytes: FloatArray, limit_bytes: FloatArray, scarce: IntArray
) -> float:
    """Memory that undecided units need as a share of what is free in scarce memories, at most 2; 0 where none is scarce."""
    free_bytes = 0.0
    for memory in scarce:
        free_bytes += max(0.0, limit_bytes[memory] - (resident[memory] + live_bytes[memory]))
    return min(2.0, left_bytes / max(1.0, free_bytes)) if len(scarce) else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _drawn(mask: BoolArray, scores: FloatArray, temperature: float, rng: np.random.Generator) -> int:
    """A device drawn by the scores (Gumbel-max), or the one with the highest."""
    best, highest = -1, -np.inf
    for device in range(len(mask)):
        if mask[device]:
            value = scores[device]
            if temperature > 0.0:
                value -= temperature * np.log(-np.log(rng.random()))
            if best < 0 or value > highest:
                best, highest = device, value
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _record(trace: DecisionTrace, unit: int, device: int, scratch: Scratch) -> None:
    at = trace.used[0]
    trace.pair[at], trace.context[at], trace.mask[at] = scratch.pair, scratch.context, scratch.mask
    trace.units[at], trace.chosen[at] = unit, device
    trace.used[0] = at + 1
