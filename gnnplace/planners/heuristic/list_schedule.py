"""List scheduling, compiled: ops in order of upward rank, each to the device where it ends first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import upward_rank

__all__ = ["ListSchedule", "ListScheduling", "build_list_schedule", "list_schedule"]


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
    """
    order = _rank_order(problem, transfer_factor, rank_noise)
    result = _build(problem, order, transfer_factor, scheduling, problem.action_mask)
    if result.connected:
        return result
    mask = problem.action_mask & _largest_connected(problem.topology)
    mask[~mask.any(axis=1)] = problem.action_mask[~mask.any(axis=1)]
    return _build(problem, order, transfer_factor, scheduling, mask)


class _Work(NamedTuple):
    """What there is to do, for the compiled loop."""

    unit_of_op: IntArray
    op_time_s: FloatArray  # [N, D] infinite where not allowed
    input_offsets: IntArray
    input_tensors: IntArray
    producer: IntArray
    num_bytes: IntArray
    unit_bytes: IntArray  # [U] own weights
    unit_weight_offsets: IntArray  # [U + 1] shared weights by unit
    unit_weights: IntArray
    weight_bytes: IntArray


class _Machine(NamedTuple):
    """What there is to do it with."""

    limit_bytes: FloatArray  # [D]
    overhead_s: FloatArray  # [D]
    route_offsets: IntArray
    route_links: IntArray
    latency_s: FloatArray  # [L] with the transfer factor
    per_byte_s: FloatArray  # [L]
    link_channel: IntArray
    num_channels: int
    channels: bool  # transfers wait for their channel
    insertion: bool


class _State(NamedTuple):
    """Where things are by now."""

    assignment: IntArray  # [N]
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    arrival_s: FloatArray  # [T, D] of copies, infinite where none was sent
    channel_free_s: FloatArray  # [channels]
    tried_free_s: FloatArray  # [channels] scratch while a device is tried
    unit_device: IntArray  # [U]
    resident: FloatArray  # [D] bytes
    held: BoolArray  # [W, D]
    busy_start_s: FloatArray  # [D, N] sorted
    busy_end_s: FloatArray  # [D, N]
    busy_count: IntArray  # [D]


def _build(
    problem: Problem, order: IntArray, transfer_factor: float, scheduling: ListScheduling, mask: BoolArray
) -> ListSchedule:
    graph, topology = problem.graph, problem.topology
    noise = 1.0 if scheduling.finish_noise is None else scheduling.finish_noise
    unit_bytes = np.zeros(problem.num_units, dtype=np.int64)
    produced = np.zeros(graph.num_ops)
    np.add.at(produced, graph.tensor_producer, graph.tensor_bytes)
    held_bytes = graph.memory_bytes + (scheduling.activation_share * produced).astype(np.int64)
    np.add.at(unit_bytes, problem.unit_of_op, held_bytes)
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_offsets))
    pairs = np.unique(np.stack([problem.unit_of_op[graph.weight_consumers], weight], axis=1), axis=0)
    share = np.inf if scheduling.memory_share is None else scheduling.memory_share
    work = _Work(
        problem.unit_of_op, np.where(mask[problem.unit_of_op], problem.op_time_s * noise, np.inf),
        graph.input_offsets, graph.input_tensors, graph.tensor_producer, graph.tensor_bytes,
        unit_bytes, *csr(pairs[:, 0], pairs[:, 1], problem.num_units), graph.weight_bytes,
    )  # fmt: skip
    machine = _Machine(
        np.array([share * capacity if capacity else 0.0 for capacity in topology.memory_bytes.tolist()]),
        topology.dispatch_overhead_s, topology.route_offsets, topology.route_links,
        transfer_factor * topology.latency_s, transfer_factor / topology.bandwidth_bytes_per_s,
        topology.link_channel, len(topology.channel_names), scheduling.channels, scheduling.insertion,
    )  # fmt: skip
    return ListSchedule(*_schedule(order, work, machine))


def _rank_order(problem: Problem, transfer_factor: float, rank_noise: FloatArray | None) -> IntArray:
    """`[N]` ops by falling upward rank over mean times; equal ones in topological order, so inputs come first."""
    graph = problem.graph
    allowed = problem.action_mask[problem.unit_of_op]
    mean_s = np.where(allowed, problem.op_time_s, 0.0).sum(axis=1) / allowed.sum(axis=1)
    latency_s, per_byte_s = problem.topology.mean_transfer
    edge_bytes = graph.tensor_bytes[graph.consumer_tensor].astype(np.float64)
    edge_s = transfer_factor * (latency_s + per_byte_s * edge_bytes)
    rank = upward_rank(
        graph.topological_order,
        mean_s if rank_noise is None else mean_s * rank_noise,
        graph.successor_offsets,
        graph.successors,
        edge_s,
    )
    return graph.topological_order[np.argsort(-rank[graph.topological_order], kind="stable")]


def _largest_connected(topology: Topology) -> BoolArray:
    """`[D]` true for the devices that exchange tensors both ways with the best connected device."""
    count = topology.num_devices
    there = np.array([[topology.route(s, t) is not None for t in range(count)] for s in range(count)])
    both = there & there.T
    return np.asarray(both[np.argmax(both.sum(axis=1))])


