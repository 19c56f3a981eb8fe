"""What the head sees of one unit on one device, given the current schedules: compiled, a few microseconds per row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import Timing, tail_s
from gnnplace.env.units import UnitTables
from gnnplace.policy.features import Float32Array, GraphFeatures

__all__ = ["CONTEXT_FEATURES", "PAIR_FEATURES", "pair_features"]

PAIR_FEATURES = (
    "slowdown", "time_change", "input_transfer", "output_transfer", "transfer_change", "ready_change", "path_change",
    "path", "inputs_there", "outputs_there", "load", "load_after", "memory_after", "fits", "is_current", "slack_kept",
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
) -> tuple[Float32Array, Float32Array, BoolArray]:
    """Pair features `[R, D, F]`, context features `[R, F]` and the mask `[R, D]` of `R` questions.

    Question `r` asks where to put `units[r]` in placement `rows[r]` of `timing`. `capacity_bytes` is `[D]`.
    """
    raw = _raw(tables, timing, tail_s(timing), rows, units)
    unit_slack_s = np.minimum.reduceat(timing.slack_s[:, tables.unit_ops], tables.unit_offsets[:-1], axis=1)
    pair = np.zeros((*raw.shape[:2], len(PAIR_FEATURES)), dtype=np.float32)
    context = np.empty((len(rows), len(CONTEXT_FEATURES)), dtype=np.float32)
    mask = np.empty(raw.shape[:2], dtype=np.bool_)
    _relative(
        tables, timing, rows, units, raw, unit_slack_s, features.mean_unit_s, len(features.nodes),
        np.maximum(1.0, capacity_bytes.astype(np.float64)), (pair, context, mask),
    )  # fmt: skip
    return pair, context, mask


@njit(cache=True, nogil=True, error_model="numpy")
def _signed_log(values: Any) -> Any:
    """`log(1 + |x|)` with the sign of `x`."""
    return np.sign(values) * np.log1p(np.abs(values))


@njit(cache=True, nogil=True, error_model="numpy")
def _relative(
    tables: UnitTables,
    timing: Timing,
    rows: IntArray,
    units: IntArray,
    raw: NDArray[np.float64],
    unit_slack_s: FloatArray,
    mean_s: float,
    num_units: int,
    room_bytes: FloatArray,
    out: tuple[Float32Array, Float32Array, BoolArray],
) -> None:
    """Writes pair features, context features and the mask from `_raw`'s seconds; features in the order of their names."""
    pair, context, mask = out
    num_devices = raw.shape[1]
    for question in range(len(rows)):
        row, unit = rows[question], units[question]
        current = timing.assignment[row, tables.unit_ops[tables.unit_offsets[unit]]]
        makespan_s = max(timing.makespan_s[row], 1e-30)
        slack = unit_slack_s[row, unit] / makespan_s
        highest_load_s, fastest_s = timing.busy_s[row].max(), tables.unit_time_s[unit].min()
        for device in range(num_devices):
            mask[question, device] = np.isfinite(raw[question, device]).all()
            if not mask[question, device]:
                raw[question, device] = 0.0
        now = raw[question, current]
        for device in range(num_devices):
            at, here, to = raw[question, device], device == current, pair[question, device]
            least_s = fastest_s if mask[question, device] else 0.0
            load_s = timing.busy_s[row, device]
            load_after_s = load_s + (0.0 if here else at[TIME])
            bytes_after = timing.peak_memory_bytes[row, device] + (0.0 if here else tables.unit_memory_bytes[unit])
            memory_after = bytes_after / room_bytes[device]
            to[0] = np.log((at[TIME] + 1e-3 * mean_s) / (least_s + 1e-3 * mean_s))
            to[1] = _signed_log((at[TIME] - now[TIME]) / mean_s)
            to[2] = _signed_log(at[INPUT] / mean_s)
            to[3] = _signed_log(at[OUTPUT] / mean_s)
            to[4] = _signed_log((at[INPUT] - now[INPUT] + (at[OUTPUT] - now[OUTPUT])) / mean_s)
            to[5] = _signed_log((at[READY] - now[READY]) / mean_s)
            to[6] = _signed_log((at[PATH] - now[PATH]) / mean_s)
            to[7] = min(1.0, max(-1.0, at[PATH] / makespan_s - 1.0))
            to[8] = at[INPUTS_THERE]
            to[9] = at[OUTPUTS_THERE]
            to[10] = load_s / makespan_s
            to[11] = min(1.0, max(-1.0, (load_after_s - highest_load_s) / makespan_s))
            to[12] = min(2.0, memory_after)
            to[13] = memory_after <= 1.0
            to[14] = here
            to[15] = slack if here else 0.0
        context[question, 0] = slack
        context[question, 1] = np.log1p(now[TIME] / mean_s)
        context[question, 2] = np.log1p(makespan_s / (mean_s * num_units))


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
