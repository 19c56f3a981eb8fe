"""Compiled list scheduling: ops in order of upward rank, each on the device where it ends first."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.intervals import block, insert, no_intervals, slot
from gnnplace.planners.classical.list_state import (
    SENT,
    TRIED,
    Machine,
    Work,
    copied_bytes,
    empty_state,
    free_read,
    hold_weights,
    inputs_s,
    list_machine,
    list_work,
    new_bytes,
)
from gnnplace.threads import map_in_threads

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ScheduleOptions:
    """Options of a list scheduler; the defaults are HEFT's, except that weights must fit."""

    transfer_factor: float = 1.0
    """Factor on the seconds of every transfer; a larger one keeps more ops together."""
    channels: bool = False
    """Whether transfers wait for each other on their channels while the schedule is built."""
    memory_share: float | None = 1.0
    """Share of its memory that a device may fill with weights; a unit goes elsewhere if it can. None ignores memory."""
    activation_share: float = 0.0
    """Share of the bytes produced that counts as weights, which are never freed."""
    rank_noise: FloatArray | float = 1.0
    """`[N]` factors on the ops' mean times for ranking."""
    finish_noise: FloatArray | float = 1.0
    """`[N, D]` factors on op times, to vary decisions."""
    order: IntArray | None = None
    """`[N]` ops in the order in which they are placed, inputs first; None: by falling upward rank."""
    remaining_s: FloatArray | None = None
    """`[N, D]` seconds added to an op's end when devices are compared; None adds nothing."""
    mask: BoolArray | None = None
    """`[U, D]` devices that units are kept to, besides those that they may run on; None: all."""
    live: bool = False
    """Whether live activations and received copies count against the memory, from their producer to their last reader in `order`."""


class OpInputs(NamedTuple):
    """The tensors that each op reads, with their producers."""

    input_offsets: IntArray  # [N + 1]
    input_tensors: IntArray
    producer: IntArray  # [T]
    num_bytes: IntArray  # [T]


@dataclass(frozen=True, eq=False)
class ListSchedule:
    """The decisions of a list scheduler, and its estimate of the schedule."""

    assignment: IntArray  # [N]
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    connected: bool
    """False when an op had to go to a device that one of its inputs has no route to, or that `ScheduleOptions.mask` excludes."""

    @property
    def priorities(self) -> FloatArray:
        """`[N]` priorities with which every device runs its ops in the order of this schedule."""
        return start_order_priorities(self.start_s, self.end_s)


def start_order_priorities(starts: FloatArray | IntArray, ends: FloatArray | IntArray) -> FloatArray:
    """`[N]` priorities of ops by start, then by end; the earliest op has the highest."""
    priorities = np.empty(len(starts))
    priorities[np.lexsort((ends, starts))] = np.arange(len(starts))[::-1]
    return priorities


def list_schedule(problem: Problem, options: ScheduleOptions = ScheduleOptions()) -> ListSchedule:
    """The list schedule of a problem: each op in turn goes to the device where it ends first.

    The first op of a colocation group to be placed decides for the whole group.
    """
    order = options.order
    if order is None:
        order = rank_order(problem, options.transfer_factor, options.rank_noise)
    machine = list_machine(
        problem.topology, options.transfer_factor, options.memory_share, options.channels, options.live
    )
    remaining_s = np.zeros_like(problem.op_time_s) if options.remaining_s is None else options.remaining_s

    def build(mask: BoolArray) -> ListSchedule:
        keeps = True
        if options.mask is not None:
            keeps = bool((options.mask & problem.action_mask).any(axis=1).all())
            mask = _within(mask, options.mask, problem.action_mask)
        work = list_work(problem, mask, options.finish_noise, options.activation_share)
        assignment, start_s, end_s, connected = schedule_ops(order, remaining_s, work, machine)
        return ListSchedule(assignment, start_s, end_s, bool(connected and keeps))

    return connected_schedule(problem, build)


def _within(mask: BoolArray, chosen: BoolArray, allowed: BoolArray) -> BoolArray:
    """`[U, D]` devices in both masks; where a unit has none, those in `chosen` that are allowed, else all allowed ones."""
    found: BoolArray = mask & chosen
    for other in (chosen & allowed, allowed):
        lacking = ~found.any(axis=1)
        found[lacking] = other[lacking]
    return found


