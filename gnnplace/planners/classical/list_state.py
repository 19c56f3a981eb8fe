"""What list schedulers decide on, compiled: the work, the machine, and where things are by now."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem

__all__ = [
    "Machine",
    "State",
    "Work",
    "begins_s",
    "empty_state",
    "list_machine",
    "list_work",
    "new_bytes",
    "put_unit",
    "ready_s",
]


class Work(NamedTuple):
    """What there is to do."""

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


class Machine(NamedTuple):
    """What there is to do it with."""

    limit_bytes: FloatArray  # [D]
    overhead_s: FloatArray  # [D]
    segment_s: FloatArray  # [D] with the transfer factor, as the next
    intake_s_per_byte: FloatArray  # [D]
    route_offsets: IntArray
    route_links: IntArray
    latency_s: FloatArray  # [L] with the transfer factor
    per_byte_s: FloatArray  # [L]
    link_channel: IntArray
    num_channels: int
    channels: bool  # transfers wait for their channel


class State(NamedTuple):
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


def list_work(
    problem: Problem, mask: BoolArray, time_factors: FloatArray | float = 1.0, activation_share: float = 0.0
) -> Work:
    """The work of a problem on the devices that `mask` `[U, D]` allows.

    A share of what an op produces may count as weights: for schedulers that free nothing.

    >>> from gnnplace.sim.example import diamond
    >>> work = list_work(diamond(), np.array([[True, False]] * 4), time_factors=10.0, activation_share=0.5)
    >>> work.op_time_s[0].tolist(), work.unit_bytes.tolist()
    ([10.0, inf], [4, 4, 4, 0])
    """
    graph = problem.graph
    return Work(
        problem.unit_of_op, np.where(mask[problem.unit_of_op], problem.op_time_s * time_factors, np.inf),
        graph.input_offsets, graph.input_tensors, graph.tensor_producer, graph.tensor_bytes,
        *_unit_weights(problem, activation_share), graph.weight_bytes,
    )  # fmt: skip


@lru_cache(maxsize=4)  # searches build hundreds of schedules of one problem
def _unit_weights(problem: Problem, activation_share: float) -> tuple[IntArray, IntArray, IntArray]:
    """Own bytes of units `[U]`, and the shared weights of each as offsets and indices."""
    graph = problem.graph
    unit_bytes = np.zeros(problem.num_units, dtype=np.int64)
    produced = np.zeros(graph.num_ops)
    np.add.at(produced, graph.tensor_producer, graph.tensor_bytes)
    held_bytes = graph.memory_bytes + (activation_share * produced).astype(np.int64)
    np.add.at(unit_bytes, problem.unit_of_op, held_bytes)
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_offsets))
    pairs = np.unique(np.stack([problem.unit_of_op[graph.weight_consumers], weight], axis=1), axis=0)
    return unit_bytes, *csr(pairs[:, 0], pairs[:, 1], problem.num_units)


def list_machine(topology: Topology, transfer_factor: float, memory_share: float | None, channels: bool) -> Machine:
    """The devices, of whose memory a share may be used (None: memory is ignored), with transfers that cost a factor.

    >>> from gnnplace.sim.example import diamond
    >>> machine = list_machine(diamond().topology, transfer_factor=3.0, memory_share=None, channels=True)
    >>> machine.limit_bytes.tolist(), machine.latency_s.tolist(), machine.num_channels
    ([inf, inf], [0.003, 0.003], 2)
    """
    share = np.inf if memory_share is None else memory_share
    return Machine(
        np.array([share * capacity if capacity else 0.0 for capacity in topology.memory_bytes.tolist()]),
        topology.dispatch_overhead_s, transfer_factor * topology.segment_overhead_s,
        transfer_factor / topology.intake_bandwidth_bytes_per_s, topology.route_offsets, topology.route_links,
        transfer_factor * topology.latency_s, transfer_factor / topology.bandwidth_bytes_per_s,
        topology.link_channel, len(topology.channel_names), channels,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def empty_state(work: Work, machine: Machine) -> State:
    """Nothing is placed yet.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> work = list_work(problem, problem.action_mask)
    >>> state = empty_state(work, list_machine(problem.topology, 1.0, 1.0, channels=False))
    >>> state.unit_device.tolist(), state.arrival_s.shape
    ([-1, -1, -1, -1], (3, 2))
    """
    num_ops, num_devices = work.op_time_s.shape
    return State(
        np.full(num_ops, -1),
        np.zeros(num_ops),
        np.zeros(num_ops),
        np.full((len(work.num_bytes), num_devices), np.inf),
        np.zeros(machine.num_channels),
        np.zeros(machine.num_channels),
        np.full(len(work.unit_bytes), -1),
        np.zeros(num_devices),
        np.zeros((len(work.weight_bytes), num_devices), dtype=np.bool_),
    )


@njit(cache=True, nogil=True)
def new_bytes(unit: int, device: int, work: Work, held: BoolArray) -> float:
    """Weights that a device would have to hold in addition.

    >>> from gnnplace.sim.example import diamond
    >>> work = list_work(diamond(), diamond().action_mask, activation_share=1.0)
    >>> new_bytes(0, 1, work, np.zeros((0, 2), dtype=np.bool_))
    8.0
    """
    total = float(work.unit_bytes[unit])
    for at in range(work.unit_weight_offsets[unit], work.unit_weight_offsets[unit + 1]):
        if not held[work.unit_weights[at], device]:
            total += work.weight_bytes[work.unit_weights[at]]
    return total


@njit(cache=True, nogil=True)
def put_unit(unit: int, device: int, work: Work, state: State) -> None:
    """Decides for a unit: its weights move in.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> work = list_work(problem, problem.action_mask, activation_share=1.0)
    >>> state = empty_state(work, list_machine(problem.topology, 1.0, 1.0, channels=False))
    >>> put_unit(0, 1, work, state)
    >>> state.unit_device.tolist(), state.resident.tolist()
    ([1, -1, -1, -1], [0.0, 8.0])
    """
    state.unit_device[unit] = device
    state.resident[device] += new_bytes(unit, device, work, state.held)
    for at in range(work.unit_weight_offsets[unit], work.unit_weight_offsets[unit + 1]):
        state.held[work.unit_weights[at], device] = True


@njit(cache=True, nogil=True)
def begins_s(op: int, device: int, work: Work, machine: Machine, state: State) -> float:
    """What an op pays for beginning a segment on a device: nothing unless inputs have to be sent there.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> work = list_work(problem, problem.action_mask)
    >>> machine = list_machine(problem.topology, 1.0, 1.0, channels=False)._replace(segment_s=np.array([0.5, 0.5]))
    >>> state = empty_state(work, machine)
    >>> state.assignment[0] = 0
    >>> begins_s(1, 0, work, machine, state), begins_s(1, 1, work, machine, state)  # stay, or have an input sent
    (0.0, 0.5)
    """
    total = 0.0
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        if state.assignment[work.producer[tensor]] != device and state.arrival_s[tensor, device] == np.inf:
            total = max(total, machine.segment_s[device]) + work.num_bytes[tensor] * machine.intake_s_per_byte[device]
    return total


@njit(cache=True, nogil=True)
def ready_s(op: int, device: int, work: Work, machine: Machine, state: State, commit: bool) -> float:
    """When the inputs of an op are on a device; a tensor that was sent there before is not sent again.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> work, machine = list_work(problem, problem.action_mask), list_machine(problem.topology, 1.0, 1.0, channels=False)
    >>> state = empty_state(work, machine)
    >>> state.assignment[0], state.end_s[0] = 0, 1.0
    >>> [round(ready_s(1, device, work, machine, state, False), 3) for device in (0, 1)]
    [1.0, 1.001]
    """
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
