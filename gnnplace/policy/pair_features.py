"""Features of one unit on one device, given the current schedules: compiled, a few microseconds per row.

`PAIR` and `CONTEXT` define each feature once: the field's name is the feature's name and its position is the column.
"""

from collections import namedtuple
from typing import Any

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.env.timing import Timing, UnitTables, tail_s
from gnnplace.policy.features import GraphFeatures

# Of a unit on a device; of a unit on any device; and of `raw_amounts`, where `_s` are seconds and the others shares.
_PairColumns = namedtuple(
    "_PairColumns",
    "slowdown time_change input_transfer output_transfer transfer_change ready_change path_change path "
    "inputs_there outputs_there load load_after memory_after fits is_current slack_kept exclusive",
)
_ContextColumns = namedtuple("_ContextColumns", "slack share objective budget")
_RawColumns = namedtuple("_RawColumns", "time_s input_s output_s ready_s path_s inputs_there outputs_there")

PAIR = _PairColumns(*range(len(_PairColumns._fields)))
CONTEXT = _ContextColumns(*range(len(_ContextColumns._fields)))
_RAW = _RawColumns(*range(len(_RawColumns._fields)))
SCHEDULE_PAIR = frozenset({"ready_change", "path_change", "path", "load", "load_after", "slack_kept"})
SCHEDULE_CONTEXT = frozenset({"slack", "objective"})
"""Features that name times of the schedule, or shares of its makespan; the others follow from the placement alone."""


def pair_features(
    features: GraphFeatures,
    tables: UnitTables,
    timing: Timing,
    rows: IntArray,
    units: IntArray,
    capacity_bytes: IntArray,
    budget: float = 0.0,
) -> tuple[Float32Array, Float32Array, BoolArray]:
    """Pair features `[R, D, F]`, context features `[R, F]` and the mask `[R, D]` of moving `units[r]` in placement `rows[r]`.

    `rows` are rows of `timing`; `capacity_bytes` is `[D]`, `budget` that of `budget_feature`. The mask is false where the unit cannot run or no route reaches it.
    """
    raw = raw_amounts(tables, timing, tail_s(timing), rows, units)
    unit_slack_s = np.minimum.reduceat(timing.slack_s[:, tables.unit_ops], tables.unit_offsets[:-1], axis=1)
    pair = np.zeros((*raw.shape[:2], len(PAIR)), dtype=np.float32)
    context = np.empty((len(rows), len(CONTEXT)), dtype=np.float32)
    mask = np.empty(raw.shape[:2], dtype=np.bool_)
    write_relative(
        tables, timing, rows, units, raw, unit_slack_s, features.mean_unit_s, len(features.nodes),
        np.maximum(1.0, capacity_bytes.astype(np.float64)), budget, (pair, context, mask),
    )  # fmt: skip
    return pair, context, mask


@njit(cache=True, nogil=True, error_model="numpy")
def budget_feature(evaluations_left: float, num_moves: int) -> float:
    """The remaining evaluations per single move as a feature, logarithmic from -1 (e^-4 and fewer) to 1 (e^4 and more)."""
    return float(min(4.0, max(-4.0, np.log(max(evaluations_left, 1e-9) / max(num_moves, 1)))) / 4.0)


@njit(cache=True, nogil=True, error_model="numpy")
def signed_log(values: Any) -> Any:
    """`log(1 + |x|)` with the sign of `x`."""
    return np.sign(values) * np.log1p(np.abs(values))