def on_all_cores(problem: Problem, function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> Iterator[ResultT]:
    """The results of a function that makes list schedules of the problem, in the order of the items; see `map_in_threads`."""
    _ = problem.unit_of_op, problem.action_mask, problem.graph.input_tensors  # computed once, not in every thread
    return map_in_threads(function, items, problem.num_threads)


def connected_schedule(problem: Problem, build: Callable[[BoolArray], ListSchedule]) -> ListSchedule:
    """The schedule that `build` gives on the allowed devices `[U, D]`.

    When an op cannot be reached from its inputs, `build` runs again without the devices that are not connected to all
    others.
    """
    schedule = build(problem.action_mask)
    return schedule if schedule.connected else build(connected_mask(problem))


@lru_cache(maxsize=4)  # searches build hundreds of schedules of one problem
def mean_costs(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Mean seconds of each op `[N]` over the devices that may run it, and of each edge `[E]` over connected devices.

    Callers share the arrays and must not write to them.
    """
    graph = problem.graph
    allowed = problem.action_mask[problem.unit_of_op]
    mean_s = np.where(allowed, problem.op_time_s, 0.0).sum(axis=1) / allowed.sum(axis=1)
    latency_s, per_byte_s = problem.topology.mean_transfer
    edge_bytes = graph.tensor_bytes[graph.consumer_tensor].astype(np.float64)
    return mean_s, latency_s + per_byte_s * edge_bytes


def rank_order(problem: Problem, transfer_factor: float = 1.0, noise: FloatArray | float = 1.0) -> IntArray:
    """`[N]` ops by falling upward rank over mean times; equal ones in topological order, so inputs come first."""
    order, (mean_s, edge_s) = problem.graph.topological_order, mean_costs(problem)
    rank = problem.graph.upward_rank(mean_s * noise, transfer_factor * edge_s)
    return order[np.argsort(-rank[order], kind="stable")]


def connected_mask(problem: Problem) -> BoolArray:
    """`[U, D]` allowed devices that exchange tensors with the best connected device; all of a unit's where none does."""
    exchanges = problem.topology.exchanges
    mask: BoolArray = problem.action_mask & exchanges[np.argmax(exchanges.sum(axis=1))]
    mask[~mask.any(axis=1)] = problem.action_mask[~mask.any(axis=1)]
    return mask


@njit(cache=True, nogil=True)
def schedule_ops(
    order: IntArray, remaining_s: FloatArray, work: Work, machine: Machine
) -> tuple[IntArray, FloatArray, FloatArray, bool]:
    """Devices, starts and ends `[N]` of ops that are placed in `order` `[N]`, and whether all inputs had a route.

    Adds `remaining_s` `[N, D]` to an op's end when it compares devices.
    """
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
    connected, shares = True, excludes.any()
    for op in order:
        unit = unit_of_op[op]
        decided = unit_device[unit]
        best, best_start, best_end, best_place, best_over = -1, 0.0, np.inf, 0, np.inf
        options = 0
        for device in range(num_devices):
            options += op_time_s[op, device] < np.inf
        # With one possible device there is nothing to compare, so transfers are booked at once, unless copies count against a limit first.
        sent = not machine.live and (decided >= 0 or options == 1)
        row = SENT if sent else TRIED
        for device in range(num_devices):
            if op_time_s[op, device] == np.inf or (decided >= 0 and decided != device):
                continue
            ready, intake_s = inputs_s(
                op, device, row, input_offsets, input_tensors, producer, num_bytes, assignment, op_end_s, arrival_s, free_s,
                channels, route_offsets, hop_latency_s, hop_s_per_byte, hop_channel, segment_s, intake_s_per_byte,
            )  # fmt: skip
            seconds = op_time_s[op, device] + intake_s
            start, end, place = slot(ready, seconds, overhead_s[device], device, busy_start_s, busy_end_s, is_own, size)
            over = 0.0
            if end == np.inf:
                over = np.inf
            elif decided < 0 and not sent:
                memory, used_bytes = home[device], 0.0
                if machine.live:
                    copied = copied_bytes(
                        op, device, input_offsets, input_tensors, producer, num_bytes, assignment, arrival_s, home, pooled,
                    )  # fmt: skip
                    used_bytes = live_bytes[memory] + work.output_bytes[op] + work.workspace_bytes[op]
                    used_bytes = max(peak_bytes[memory], used_bytes + copied)
                added = new_bytes(unit, memory, unit_bytes, weight_offsets, unit_weights, weight_bytes, held)
                over = max(0.0, resident[memory] + added - limit_bytes[device] + used_bytes)
            # A device with room comes before one without; then the earliest end decides, then the smaller index.
            earlier = best < 0 or end + remaining_s[op, device] < best_end + remaining_s[op, best]
            if best < 0 or over < best_over or (over == best_over and earlier):
                best, best_start, best_end, best_place, best_over = device, start, end, place, over
        if best_end == np.inf:
            connected = False
            best_place = size[best]
            best_start = busy_end_s[best, best_place - 1] if best_place else 0.0
            best_end = best_start + op_time_s[op, best]
        memory = home[best]
        if machine.live:
            copied = copied_bytes(
                op, best, input_offsets, input_tensors, producer, num_bytes, assignment, arrival_s, home, pooled
            )
            live_bytes[memory] += work.output_bytes[op] + copied
            peak_bytes[memory] = max(peak_bytes[memory], live_bytes[memory] + work.workspace_bytes[op])
        if decided < 0:
            unit_device[unit] = best
            hold_weights(unit, memory, unit_bytes, weight_offsets, unit_weights, weight_bytes, held, resident)
        if not sent:
            inputs_s(
                op, best, SENT, input_offsets, input_tensors, producer, num_bytes, assignment, op_end_s, arrival_s, free_s,
                channels, route_offsets, hop_latency_s, hop_s_per_byte, hop_channel, segment_s, intake_s_per_byte,
            )  # fmt: skip
        insert(best, best_place, (best_start, best_end, True), busy_start_s, busy_end_s, is_own, size)
        if shares:
            for device in range(num_devices):
                if excludes[best, device]:
                    block(device, best_start, best_end, busy)
        assignment[op], state.start_s[op], op_end_s[op] = best, best_start, best_end
        if machine.live:
            free_read(
                op, input_offsets, input_tensors, producer, num_bytes, assignment, arrival_s, home, pooled, live_bytes, readers
            )  # fmt: skip
    return assignment, state.start_s, op_end_s, connected


@njit(cache=True, nogil=True)
def schedule_placed(
    order: IntArray, devices: IntArray, op_s: FloatArray, inputs: OpInputs, machine: Machine
) -> tuple[FloatArray, FloatArray, bool]:
    """Starts and ends `[N]` of ops on `devices` `[N]`, as `schedule_ops` gives them without a choice, and whether all inputs had a route.

    `op_s` `[N]` are the seconds of the ops there. Memory is ignored.
    """
    input_offsets, input_tensors, producer, num_bytes = inputs
    excludes, channels, route_offsets = machine.excludes, machine.channels, machine.route_offsets
    hop_latency_s, hop_s_per_byte, hop_channel = machine.hop_latency_s, machine.hop_s_per_byte, machine.hop_channel
    segment_s, intake_s_per_byte, overhead_s = machine.segment_s, machine.intake_s_per_byte, machine.overhead_s
    num_ops, num_devices = len(devices), len(overhead_s)
    start_s, end_s = np.zeros(num_ops), np.zeros(num_ops)
    arrival_s = np.full((len(num_bytes), num_devices), np.inf)
    free_s = np.zeros((2, machine.num_channels))
    busy = no_intervals(num_devices, num_ops)
    busy_start_s, busy_end_s, is_own, size = busy.start_s, busy.end_s, busy.is_own, busy.size
    shares = excludes.any()
    for op in order:
        device = devices[op]
        ready, intake_s = inputs_s(
            op, device, SENT, input_offsets, input_tensors, producer, num_bytes, devices, end_s, arrival_s, free_s,
            channels, route_offsets, hop_latency_s, hop_s_per_byte, hop_channel, segment_s, intake_s_per_byte,
        )  # fmt: skip
        seconds = op_s[op] + intake_s
        start, end, place = slot(ready, seconds, overhead_s[device], device, busy_start_s, busy_end_s, is_own, size)
        if end == np.inf:
            return start_s, end_s, False
        insert(device, place, (start, end, True), busy_start_s, busy_end_s, is_own, size)
        if shares:
            for other in range(num_devices):
                if excludes[device, other]:
                    block(other, start, end, busy)
        start_s[op], end_s[op] = start, end
    return start_s, end_s, True
