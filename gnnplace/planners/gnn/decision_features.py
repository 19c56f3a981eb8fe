"""Features of a decision: one unit on each device, in the partial schedule and in the one that lies ahead; compiled."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.compiled_code import inlined
from gnnplace.planners.classical.intervals import Busy
from gnnplace.planners.classical.list_state import State
from gnnplace.planners.gnn.decision_tables import DecisionTables, Reference
from gnnplace.policy.decisions import DECISION, DECISION_CONTEXT, DECISION_INPUTS, DecisionParts
from gnnplace.policy.pair_features import signed_log

_INHERITED = 0.7  # of a unit's ancestors' devices in its own; the rest is its own device


class Scratch(NamedTuple):
    """Of one decision: options by device, and inputs of the head."""

    mask: BoolArray  # [D]
    ready_s: FloatArray  # [D]
    start_s: FloatArray  # [D]
    end_s: FloatArray  # [D]
    place: IntArray  # [D]
    over_bytes: FloatArray  # [D]
    filled: FloatArray  # [D] share of the memory in use afterwards
    transfer_s: FloatArray  # [D] of inputs that are not there yet
    affinity: Float32Array  # [U, D] bytes that a unit reads from decided ones on each device
    ancestors: Float32Array  # [U, D] decayed shares of a unit's ancestors on each device
    load_s: FloatArray  # [D]
    pair: Float32Array  # [D, F]
    context: Float32Array  # [C]
    hidden: Float32Array  # [2, H1]
    last: Float32Array  # [H2]
    scores: FloatArray  # [D]


@njit(cache=True, nogil=True, error_model="numpy")
def new_scratch(tables: DecisionTables, parts: DecisionParts) -> Scratch:
    """The scratch of a schedule, before its first decision."""
    units, devices = tables.unit_s.shape
    first, second = parts.second.shape
    return Scratch(
        np.zeros(devices, dtype=np.bool_), np.zeros(devices), np.zeros(devices), np.zeros(devices),
        np.zeros(devices, dtype=np.int64), np.zeros(devices), np.zeros(devices), np.zeros(devices),
        np.zeros((units, devices), dtype=np.float32), np.zeros((units, devices), dtype=np.float32), np.zeros(devices),
        np.zeros((devices, DECISION_INPUTS), dtype=np.float32), np.zeros(len(DECISION_CONTEXT), dtype=np.float32),
        np.zeros((2, first), dtype=np.float32), np.zeros(second, dtype=np.float32), np.zeros(devices),
    )  # fmt: skip


@inlined
def note_device(
    unit: int,
    device: int,
    consumer_offsets: IntArray,
    consumers: IntArray,
    consumed_bytes: FloatArray,
    producer_offsets: IntArray,
    producers: IntArray,
    unit_s: FloatArray,
    excludes: BoolArray,
    load_s: FloatArray,
    affinity: Float32Array,
    ancestors: Float32Array,
) -> None:
    """Notes where a unit runs for the features of later ones."""
    for other in range(len(load_s)):
        if other == device or excludes[device, other]:
            load_s[other] += unit_s[unit, device]
    for at in range(consumer_offsets[unit], consumer_offsets[unit + 1]):
        affinity[consumers[at], device] += consumed_bytes[at]
    begin, end = producer_offsets[unit], producer_offsets[unit + 1]
    for at in range(begin, end):
        for other in range(len(load_s)):
            ancestors[unit, other] += np.float32(_INHERITED) * ancestors[producers[at], other] / (end - begin)
    ancestors[unit, device] += np.float32(1.0 - _INHERITED)


@njit(cache=True, nogil=True, error_model="numpy")
def write_pair(
    op: int,
    unit: int,
    last: int,
    longest_s: float,
    tables: DecisionTables,
    reference: Reference,
    state: State,
    busy: Busy,
    scratch: Scratch,
) -> None:
    """Writes the features of the unit on every device where it may run."""
    scales, consumers, producers, work = tables.scales, tables.consumers, tables.producers, tables.work
    op_s, unit_scale_s, even_load_s = scales.op_s, scales.unit_s, scales.even_load_s
    unit_s, latency_s, per_byte_s = tables.unit_s, tables.latency_s, tables.per_byte_s
    limit_bytes, excludes = tables.machine.limit_bytes, tables.machine.excludes
    consumer_offsets, consumer_units, consumed_bytes = consumers.offsets, consumers.units, consumers.num_bytes
    producer_offsets, producer_units, produced_bytes = producers.offsets, producers.units, producers.num_bytes
    mask, ready_s, start_s, end_s = scratch.mask, scratch.ready_s, scratch.start_s, scratch.end_s
    transfer_s, load_s, filled, pair = scratch.transfer_s, scratch.load_s, scratch.filled, scratch.pair
    affinity, ancestors = scratch.affinity, scratch.ancestors
    reference_devices, reference_load, reference_pair = reference.devices, reference.load, reference.pair
    tail_s, span_s = reference.tail_s[op], reference.span_s[0]
    busy_end_s, size = busy.end_s, busy.size
    latest = _input_transfers(
        op, mask, transfer_s, work.input_offsets, work.input_tensors, work.producer, work.num_bytes,
        state.assignment, state.end_s, state.arrival_s, latency_s, per_byte_s,
    )  # fmt: skip
    first_s, first_ready_s, first_3_s, first_12_s = np.inf, np.inf, np.inf, np.inf
    fastest_s, first_idle_s, highest_s = np.inf, np.inf, 1e-30
    for device in range(len(mask)):
        if mask[device]:
            first_s, first_ready_s = min(first_s, end_s[device]), min(first_ready_s, ready_s[device])
            first_3_s = min(first_3_s, end_s[device] + 3.0 * transfer_s[device])
            first_12_s = min(first_12_s, end_s[device] + 12.0 * transfer_s[device])
            fastest_s = min(fastest_s, unit_s[unit, device])
            first_idle_s = min(first_idle_s, _idle_from_s(device, busy_end_s, size))
            highest_s = max(highest_s, load_s[device])
    input_bytes = _sum_of_bytes(unit, producer_offsets, produced_bytes)
    output_bytes = _sum_of_bytes(unit, consumer_offsets, consumed_bytes)
    for device in range(len(mask)):
        if not mask[device]:
            continue
        device_s = unit_s[unit, device]
        pair[device, DECISION.end_gap] = np.log1p((end_s[device] - first_s) / op_s)
        pair[device, DECISION.ends_first] = end_s[device] <= first_s
        pair[device, DECISION.ends_first_3] = end_s[device] + 3.0 * transfer_s[device] <= first_3_s
        pair[device, DECISION.ends_first_12] = end_s[device] + 12.0 * transfer_s[device] <= first_12_s
        pair[device, DECISION.wait] = np.log1p(max(0.0, start_s[device] - ready_s[device]) / op_s)
        pair[device, DECISION.ready_gap] = np.log1p((ready_s[device] - first_ready_s) / op_s)
        pair[device, DECISION.slowdown] = np.log((device_s + 1e-3 * unit_scale_s) / (fastest_s + 1e-3 * unit_scale_s))
        pair[device, DECISION.time] = np.log1p(device_s / unit_scale_s)
        pair[device, DECISION.input_transfer] = np.log1p(transfer_s[device] / op_s)
        pair[device, DECISION.inputs_there] = affinity[unit, device] / max(1.0, input_bytes)
        pair[device, DECISION.latest_there] = latest == device
        path_s = end_s[device] + tail_s
        pair[device, DECISION.path] = min(2.0, max(-1.0, path_s / span_s - 1.0))
        pair[device, DECISION.path_growth] = signed_log((path_s - longest_s) / op_s)
        pair[device, DECISION.load] = load_s[device] / highest_s
        pair[device, DECISION.load_after] = min(2.0, (load_s[device] + device_s) / even_load_s)
        pair[device, DECISION.idle] = np.log1p((_idle_from_s(device, busy_end_s, size) - first_idle_s) / op_s)
        pair[device, DECISION.memory_after] = min(2.0, filled[device])
        pair[device, DECISION.fits] = filled[device] <= 1.0
        needed_share = tables.needed_bytes[unit] / max(1.0, limit_bytes[device])
        pair[device, DECISION.needed_share] = np.log1p(50.0 * min(2.0, needed_share))
        pair[device, DECISION.capacity] = tables.capacity[device]
        near, sent_s, there = _outputs(
            unit, device, consumer_offsets, consumer_units, consumed_bytes, affinity, state.unit_device, reference_devices, latency_s,
            per_byte_s,
        )  # fmt: skip
        inherited, begin, end = 0.0, producer_offsets[unit], producer_offsets[unit + 1]
        for at in range(begin, end):
            inherited += ancestors[producer_units[at], device]
        pair[device, DECISION.coparents] = near / max(1.0, output_bytes)
        pair[device, DECISION.ancestors] = inherited / max(1, end - begin)
        pair[device, DECISION.output_transfer] = np.log1p(sent_s / unit_scale_s)
        pair[device, DECISION.outputs_there] = there / max(1.0, output_bytes)
        pair[device, DECISION.was_here] = reference_devices[unit] == device
        pair[device, DECISION.load_before] = reference_load[device]
        pair[device, DECISION.last] = last == device
        excluded = 0
        for other in range(len(mask)):
            excluded += excludes[device, other]
        pair[device, DECISION.exclusive] = excluded / len(mask)
        for column in range(reference_pair.shape[2]):
            pair[device, len(DECISION) + column] = reference_pair[unit, device, column]


@inlined
def _input_transfers(
    op: int,
    mask: BoolArray,
    transfer_s: FloatArray,
    input_offsets: IntArray,
    input_tensors: IntArray,
    producer: IntArray,
    num_bytes: IntArray,
    assignment: IntArray,
    end_s: FloatArray,
    arrival_s: FloatArray,
    latency_s: FloatArray,
    per_byte_s: FloatArray,
) -> int:
    """Writes the seconds of the inputs that each device lacks; gives the device of the producer that ends last."""
    latest, latest_s = -1, -1.0
    for device in range(len(mask)):
        transfer_s[device] = 0.0
    for at in range(input_offsets[op], input_offsets[op + 1]):
        tensor = input_tensors[at]
        home, ended_s = assignment[producer[tensor]], end_s[producer[tensor]]
        if ended_s > latest_s:
            latest, latest_s = home, ended_s
        for device in range(len(mask)):
            if mask[device] and home != device and arrival_s[tensor, device] == np.inf:
                transfer_s[device] += latency_s[home, device] + num_bytes[tensor] * per_byte_s[home, device]
    return latest


@inlined
def _idle_from_s(device: int, end_s: FloatArray, size: IntArray) -> float:
    return end_s[device, size[device] - 1] if size[device] else 0.0


@inlined
def _sum_of_bytes(unit: int, offsets: IntArray, num_bytes: FloatArray) -> float:
    total = 0.0
    for at in range(offsets[unit], offsets[unit + 1]):
        total += num_bytes[at]
    return total


@inlined
def _outputs(
    unit: int,
    device: int,
    offsets: IntArray,
    consumers: IntArray,
    num_bytes: FloatArray,
    affinity: Float32Array,
    unit_device: IntArray,
    reference_devices: IntArray,
    latency_s: FloatArray,
    per_byte_s: FloatArray,
) -> tuple[float, float, float]:
    """Three features of the unit's consumers.

    Bytes to all, weighted by the share of their known inputs that is on the device; seconds of transfers to consumers on other devices;
    bytes to consumers on the device.
    """
    near, sent_s, there = 0.0, 0.0, 0.0
    for at in range(offsets[unit], offsets[unit + 1]):
        consumer, known_bytes = consumers[at], 0.0
        for other in range(affinity.shape[1]):
            known_bytes += affinity[consumer, other]
        if known_bytes > 0.0:
            near += affinity[consumer, device] / known_bytes * num_bytes[at]
        target = unit_device[consumer]
        if target < 0:
            target = reference_devices[consumer]
        if target == device:
            there += num_bytes[at]
        elif target >= 0 and latency_s[device, target] < np.inf:
            sent_s += latency_s[device, target] + num_bytes[at] * per_byte_s[device, target]
    return near, sent_s, there


@njit(cache=True, nogil=True, error_model="numpy")
def write_context(
    op: int,
    unit: int,
    progress: float,
    horizon_s: float,
    free_share: float,
    room: float,
    budget: float,
    tables: DecisionTables,
    reference: Reference,
    scratch: Scratch,
) -> None:
    """Writes the features that do not depend on the device."""
    scales, to, span_s = tables.scales, scratch.context, reference.span_s[0]
    first_s, transfer_s, fastest_s = np.inf, 0.0, np.inf
    for device in range(len(scratch.mask)):
        fastest_s = min(fastest_s, tables.unit_s[unit, device])
        if scratch.mask[device]:
            first_s = min(first_s, scratch.end_s[device])
            transfer_s = max(transfer_s, scratch.transfer_s[device])
    producers, consumers = tables.producers.offsets, tables.consumers.offsets
    to[DECISION_CONTEXT.progress] = progress
    to[DECISION_CONTEXT.urgency] = min(2.0, reference.tail_s[op] / span_s)
    to[DECISION_CONTEXT.in_degree] = np.log1p(producers[unit + 1] - producers[unit])
    to[DECISION_CONTEXT.out_degree] = np.log1p(consumers[unit + 1] - consumers[unit])
    to[DECISION_CONTEXT.time] = np.log1p(fastest_s / scales.unit_s)
    to[DECISION_CONTEXT.gap] = signed_log((horizon_s - first_s) / scales.op_s)
    to[DECISION_CONTEXT.pressure] = scales.pressure
    to[DECISION_CONTEXT.devices] = np.log(len(scratch.mask))
    to[DECISION_CONTEXT.transfer_to_compute] = np.log1p(scales.transfer_to_compute)
    to[DECISION_CONTEXT.transfer] = np.log1p(transfer_s / scales.op_s)
    to[DECISION_CONTEXT.throughput] = scales.throughput
    to[DECISION_CONTEXT.revises] = 1.0 if reference.devices[unit] >= 0 else 0.0
    to[DECISION_CONTEXT.slack] = reference.slack[unit]
    to[DECISION_CONTEXT.budget] = budget
    to[DECISION_CONTEXT.size] = np.log(tables.size[unit])
    to[DECISION_CONTEXT.delay] = min(2.0, max(-1.0, (first_s + reference.tail_s[op]) / span_s - 1.0))
    to[DECISION_CONTEXT.free_share] = free_share
    to[DECISION_CONTEXT.room] = room
