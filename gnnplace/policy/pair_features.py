"""What the head sees of one unit on one device, given the current schedules: compiled, a few microseconds per row."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import Timing, tail_s
from gnnplace.env.units import UnitTables
from gnnplace.policy.features import Float32Array, GraphFeatures

__all__ = ["CONTEXT_FEATURES", "LOOKAHEAD_FEATURES", "PAIR_FEATURES", "pair_features"]

LOOKAHEAD_FEATURES = ("lookahead_change", "lookahead_known")
PAIR_FEATURES = (
    "slowdown", "time_change", "input_transfer", "output_transfer", "transfer_change", "ready_change", "path_change",
    "path", "inputs_there", "outputs_there", "load", "load_after", "memory_after", "fits", "is_current", "slack_kept",
    *LOOKAHEAD_FEATURES,
)  # fmt: skip
CONTEXT_FEATURES = ("slack", "share", "objective")

TIME, INPUT, OUTPUT, READY, PATH, INPUTS_THERE, OUTPUTS_THERE = range(7)


def pair_features(
    features: GraphFeatures,
    tables: UnitTables,
    timing: Timing,
    rows: IntArray,
    units: IntArray,
    capacity_bytes: IntArray,
    change: FloatArray | None = None,
) -> tuple[Float32Array, Float32Array, BoolArray]:
    """Pair features `[R, D, F]`, context features `[R, F]` and the mask `[R, D]` of `R` questions.

    Question `r` asks where to put `units[r]` in placement `rows[r]` of `timing`. `capacity_bytes` is `[D]`. `change`
    `[R, D]` holds the known relative change of the objective per move, infinite or NaN where it is not known; None without lookahead.
    """
    raw = _raw(tables, timing, tail_s(timing), rows, units)
    devices = timing.assignment[rows, tables.unit_ops[tables.unit_offsets[units]]]
    here = np.arange(raw.shape[1])[None, :] == devices[:, None]
    mask = np.asarray(np.isfinite(raw).all(axis=2))
    raw = np.where(mask[:, :, None], raw, 0.0)
    now = raw[np.arange(len(rows)), devices][:, None, :]
    mean_s = features.mean_unit_s
    makespan_s = np.maximum(timing.makespan_s[rows], 1e-30)[:, None]
    load_s = timing.busy_s[rows]
    load_after_s = load_s + np.where(here, 0.0, raw[:, :, TIME])
    fastest_s = tables.unit_time_s[units].min(axis=1)[:, None]
    room = np.maximum(1.0, capacity_bytes.astype(np.float64))[None, :]
    memory_after = (
        timing.peak_memory_bytes[rows] + np.where(here, 0.0, tables.unit_memory_bytes[units][:, None])
    ) / room
    slack_s = np.minimum.reduceat(timing.slack_s[:, tables.unit_ops], tables.unit_offsets[:-1], axis=1)[rows, units]
    slack = (slack_s / makespan_s[:, 0])[:, None]
    known = np.zeros_like(mask) if change is None else np.isfinite(change)
    columns = (
        np.log((raw[:, :, TIME] + 1e-3 * mean_s) / (np.where(mask, fastest_s, 0.0) + 1e-3 * mean_s)),
        _signed_log((raw - now)[:, :, TIME] / mean_s),
        _signed_log(raw[:, :, INPUT] / mean_s),
        _signed_log(raw[:, :, OUTPUT] / mean_s),
        _signed_log((raw - now)[:, :, INPUT : OUTPUT + 1].sum(axis=2) / mean_s),
        _signed_log((raw - now)[:, :, READY] / mean_s),
        _signed_log((raw - now)[:, :, PATH] / mean_s),
        np.clip(raw[:, :, PATH] / makespan_s - 1.0, -1.0, 1.0),
        raw[:, :, INPUTS_THERE],
        raw[:, :, OUTPUTS_THERE],
        load_s / makespan_s,
        np.clip((load_after_s - load_s.max(axis=1, keepdims=True)) / makespan_s, -1.0, 1.0),
        np.minimum(memory_after, 2.0),
        memory_after <= 1.0,
        here,
        np.where(here, slack, 0.0),
        np.zeros_like(load_s) if change is None else _signed_log(100.0 * np.where(known, change, 0.0)),
        known,
    )
    context = (
        slack[:, 0],
        np.log1p(now[:, 0, TIME] / mean_s),
        np.log1p(makespan_s[:, 0] / (mean_s * len(features.nodes))),
    )
    return np.stack(columns, axis=2).astype(np.float32), np.stack(context, axis=1).astype(np.float32), mask


def _signed_log(values: FloatArray) -> FloatArray:
    """`log(1 + |x|)` with the sign of `x`."""
    return np.sign(values) * np.log1p(np.abs(values))


@njit(cache=True, nogil=True)
def _raw(
    tables: UnitTables, timing: Timing, op_tail_s: FloatArray, rows: IntArray, units: IntArray
) -> NDArray[np.float64]:
    """`[R, D, 7]`; infinite where the unit cannot run or data has no way.

    Seconds of the unit's ops; of the transfers that its inputs and outputs would need; latest arrival of its inputs, summed as
    the largest change over its ops; the longest path through one of its ops (arrival, op, transfer, tail of the
    consumer, queueing as it is now); the share of input and output bytes whose other end is on the device.
    """
    num_devices = tables.op_time_s.shape[1]
    raw = np.zeros((len(rows), num_devices, 7))
    asked = np.zeros(num_devices, dtype=np.bool_)
    for question in range(len(rows)):
        row, unit = rows[question], units[question]
        place = timing.assignment[row]
        begin, end = tables.unit_offsets[unit], tables.unit_offsets[unit + 1]
        for device in range(num_devices):
            time_s = tables.unit_time_s[unit, device]
            input_s, output_s, ready_s, path_s = 0.0, 0.0, -np.inf, 0.0
            input_bytes, output_bytes, inputs_there, outputs_there = 0.0, 0.0, 0.0, 0.0
            for position in range(begin, end):
                op = tables.unit_ops[position]
                here = place[op]
                arrival_s = 0.0
                for entry in range(tables.input_offsets[op], tables.input_offsets[op + 1]):
                    tensor = tables.input_tensors[entry]
                    producer = tables.tensor_producer[tensor]
                    home, made_s = place[producer], timing.end_s[row, producer]
                    size = tables.tensor_bytes[tensor]
                    if tables.unit_of_op[producer] == unit:
                        arrival_s = max(arrival_s, made_s)
                        continue
                    input_bytes += size
                    if home == device:
                        inputs_there += size
                        arrival_s = max(arrival_s, made_s)
                        continue
                    hop_s = tables.route_latency_s[home, device] + size * tables.route_s_per_byte[home, device]
                    sent_s = timing.arrival_s[row, tensor, device]
                    arrival_s = max(arrival_s, sent_s if np.isfinite(sent_s) else made_s + hop_s)
                    shared = np.isfinite(sent_s) and device != here
                    if device == here:
                        for other in range(tables.consumer_offsets[tensor], tables.consumer_offsets[tensor + 1]):
                            consumer = tables.consumers[other]
                            shared = shared or (place[consumer] == here and tables.unit_of_op[consumer] != unit)
                    if not shared:
                        input_s += hop_s
                below_s = 0.0
                for tensor in range(tables.output_offsets[op], tables.output_offsets[op + 1]):
                    size = tables.tensor_bytes[tensor]
                    asked[:] = False
                    for entry in range(tables.consumer_offsets[tensor], tables.consumer_offsets[tensor + 1]):
                        consumer = tables.consumers[entry]
                        if tables.unit_of_op[consumer] == unit:
                            continue
                        target = place[consumer]
                        output_bytes += size
                        hop_s = 0.0
                        if target == device:
                            outputs_there += size
                        else:
                            hop_s = (
                                tables.route_latency_s[device, target] + size * tables.route_s_per_byte[device, target]
                            )
                            if not asked[target]:
                                output_s += hop_s
                                asked[target] = True
                        below_s = max(below_s, hop_s + op_tail_s[row, consumer])
                ready_s = max(ready_s, arrival_s - timing.start_s[row, op])
                path_s = max(path_s, arrival_s + tables.op_time_s[op, device] + below_s)
            raw[question, device, TIME] = time_s
            raw[question, device, INPUT] = input_s
            raw[question, device, OUTPUT] = output_s
            raw[question, device, READY] = ready_s
            raw[question, device, PATH] = path_s
            raw[question, device, INPUTS_THERE] = inputs_there / max(1.0, input_bytes)
            raw[question, device, OUTPUTS_THERE] = outputs_there / max(1.0, output_bytes)
    return raw
