"""List scheduling, compiled: ops in order of upward rank, each to the device where it ends first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import upward_rank
from gnnplace.planners.classical.list_state import (
    Machine,
    Work,
    begins_s,
    empty_state,
    list_machine,
    list_work,
    new_bytes,
    put_unit,
    ready_s,
)

__all__ = [
    "ListSchedule",
    "ListScheduling",
    "build_list_schedule",
    "connected_mask",
    "list_schedule",
    "mean_costs",
    "rank_order",
    "schedule_ops",
]


@dataclass(frozen=True)
class ListScheduling:
    """The switches of the scheduler; the defaults are HEFT's, except that weights must fit."""

    insertion: bool = True
    """An op may go into a gap before ops that were placed earlier."""
    channels: bool = False
    """Transfers wait for each other on their channels while the schedule is made."""
    memory_share: float | None = 1.0
    """A device is no candidate when its weights would fill more than this share of its memory; None: memory is ignored."""
    activation_share: float = 0.0
    """How much of what an op produces counts against that memory for good; the schedule itself frees nothing."""
    finish_noise: FloatArray | None = None
    """`[N, D]` factors on op times, to vary decisions."""
    order: IntArray | None = None
    """`[N]` the ops in the order in which they are placed, inputs first; None: by falling upward rank."""
    remaining_s: FloatArray | None = None
    """`[N, D]` seconds that are added to an op's end when devices are compared; None: the end alone decides."""


@dataclass(frozen=True, eq=False)
class ListSchedule:
    """What the scheduler decided, and the times that it believed in."""

    assignment: IntArray  # [N]
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    connected: bool
    """False when an input had no route to where its op had to go."""

    @property
    def length_s(self) -> float:
        """Seconds until the last op ends."""
        return float(self.end_s.max(initial=0.0))

    @property
    def priorities(self) -> FloatArray:
        """`[N]` larger for ops that start earlier: with these a device runs its ops in the order of the schedule."""
        priorities = np.empty(len(self.start_s))
        priorities[np.lexsort((self.end_s, self.start_s))] = np.arange(len(self.start_s))[::-1]
        return priorities


def list_schedule(
    problem: Problem,
    transfer_factor: float = 1.0,
    rank_noise: FloatArray | None = None,
    scheduling: ListScheduling = ListScheduling(),
) -> IntArray:
    """`[N]` the device of each op by list scheduling.

    `transfer_factor` multiplies every transfer time that the scheduler sees: with a larger one it keeps more ops
    together. `rank_noise` `[N]` multiplies the ops' mean times while ranking. The first op of a colocation group to be
    placed decides for all of it.

    >>> from gnnplace.sim.example import diamond
    >>> list_schedule(diamond()).tolist(), list_schedule(diamond(), transfer_factor=5000.0).tolist()
    ([0, 0, 1, 1], [0, 0, 0, 0])
    """
    return build_list_schedule(problem, transfer_factor, rank_noise, scheduling).assignment


def build_list_schedule(
    problem: Problem,
    transfer_factor: float = 1.0,
    rank_noise: FloatArray | None = None,
    scheduling: ListScheduling = ListScheduling(),
) -> ListSchedule:
    """As `list_schedule`, with the times of the schedule.

    When an op cannot be reached from where its inputs are, devices that are not connected to all others are left out.

    >>> from gnnplace.sim.example import diamond
    >>> schedule = build_list_schedule(diamond())
    >>> schedule.start_s.round(3).tolist(), round(schedule.length_s, 3), schedule.priorities.tolist()
    ([0.0, 1.0, 1.001, 3.001], 4.001, [3.0, 2.0, 1.0, 0.0])
    """
    order = rank_order(problem, transfer_factor, rank_noise) if scheduling.order is None else scheduling.order
    machine = list_machine(problem.topology, transfer_factor, scheduling.memory_share, scheduling.channels)
    noise = 1.0 if scheduling.finish_noise is None else scheduling.finish_noise
    remaining_s = np.zeros_like(problem.op_time_s) if scheduling.remaining_s is None else scheduling.remaining_s

    def build(mask: BoolArray) -> ListSchedule:
        work = list_work(problem, mask, noise, scheduling.activation_share)
        return ListSchedule(*schedule_ops(order, remaining_s, scheduling.insertion, work, machine))

    result = build(problem.action_mask)
    return result if result.connected else build(connected_mask(problem))


class _Busy(NamedTuple):
    """When devices are busy, in order of time; as many entries as `size`."""

    start_s: FloatArray  # [D, N]
    end_s: FloatArray  # [D, N]
    size: IntArray  # [D]


