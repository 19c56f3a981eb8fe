"""Features of a decision: one unit on each device, in the partial schedule and in the one that lies ahead; compiled."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.planners.classical.intervals import Busy
from gnnplace.planners.classical.list_state import State
from gnnplace.planners.gnn.decision_tables import DecisionTables, Neighbours, Reference
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


@njit(cache=True, nogil=True, error_model="numpy")
def note_device(unit: int, device: int, tables: DecisionTables, scratch: Scratch) -> None:
    """Notes where a unit runs for the features of later ones."""
    consumers, producers, ancestors = tables.consumers, tables.producers, scratch.ancestors
    for other in range(len(scratch.load_s)):
        if other == device or tables.machine.excludes[device, other]:
            scratch.load_s[other] += tables.unit_s[unit, device]
    for at in range(consumers.offsets[unit], consumers.offsets[unit + 1]):
        scratch.affinity[consumers.units[at], device] += consumers.num_bytes[at]
    begin, end = producers.offsets[unit], producers.offsets[unit + 1]
    for at in range(begin, end):
        for other in range(len(scratch.load_s)):
            ancestors[unit, other] += np.float32(_INHERITED) * ancestors[producers.units[at], other] / (end - begin)
    ancestors[unit, device] += np.float32(1.0 - _INHERITED)


@njit(cache=True, nogil=True, error_model="numpy")
def _input_transfers(op: int, tables: DecisionTables, state: State, scratch: Scratch) -> int:
    """Writes the seconds of the inputs that each device lacks; gives the device of the producer that ends last."""
    work, latest, latest_s = tables.work, -1, -1.0
    for device in range(len(scratch.mask)):
        scratch.transfer_s[device] = 0.0
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        producer = work.producer[tensor]
        home = state.assignment[producer]
        if state.end_s[producer] > latest_s:
            latest, latest_s = home, state.end_s[producer]
        for device in range(len(scratch.mask)):
            if scratch.mask[device] and home != device and state.arrival_s[tensor, device] == np.inf:
                seconds = tables.latency_s[home, device] + work.num_bytes[tensor] * tables.per_byte_s[home, device]
                scratch.transfer_s[device] += seconds
    return latest


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
    op_s, unit_scale_s = tables.scales.op_s, tables.scales.unit_s
    mask, end_s, transfer_s = scratch.mask, scratch.end_s, scratch.transfer_s
    latest = _input_transfers(op, tables, state, scratch)
    first_s, first_ready_s, first_3_s, first_12_s = np.inf, np.inf, np.inf, np.inf
    fastest_s, first_idle_s, highest_s = np.inf, np.inf, 1e-30
    for device in range(len(mask)):
        if mask[device]:
            first_s, first_ready_s = min(first_s, end_s[device]), min(first_ready_s, scratch.ready_s[device])
            first_3_s = min(first_3_s, end_s[device] + 3.0 * transfer_s[device])
            first_12_s = min(first_12_s, end_s[device] + 12.0 * transfer_s[device])
            fastest_s = min(fastest_s, tables.unit_s[unit, device])
            first_idle_s = min(first_idle_s, _idle_from_s(device, busy))
            highest_s = max(highest_s, scratch.load_s[device])
    input_bytes = _sum_of_bytes(tables.producers, unit)
    for device in range(len(mask)):
        if not mask[device]:
            continue
        to, unit_s = scratch.pair[device], tables.unit_s[unit, device]
        to[DECISION.end_gap] = np.log1p((end_s[device] - first_s) / op_s)
        to[DECISION.ends_first] = end_s[device] <= first_s
        to[DECISION.ends_first_3] = end_s[device] + 3.0 * transfer_s[device] <= first_3_s
        to[DECISION.ends_first_12] = end_s[device] + 12.0 * transfer_s[device] <= first_12_s
        to[DECISION.wait] = np.log1p(max(0.0, scratch.start_s[device] - scratch.ready_s[device]) / op_s)
        to[DECISION.ready_gap] = np.log1p((scratch.ready_s[device] - first_ready_s) / op_s)
        to[DECISION.slowdown] = np.log((unit_s + 1e-3 * unit_scale_s) / (fastest_s + 1e-3 * unit_scale_s))
        to[DECISION.time] = np.log1p(unit_s / unit_scale_s)
        to[DECISION.input_transfer] = np.log1p(transfer_s[device] / op_s)
        to[DECISION.inputs_there] = scratch.affinity[unit, device] / max(1.0, input_bytes)
        to[DECISION.latest_there] = latest == device
        path_s = end_s[device] + reference.tail_s[op]
        to[DECISION.path] = min(2.0, max(-1.0, path_s / reference.span_s[0] - 1.0))
        to[DECISION.path_growth] = signed_log((path_s - longest_s) / op_s)
        to[DECISION.load] = scratch.load_s[device] / highest_s
        to[DECISION.load_after] = min(2.0, (scratch.load_s[device] + unit_s) / tables.scales.even_load_s)
        to[DECISION.idle] = np.log1p((_idle_from_s(device, busy) - first_idle_s) / op_s)
        to[DECISION.memory_after] = min(2.0, scratch.filled[device])
        to[DECISION.fits] = scratch.filled[device] <= 1.0
        needed_share = tables.needed_bytes[unit] / max(1.0, tables.machine.limit_bytes[device])
        to[DECISION.needed_share] = np.log1p(50.0 * min(2.0, needed_share))
        to[DECISION.capacity] = tables.capacity[device]
        _write_surroundings(unit, device, tables, reference, state, scratch)
        to[DECISION.was_here] = reference.devices[unit] == device
        to[DECISION.load_before] = reference.load[device]
        to[DECISION.last] = last == device
        to[DECISION.exclusive] = tables.machine.excludes[device].sum() / len(mask)
        to[len(DECISION) :] = reference.pair[unit, device]


@njit(cache=True, nogil=True, error_model="numpy")
def _idle_from_s(device: int, busy: Busy) -> float:
    return float(busy.end_s[device, busy.size[device] - 1]) if busy.size[device] else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _sum_of_bytes(neighbours: Neighbours, unit: int) -> float:
    total = 0.0
    for at in range(neighbours.offsets[unit], neighbours.offsets[unit + 1]):
        total += neighbours.num_bytes[at]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _write_surroundings(
    unit: int, device: int, tables: DecisionTables, reference: Reference, state: State, scratch: Scratch
) -> None:
    """Writes what the unit's relatives do on the device: ancestors, other producers of its consumers, and the consumers."""
    consumers, producers, to = tables.consumers, tables.producers, scratch.pair[device]
    near, sent_s, there, output_bytes = 0.0, 0.0, 0.0, _sum_of_bytes(consumers, unit)
    for at in range(consumers.offsets[unit], consumers.offsets[unit + 1]):
        consumer, num_bytes, known_bytes = consumers.units[at], consumers.num_bytes[at], 0.0
        for other in range(len(scratch.mask)):
            known_bytes += scratch.affinity[consumer, other]
        if known_bytes > 0.0:
            near += scratch.affinity[consumer, device] / known_bytes * num_bytes
        target = state.unit_device[consumer]
        if target < 0:
            target = reference.devices[consumer]
        if target == device:
            there += num_bytes
        elif target >= 0 and tables.latency_s[device, target] < np.inf:
            sent_s += tables.latency_s[device, target] + num_bytes * tables.per_byte_s[device, target]
    inherited, begin, end = 0.0, producers.offsets[unit], producers.offsets[unit + 1]
    for at in range(begin, end):
        inherited += scratch.ancestors[producers.units[at], device]
    to[DECISION.coparents] = near / max(1.0, output_bytes)
    to[DECISION.ancestors] = inherited / max(1, end - begin)
    to[DECISION.output_transfer] = np.log1p(sent_s / tables.scales.unit_s)
    to[DECISION.outputs_there] = there / max(1.0, output_bytes)


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