@njit(cache=True, nogil=True)
def _schedule(order: IntArray, work: _Work, machine: _Machine) -> tuple[IntArray, FloatArray, FloatArray, bool]:
    num_ops, num_devices = work.op_time_s.shape
    state = _State(
        np.full(num_ops, -1),
        np.zeros(num_ops),
        np.zeros(num_ops),
        np.full((len(work.num_bytes), num_devices), np.inf),
        np.zeros(machine.num_channels),
        np.zeros(machine.num_channels),
        np.full(len(work.unit_bytes), -1),
        np.zeros(num_devices),
        np.zeros((len(work.weight_bytes), num_devices), dtype=np.bool_),
        np.empty((num_devices, num_ops)),
        np.empty((num_devices, num_ops)),
        np.zeros(num_devices, dtype=np.int64),
    )
    connected = True
    for op in order:
        unit = work.unit_of_op[op]
        decided = state.unit_device[unit]
        best, best_start, best_end, best_place, best_over = -1, 0.0, np.inf, 0, np.inf
        for device in range(num_devices):
            if work.op_time_s[op, device] == np.inf or (decided >= 0 and decided != device):
                continue
            ready = _ready(op, device, work, machine, state, False)
            start, end, place = _slot(ready, op, device, work, machine, state)
            over = 0.0
            if end == np.inf:
                over = np.inf
            elif decided < 0:
                used = state.resident[device] + _new_bytes(unit, device, work, state.held)
                over = max(0.0, used - machine.limit_bytes[device])
            # What fits comes before what does not; then the earliest end, then the smaller index.
            if best < 0 or over < best_over or (over == best_over and end < best_end):
                best, best_start, best_end, best_place, best_over = device, start, end, place, over
        if best_end == np.inf:
            connected = False
            best_place = state.busy_count[best]
            best_start = state.busy_end_s[best, best_place - 1] if best_place else 0.0
            best_end = best_start + work.op_time_s[op, best]
        if decided < 0:
            state.unit_device[unit] = best
            state.resident[best] += _new_bytes(unit, best, work, state.held)
            for at in range(work.unit_weight_offsets[unit], work.unit_weight_offsets[unit + 1]):
                state.held[work.unit_weights[at], best] = True
        _ready(op, best, work, machine, state, True)
        busy_start, busy_end = state.busy_start_s[best], state.busy_end_s[best]
        for at in range(state.busy_count[best], best_place, -1):
            busy_start[at], busy_end[at] = busy_start[at - 1], busy_end[at - 1]
        busy_start[best_place], busy_end[best_place] = best_start, best_end
        state.busy_count[best] += 1
        state.assignment[op], state.start_s[op], state.end_s[op] = best, best_start, best_end
    return state.assignment, state.start_s, state.end_s, connected


@njit(cache=True, nogil=True)
def _new_bytes(unit: int, device: int, work: _Work, held: BoolArray) -> float:
    """Weights that a device would have to hold in addition."""
    total = float(work.unit_bytes[unit])
    for at in range(work.unit_weight_offsets[unit], work.unit_weight_offsets[unit + 1]):
        if not held[work.unit_weights[at], device]:
            total += work.weight_bytes[work.unit_weights[at]]
    return total


@njit(cache=True, nogil=True)
def _ready(op: int, device: int, work: _Work, machine: _Machine, state: _State, commit: bool) -> float:
    """When the inputs of an op are on a device; a tensor that was sent there before is not sent again."""
    free = state.channel_free_s
    if machine.channels and not commit:
        free = state.tried_free_s
        free[:] = state.channel_free_s
    ready = 0.0
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        source = state.assignment[work.producer[tensor]]
        time = state.end_s[work.producer[tensor]]
        if source != device and state.arrival_s[tensor, device] < np.inf:
            time = state.arrival_s[tensor, device]
        elif source != device:
            route = source * work.op_time_s.shape[1] + device
            if machine.route_offsets[route] == machine.route_offsets[route + 1]:
                time = np.inf
            for hop in range(machine.route_offsets[route], machine.route_offsets[route + 1]):
                link = machine.route_links[hop]
                if machine.channels:
                    time = max(time, free[machine.link_channel[link]])
                time += machine.latency_s[link] + work.num_bytes[tensor] * machine.per_byte_s[link]
                if machine.channels:
                    free[machine.link_channel[link]] = time
            if commit:
                state.arrival_s[tensor, device] = time
        ready = max(ready, time)
    return ready


@njit(cache=True, nogil=True)
def _slot(
    ready: float, op: int, device: int, work: _Work, machine: _Machine, state: _State
) -> tuple[float, float, int]:
    """Start, end and place of the earliest gap that is long enough; a device that sat idle before pays its overhead."""
    count = state.busy_count[device]
    place = np.searchsorted(state.busy_end_s[device, :count], ready) if machine.insertion else count
    while True:
        free = state.busy_end_s[device, place - 1] if place else 0.0
        start = max(ready, free)
        end = start + work.op_time_s[op, device] + (machine.overhead_s[device] if start > free else 0.0)
        if place == count or end <= state.busy_start_s[device, place]:
            return start, end, int(place)
        place += 1