def mean_costs(problem: Problem, transfer_factor: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Mean seconds of each op `[N]` over the devices that may run it, and of each edge `[E]` over connected devices.

    >>> from gnnplace.sim.example import diamond
    >>> op_s, edge_s = mean_costs(diamond(), transfer_factor=2.0)
    >>> op_s.tolist(), edge_s.round(6).tolist()
    ([1.0, 2.0, 2.0, 1.0], [0.002, 0.002, 0.002, 0.002])
    """
    graph = problem.graph
    allowed = problem.action_mask[problem.unit_of_op]
    mean_s = np.where(allowed, problem.op_time_s, 0.0).sum(axis=1) / allowed.sum(axis=1)
    latency_s, per_byte_s = problem.topology.mean_transfer
    edge_bytes = graph.tensor_bytes[graph.consumer_tensor].astype(np.float64)
    return mean_s, transfer_factor * (latency_s + per_byte_s * edge_bytes)


def rank_order(problem: Problem, transfer_factor: float = 1.0, rank_noise: FloatArray | None = None) -> IntArray:
    """`[N]` ops by falling upward rank over mean times; equal ones in topological order, so inputs come first.

    >>> from gnnplace.sim.example import diamond
    >>> rank_order(diamond()).tolist(), rank_order(diamond(), rank_noise=np.array([1.0, 1.0, 2.0, 1.0])).tolist()
    ([0, 1, 2, 3], [0, 2, 1, 3])
    """
    graph = problem.graph
    mean_s, edge_s = mean_costs(problem, transfer_factor)
    rank = upward_rank(
        graph.topological_order,
        mean_s if rank_noise is None else mean_s * rank_noise,
        graph.successor_offsets,
        graph.successors,
        edge_s,
    )
    return graph.topological_order[np.argsort(-rank[graph.topological_order], kind="stable")]


def connected_mask(problem: Problem) -> BoolArray:
    """`[U, D]` the allowed devices that exchange tensors both ways with the best connected one; all where there is none.

    >>> from dataclasses import replace
    >>> from gnnplace.devices.topology import Device, Topology
    >>> from gnnplace.sim.example import diamond
    >>> connected_mask(replace(diamond(), topology=Topology("apart", (Device("x"), Device("y")))))[0].tolist()
    [True, False]
    """
    topology, count = problem.topology, problem.topology.num_devices
    there = np.array([[topology.route(s, t) is not None for t in range(count)] for s in range(count)])
    both = there & there.T
    mask: BoolArray = problem.action_mask & both[np.argmax(both.sum(axis=1))]
    mask[~mask.any(axis=1)] = problem.action_mask[~mask.any(axis=1)]
    return mask


@njit(cache=True, nogil=True)
def schedule_ops(
    order: IntArray, remaining_s: FloatArray, insertion: bool, work: Work, machine: Machine
) -> tuple[IntArray, FloatArray, FloatArray, bool]:
    """Devices, starts and ends of ops `[N]` that are placed in `order` `[N]`, and whether all inputs had a route.

    `remaining_s` `[N, D]` is added to an op's end when devices are compared.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> work = list_work(problem, problem.action_mask)
    >>> machine = list_machine(problem.topology, 1.0, 1.0, channels=False)
    >>> assignment, *_ = schedule_ops(rank_order(problem), np.zeros((4, 2)), True, work, machine)
    >>> assignment.tolist()
    [0, 0, 1, 1]
    """
    num_ops, num_devices = work.op_time_s.shape
    state = empty_state(work, machine)
    busy = _Busy(
        np.empty((num_devices, num_ops)), np.empty((num_devices, num_ops)), np.zeros(num_devices, dtype=np.int64)
    )
    connected = True
    for op in order:
        unit = work.unit_of_op[op]
        decided = state.unit_device[unit]
        best, best_start, best_end, best_place, best_over = -1, 0.0, np.inf, 0, np.inf
        for device in range(num_devices):
            if work.op_time_s[op, device] == np.inf or (decided >= 0 and decided != device):
                continue
            ready = ready_s(op, device, work, machine, state, False)
            seconds = work.op_time_s[op, device] + begins_s(op, device, work, machine, state)
            start, end, place = _slot(ready, seconds, machine.overhead_s[device], device, insertion, busy)
            over = 0.0
            if end == np.inf:
                over = np.inf
            elif decided < 0:
                used = state.resident[device] + new_bytes(unit, device, work, state.held)
                over = max(0.0, used - machine.limit_bytes[device])
            # What fits comes before what does not; then the earliest end, then the smaller index.
            earlier = best < 0 or end + remaining_s[op, device] < best_end + remaining_s[op, best]
            if best < 0 or over < best_over or (over == best_over and earlier):
                best, best_start, best_end, best_place, best_over = device, start, end, place, over
        if best_end == np.inf:
            connected = False
            best_place = busy.size[best]
            best_start = busy.end_s[best, best_place - 1] if best_place else 0.0
            best_end = best_start + work.op_time_s[op, best]
        if decided < 0:
            put_unit(unit, best, work, state)
        ready_s(op, best, work, machine, state, True)
        for at in range(busy.size[best], best_place, -1):
            busy.start_s[best, at], busy.end_s[best, at] = busy.start_s[best, at - 1], busy.end_s[best, at - 1]
        busy.start_s[best, best_place], busy.end_s[best, best_place] = best_start, best_end
        busy.size[best] += 1
        state.assignment[op], state.start_s[op], state.end_s[op] = best, best_start, best_end
    return state.assignment, state.start_s, state.end_s, connected


@njit(cache=True, nogil=True)
def _slot(
    ready: float, seconds: float, overhead_s: float, device: int, insertion: bool, busy: _Busy
) -> tuple[float, float, int]:
    """Start, end and place of the earliest gap that is long enough; a device that sat idle before pays its overhead."""
    count = busy.size[device]
    place = np.searchsorted(busy.end_s[device, :count], ready) if insertion else count
    while True:
        free = busy.end_s[device, place - 1] if place else 0.0
        start = max(ready, free)
        end = start + seconds + (overhead_s if start > free else 0.0)
        if place == count or end <= busy.start_s[device, place]:
            return start, end, int(place)
        place += 1