@njit(cache=True, nogil=True, error_model="numpy")
def write_relative(
    tables: UnitTables,
    timing: Timing,
    rows: IntArray,
    units: IntArray,
    raw: FloatArray,
    unit_slack_s: FloatArray,
    mean_s: float,
    num_units: int,
    capacity_bytes: FloatArray,
    budget: float,
    out: tuple[Float32Array, Float32Array, BoolArray],
) -> None:
    """Writes pair features, context features and the mask from those of `raw_amounts`."""
    pair, context, mask = out
    num_devices = raw.shape[1]
    exclusive = np.empty(num_devices)  # share of the devices that cannot run beside one
    for device in range(num_devices):
        exclusive[device] = tables.excludes[device].sum() / num_devices
    for index in range(len(rows)):
        row, unit = rows[index], units[index]
        current = timing.assignment[row, tables.unit_ops[tables.unit_offsets[unit]]]
        makespan_s = max(timing.makespan_s[row], 1e-30)
        slack = unit_slack_s[row, unit] / makespan_s
        highest_load_s, fastest_s = timing.busy_s[row].max(), tables.unit_time_s[unit].min()
        for device in range(num_devices):
            mask[index, device] = np.isfinite(raw[index, device]).all()
            if not mask[index, device]:
                raw[index, device] = 0.0
        now = raw[index, current]
        for device in range(num_devices):
            at, is_current, to = raw[index, device], device == current, pair[index, device]
            least_s = fastest_s if mask[index, device] else 0.0
            load_s = timing.busy_s[row, device]
            load_after_s = load_s + (0.0 if is_current else at[_RAW.time_s])
            if tables.excludes[device, current]:  # the unit's seconds on its present device are among those
                load_after_s = max(0.0, load_after_s - now[_RAW.time_s])
            is_there = tables.memory_home[device] == tables.memory_home[current]
            bytes_after = timing.peak_memory_bytes[row, device] + (0.0 if is_there else tables.unit_memory_bytes[unit])
            memory_after = bytes_after / capacity_bytes[device]
            transfer_s = at[_RAW.input_s] - now[_RAW.input_s] + (at[_RAW.output_s] - now[_RAW.output_s])
            to[PAIR.slowdown] = np.log((at[_RAW.time_s] + 1e-3 * mean_s) / (least_s + 1e-3 * mean_s))
            to[PAIR.time_change] = signed_log((at[_RAW.time_s] - now[_RAW.time_s]) / mean_s)
            to[PAIR.input_transfer] = signed_log(at[_RAW.input_s] / mean_s)
            to[PAIR.output_transfer] = signed_log(at[_RAW.output_s] / mean_s)
            to[PAIR.transfer_change] = signed_log(transfer_s / mean_s)
            to[PAIR.ready_change] = signed_log((at[_RAW.ready_s] - now[_RAW.ready_s]) / mean_s)
            to[PAIR.path_change] = signed_log((at[_RAW.path_s] - now[_RAW.path_s]) / mean_s)
            to[PAIR.path] = min(1.0, max(-1.0, at[_RAW.path_s] / makespan_s - 1.0))
            to[PAIR.inputs_there] = at[_RAW.inputs_there]
            to[PAIR.outputs_there] = at[_RAW.outputs_there]
            to[PAIR.load] = load_s / makespan_s
            to[PAIR.load_after] = min(1.0, max(-1.0, (load_after_s - highest_load_s) / makespan_s))
            to[PAIR.memory_after] = min(2.0, memory_after)
            to[PAIR.fits] = memory_after <= 1.0
            to[PAIR.is_current] = is_current
            to[PAIR.slack_kept] = slack if is_current else 0.0
            to[PAIR.exclusive] = exclusive[device]
        context[index, CONTEXT.slack] = slack
        context[index, CONTEXT.share] = np.log1p(now[_RAW.time_s] / mean_s)
        context[index, CONTEXT.objective] = np.log1p(makespan_s / (mean_s * num_units))
        context[index, CONTEXT.budget] = budget


@njit(cache=True, nogil=True)
def raw_amounts(
    tables: UnitTables, timing: Timing, op_tail_s: FloatArray, rows: IntArray, units: IntArray
) -> FloatArray:
    """`[R, D, 7]` amounts before scaling; infinite where the unit cannot run or no route carries its data.

    `time_s`: the unit's ops. `input_s` and `output_s`: the transfers that its inputs and outputs would need. `ready_s`: the largest
    change, over its ops, of the latest arrival of inputs. `path_s`: the longest path through one of its ops (arrival, op, transfer,
    tail of the consumer, with the present queueing). The shares are of input and output bytes whose other end is on the device.
    """
    num_devices = tables.op_time_s.shape[1]
    raw = np.zeros((len(rows), num_devices, len(_RAW)))
    is_sent = np.zeros(num_devices, dtype=np.bool_)
    for index in range(len(rows)):
        row, unit = rows[index], units[index]
        place = timing.assignment[row]
        begin, end = tables.unit_offsets[unit], tables.unit_offsets[unit + 1]
        for device in range(num_devices):
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
                    is_shared = np.isfinite(sent_s) and device != here
                    if device == here:
                        for other in range(tables.consumer_offsets[tensor], tables.consumer_offsets[tensor + 1]):
                            consumer = tables.consumers[other]
                            is_shared = is_shared or (place[consumer] == here and tables.unit_of_op[consumer] != unit)
                    if not is_shared:
                        input_s += hop_s
                below_s = 0.0
                for tensor in range(tables.output_offsets[op], tables.output_offsets[op + 1]):
                    size = tables.tensor_bytes[tensor]
                    is_sent[:] = False
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
                            if not is_sent[target]:
                                output_s += hop_s
                                is_sent[target] = True
                        below_s = max(below_s, hop_s + op_tail_s[row, consumer])
                ready_s = max(ready_s, arrival_s - timing.start_s[row, op])
                path_s = max(path_s, arrival_s + tables.op_time_s[op, device] + below_s)
            to = raw[index, device]
            to[_RAW.time_s] = tables.unit_time_s[unit, device]
            to[_RAW.input_s] = input_s
            to[_RAW.output_s] = output_s
            to[_RAW.ready_s] = ready_s
            to[_RAW.path_s] = path_s
            to[_RAW.inputs_there] = inputs_there / max(1.0, input_bytes)
            to[_RAW.outputs_there] = outputs_there / max(1.0, output_bytes)
    return raw
