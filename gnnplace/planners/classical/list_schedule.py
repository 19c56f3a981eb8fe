"""Compiled list scheduling: ops in order of upward rank, each on the device where it ends first."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.intervals import block, insert, no_intervals, slot
from gnnplace.planners.classical.list_state import (
    Machine,
    Work,
    copied_bytes,
    empty_state,
    free_read,
    list_machine,
    list_work,
    missing_bytes,
    place_unit,
    ready_s,
    segment_start_s,
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


@dataclass(frozen=True, eq=False)
class ListSchedule:
    """The decisions of a list scheduler, and its estimate of the schedule."""

    assignment: IntArray  # [N]
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    connected: bool
    """False when an op had to go to a device that one of its inputs has no route to."""

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
        if options.mask is not None:
            mask = mask & options.mask
        work = list_work(problem, mask, options.finish_noise, options.activation_share)
        return ListSchedule(*schedule_ops(order, remaining_s, work, machine))

    return connected_schedule(problem, build)


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
    num_ops, num_devices = work.op_time_s.shape
    state = empty_state(work, machine)
    live_bytes, peak_bytes, readers = np.zeros(num_devices), np.zeros(num_devices), work.readers.copy()
    busy = no_intervals(num_devices, num_ops)
    connected = True
    for op in order:
        unit = work.unit_of_op[op]
        decided = state.unit_device[unit]
        best, best_start, best_end, best_place, best_over = -1, 0.0, np.inf, 0, np.inf
        # Without a choice nothing is tried: transfers are sent at once. Copies that count against limits are counted before that.
        sent = not machine.live and (decided >= 0 or np.isfinite(work.op_time_s[op]).sum() == 1)
        for device in range(num_devices):
            if work.op_time_s[op, device] == np.inf or (decided >= 0 and decided != device):
                continue
            seconds = work.op_time_s[op, device] + segment_start_s(op, device, work, machine, state)
            ready = ready_s(op, device, work, machine, state, sent)
            start, end, place = slot(ready, seconds, machine.overhead_s[device], device, busy)
            over = 0.0
            if end == np.inf:
                over = np.inf
            elif decided < 0 and not sent:
                used_bytes = 0.0
                if machine.live:
                    memory = machine.memory_home[device]
                    used_bytes = live_bytes[memory] + work.output_bytes[op] + work.workspace_bytes[op]
                    used_bytes = max(peak_bytes[memory], used_bytes + copied_bytes(op, device, work, machine, state))
                over = max(0.0, missing_bytes(unit, device, work, machine, state) + used_bytes)
            # A device with room comes before one without; then the earliest end decides, then the smaller index.
            earlier = best < 0 or end + remaining_s[op, device] < best_end + remaining_s[op, best]
            if best < 0 or over < best_over or (over == best_over and earlier):
                best, best_start, best_end, best_place, best_over = device, start, end, place, over
        if best_end == np.inf:
            connected = False
            best_place = busy.size[best]
            best_start = busy.end_s[best, best_place - 1] if best_place else 0.0
            best_end = best_start + work.op_time_s[op, best]
        if machine.live:
            memory = machine.memory_home[best]
            live_bytes[memory] += work.output_bytes[op] + copied_bytes(op, best, work, machine, state)
            peak_bytes[memory] = max(peak_bytes[memory], live_bytes[memory] + work.workspace_bytes[op])
        if decided < 0:
            place_unit(unit, best, work, machine, state)
        if not sent:
            ready_s(op, best, work, machine, state, True)
        insert(best, best_place, best_start, best_end, True, busy)
        for device in range(num_devices):
            if machine.excludes[best, device]:
                block(device, best_start, best_end, busy)
        state.assignment[op], state.start_s[op], state.end_s[op] = best, best_start, best_end
        if machine.live:
            free_read(op, work, machine, state, live_bytes, readers)
    return state.assignment, state.start_s, state.end_s, connected
