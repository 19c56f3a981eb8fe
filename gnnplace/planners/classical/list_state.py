"""The compiled state of list schedulers: the ops to place, the machine, and the partial schedule."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem


class Work(NamedTuple):
    """The ops to place, with `T` tensors and `W` shared weights."""

    unit_of_op: IntArray  # [N]
    op_time_s: FloatArray  # [N, D] infinite where not allowed
    input_offsets: IntArray  # [N + 1]
    input_tensors: IntArray
    producer: IntArray  # [T]
    num_bytes: IntArray  # [T]
    unit_bytes: IntArray  # [U] weights of its own
    unit_weight_offsets: IntArray  # [U + 1]
    unit_weights: IntArray  # shared weights of each unit
    weight_bytes: IntArray  # [W]
    output_bytes: FloatArray  # [N]
    workspace_bytes: FloatArray  # [N]
    readers: IntArray  # [T] number of ops that read the tensor


class Machine(NamedTuple):
    """The devices and routes; transfer costs include the transfer factor."""

    limit_bytes: FloatArray  # [D]
    overhead_s: FloatArray  # [D]
    segment_s: FloatArray  # [D]
    intake_s_per_byte: FloatArray  # [D]
    route_offsets: IntArray  # [D * D + 1]
    route_links: IntArray
    latency_s: FloatArray  # [L]
    per_byte_s: FloatArray  # [L]
    link_channel: IntArray  # [L]
    num_channels: int
    channels: bool  # transfers wait for their channel
    live: bool  # live activations and received copies count against the limits
    memory_home: IntArray  # [D] the first device of each device's memory pool
    pooled: bool  # some devices share a memory
    excludes: BoolArray  # [D, D] true where two devices share a resource


class State(NamedTuple):
    """A partial schedule."""

    assignment: IntArray  # [N] -1: not placed
    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    arrival_s: FloatArray  # [T, D] of copies, infinite where none was sent
    channel_free_s: FloatArray  # [channels]
    tried_free_s: FloatArray  # [channels] scratch while a device is tried
    unit_device: IntArray  # [U] -1: not decided
    resident: FloatArray  # [D] bytes of weights in each memory, at its first device
    held: BoolArray  # [W, D] true where a memory holds the shared weight, at its first device


def list_work(
    problem: Problem, mask: BoolArray, time_factors: FloatArray | float = 1.0, activation_share: float = 0.0
) -> Work:
    """The ops of a problem on the devices that `mask` `[U, D]` allows.

    `activation_share` of the bytes that an op produces counts as weights, for schedulers that never free memory.
    """
    graph = problem.graph
    op_time_s = np.where(mask[problem.unit_of_op], problem.op_time_s * time_factors, np.inf)
    return Work(
        problem.unit_of_op, op_time_s, graph.input_offsets, graph.input_tensors, graph.tensor_producer,
        graph.tensor_bytes, *_unit_weights(problem, activation_share), graph.weight_bytes, *_activations(problem),
    )  # fmt: skip


@lru_cache(maxsize=4)  # searches build hundreds of schedules of one problem
def _activations(problem: Problem) -> tuple[FloatArray, FloatArray, IntArray]:
    """Bytes that ops produce `[N]`, bytes of their workspace `[N]`, and the number of readers of each tensor `[T]`."""
    graph = problem.graph
    produced = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.num_ops).astype(np.float64)
    return produced, graph.workspace_bytes.astype(np.float64), np.diff(graph.consumer_offsets)


@lru_cache(maxsize=4)
def _unit_weights(problem: Problem, activation_share: float) -> tuple[IntArray, IntArray, IntArray]:
    """Own bytes of units `[U]`, and the shared weights of each as offsets and indices."""
    graph = problem.graph
    unit_bytes = np.zeros(problem.num_units, dtype=np.int64)
    held_bytes = graph.memory_bytes + (activation_share * _activations(problem)[0]).astype(np.int64)
    np.add.at(unit_bytes, problem.unit_of_op, held_bytes)
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_offsets))
    pairs = np.unique(np.stack([problem.unit_of_op[graph.weight_consumers], weight], axis=1), axis=0)
    return unit_bytes, *csr(pairs[:, 0], pairs[:, 1], problem.num_units)


def list_machine(
    topology: Topology, transfer_factor: float, memory_share: float | None, channels: bool, live: bool = False
) -> Machine:
    """The devices and links of a topology; schedulers fill `memory_share` of each memory, None ignores memory."""
    share = np.inf if memory_share is None else memory_share
    memory_bytes = topology.memory_bytes
    return Machine(
        limit_bytes=np.multiply(share, memory_bytes, out=np.zeros(len(memory_bytes)), where=memory_bytes > 0),
        overhead_s=topology.dispatch_overhead_s,
        segment_s=transfer_factor * topology.segment_overhead_s,
        intake_s_per_byte=transfer_factor / topology.intake_bandwidth_bytes_per_s,
        route_offsets=topology.route_offsets,
        route_links=topology.route_links,
        latency_s=transfer_factor * topology.latency_s,
        per_byte_s=transfer_factor / topology.bandwidth_bytes_per_s,
        link_channel=topology.link_channel,
        num_channels=len(topology.channel_names),
        channels=channels,
        live=live,
        memory_home=topology.memory_home,
        pooled=topology.shares_memory,
        excludes=topology.excludes,
    )


@njit(cache=True, nogil=True)
def empty_state(work: Work, machine: Machine) -> State:
    """The schedule before any op is placed."""
    num_ops, num_devices = work.op_time_s.shape
    return State(
        assignment=np.full(num_ops, -1),
        start_s=np.zeros(num_ops),
        end_s=np.zeros(num_ops),
        arrival_s=np.full((len(work.num_bytes), num_devices), np.inf),
        channel_free_s=np.zeros(machine.num_channels),
        tried_free_s=np.zeros(machine.num_channels),
        unit_device=np.full(len(work.unit_bytes), -1),
        resident=np.zeros(num_devices),
        held=np.zeros((len(work.weight_bytes), num_devices), dtype=np.bool_),
    )


@njit(cache=True, nogil=True)
def new_bytes(unit: int, memory: int, work: Work, held: BoolArray) -> float:
    """Bytes of the unit's weights that the memory, named by its first device, does not hold yet."""
    total = float(work.unit_bytes[unit])
    for at in range(work.unit_weight_offsets[unit], work.unit_weight_offsets[unit + 1]):
        if not held[work.unit_weights[at], memory]:
            total += work.weight_bytes[work.unit_weights[at]]
    return total


@njit(cache=True, nogil=True)
def place_unit(unit: int, device: int, work: Work, machine: Machine, state: State) -> None:
    """Decides on the device of a unit and allocates its weights there."""
    memory = machine.memory_home[device]
    state.unit_device[unit] = device
    state.resident[memory] += new_bytes(unit, memory, work, state.held)
    for at in range(work.unit_weight_offsets[unit], work.unit_weight_offsets[unit + 1]):
        state.held[work.unit_weights[at], memory] = True


@njit(cache=True, nogil=True)
def missing_bytes(unit: int, device: int, work: Work, machine: Machine, state: State) -> float:
    """Bytes above the device's limit once its memory holds the unit's weights too; negative where there is room."""
    memory = machine.memory_home[device]
    return float(state.resident[memory] + new_bytes(unit, memory, work, state.held) - machine.limit_bytes[device])


@njit(cache=True, nogil=True)
def is_in_memory(tensor: int, device: int, work: Work, machine: Machine, state: State) -> bool:
    """True where the device's memory has the tensor or is going to receive it: on the device or on others of its pool."""
    memory, producer = machine.memory_home[device], state.assignment[work.producer[tensor]]
    if producer >= 0 and machine.memory_home[producer] == memory:
        return True
    if not machine.pooled:
        return bool(state.arrival_s[tensor, device] < np.inf)
    for other in range(work.op_time_s.shape[1]):
        if machine.memory_home[other] == memory and state.arrival_s[tensor, other] < np.inf:
            return True
    return False


@njit(cache=True, nogil=True)
def copied_bytes(op: int, device: int, work: Work, machine: Machine, state: State) -> float:
    """Bytes of the op's inputs that the device's memory would have to receive."""
    total = 0.0
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        if not is_in_memory(tensor, device, work, machine, state):
            total += work.num_bytes[tensor]
    return total


@njit(cache=True, nogil=True)
def segment_start_s(op: int, device: int, work: Work, machine: Machine, state: State) -> float:
    """Seconds that the op pays for starting a segment on the device: 0 unless inputs have to be sent there."""
    total = 0.0
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        if state.assignment[work.producer[tensor]] != device and state.arrival_s[tensor, device] == np.inf:
            total = max(total, machine.segment_s[device]) + work.num_bytes[tensor] * machine.intake_s_per_byte[device]
    return total


@njit(cache=True, nogil=True)
def ready_s(op: int, device: int, work: Work, machine: Machine, state: State, commit: bool) -> float:
    """Time at which all inputs of the op are on the device; infinite where one has no route.

    A tensor that was sent to the device before is not sent again. `commit` keeps the new transfers in `state`.
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


@njit(cache=True, nogil=True)
def free_read(op: int, work: Work, machine: Machine, state: State, live_bytes: FloatArray, readers: IntArray) -> None:
    """Frees the tensors that the op is the last to read, in every memory that has them."""
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        readers[tensor] -= 1
        for device in range(work.op_time_s.shape[1] if readers[tensor] == 0 else 0):
            if machine.memory_home[device] == device and is_in_memory(tensor, device, work, machine, state):
                live_bytes[device] -= work.num_bytes[tensor]
