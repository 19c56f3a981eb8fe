"""The compiled state of list schedulers: the ops to place, the machine, and the partial schedule."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.compiled_code import inlined
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph

SENT, TRIED = 0, 1
"""Whether transfers are sent, or only tried."""


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
    hop_latency_s: FloatArray  # of the links of all routes, one after the other
    hop_s_per_byte: FloatArray
    hop_channel: IntArray
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
    free_s: FloatArray  # [2, channels] at which each channel is free: at `SENT`, and at `TRIED` while a device is tried
    unit_device: IntArray  # [U] -1: not decided
    resident: FloatArray  # [D] bytes of weights in each memory, at its first device
    held: BoolArray  # [W, D] true where a memory holds the shared weight, at its first device


class Tensors(NamedTuple):
    """The tensors of a graph with their readers."""

    producer: IntArray  # [T]
    num_bytes: IntArray  # [T]
    consumer_offsets: IntArray  # [T + 1]
    consumers: IntArray


def tensors_of(graph: OpGraph) -> Tensors:
    """The tensors of a graph for compiled functions."""
    return Tensors(graph.tensor_producer, graph.tensor_bytes, graph.consumer_offsets, graph.consumers)


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
        hop_latency_s=(transfer_factor * topology.latency_s)[topology.route_links],
        hop_s_per_byte=(transfer_factor / topology.bandwidth_bytes_per_s)[topology.route_links],
        hop_channel=topology.link_channel[topology.route_links],
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
        free_s=np.zeros((2, machine.num_channels)),
        unit_device=np.full(len(work.unit_bytes), -1),
        resident=np.zeros(num_devices),
        held=np.zeros((len(work.weight_bytes), num_devices), dtype=np.bool_),
    )


@inlined
def new_bytes(
    unit: int,
    memory: int,
    unit_bytes: IntArray,
    unit_weight_offsets: IntArray,
    unit_weights: IntArray,
    weight_bytes: IntArray,
    held: BoolArray,
) -> float:
    """Bytes of the unit's weights that the memory, named by its first device, does not hold yet."""
    total = float(unit_bytes[unit])
    for at in range(unit_weight_offsets[unit], unit_weight_offsets[unit + 1]):
        if not held[unit_weights[at], memory]:
            total += weight_bytes[unit_weights[at]]
    return total


@inlined
def hold_weights(
    unit: int,
    memory: int,
    unit_bytes: IntArray,
    unit_weight_offsets: IntArray,
    unit_weights: IntArray,
    weight_bytes: IntArray,
    held: BoolArray,
    resident: FloatArray,
) -> None:
    """Allocates the weights of a unit in a memory, named by its first device."""
    resident[memory] += new_bytes(unit, memory, unit_bytes, unit_weight_offsets, unit_weights, weight_bytes, held)
    for at in range(unit_weight_offsets[unit], unit_weight_offsets[unit + 1]):
        held[unit_weights[at], memory] = True


@inlined
def is_in_memory(
    tensor: int, device: int, source: int, memory_home: IntArray, pooled: bool, arrival_s: FloatArray
) -> bool:
    """True where the device's memory has the tensor of `source`, or is going to receive it: on the device or on others of its pool."""
    memory = memory_home[device]
    is_there = (source >= 0 and memory_home[source] == memory) or arrival_s[tensor, device] < np.inf
    for other in range(arrival_s.shape[1] if pooled and not is_there else 0):
        is_there = is_there or (memory_home[other] == memory and arrival_s[tensor, other] < np.inf)
    return bool(is_there)


@inlined
def copied_bytes(
    op: int,
    device: int,
    input_offsets: IntArray,
    input_tensors: IntArray,
    producer: IntArray,
    num_bytes: IntArray,
    assignment: IntArray,
    arrival_s: FloatArray,
    memory_home: IntArray,
    pooled: bool,
) -> float:
    """Bytes of the op's inputs that the device's memory would have to receive."""
    total = 0.0
    for at in range(input_offsets[op], input_offsets[op + 1]):
        tensor = input_tensors[at]
        if not is_in_memory(tensor, device, assignment[producer[tensor]], memory_home, pooled, arrival_s):
            total += num_bytes[tensor]
    return total


@inlined
def inputs_s(
    op: int,
    device: int,
    row: int,
    input_offsets: IntArray,
    input_tensors: IntArray,
    producer: IntArray,
    num_bytes: IntArray,
    assignment: IntArray,
    end_s: FloatArray,
    arrival_s: FloatArray,
    free_s: FloatArray,
    channels: bool,
    route_offsets: IntArray,
    hop_latency_s: FloatArray,
    hop_s_per_byte: FloatArray,
    hop_channel: IntArray,
    segment_s: FloatArray,
    intake_s_per_byte: FloatArray,
) -> tuple[float, float]:
    """Time at which all inputs of the op are on the device, infinite where one has no route, and seconds that it pays for taking them in.

    A tensor that was sent to the device before is not sent again. Where `row` is `SENT`, new transfers are noted.
    """
    ready, intake_s = 0.0, 0.0
    for channel in range(free_s.shape[1] if channels and row == TRIED else 0):
        free_s[TRIED, channel] = free_s[SENT, channel]
    for at in range(input_offsets[op], input_offsets[op + 1]):
        tensor = input_tensors[at]
        source, time = assignment[producer[tensor]], end_s[producer[tensor]]
        if source != device and arrival_s[tensor, device] < np.inf:
            time = arrival_s[tensor, device]
        elif source != device:
            intake_s = max(intake_s, segment_s[device]) + num_bytes[tensor] * intake_s_per_byte[device]
            route = source * arrival_s.shape[1] + device
            if route_offsets[route] == route_offsets[route + 1]:
                time = np.inf
            for hop in range(route_offsets[route], route_offsets[route + 1]):
                if channels:
                    time = max(time, free_s[row, hop_channel[hop]])
                time += hop_latency_s[hop] + num_bytes[tensor] * hop_s_per_byte[hop]
                if channels:
                    free_s[row, hop_channel[hop]] = time
            if row == SENT:
                arrival_s[tensor, device] = time
        ready = max(ready, time)
    return ready, intake_s


@inlined
def free_read(
    op: int,
    input_offsets: IntArray,
    input_tensors: IntArray,
    producer: IntArray,
    num_bytes: IntArray,
    assignment: IntArray,
    arrival_s: FloatArray,
    memory_home: IntArray,
    pooled: bool,
    live_bytes: FloatArray,
    readers: IntArray,
) -> None:
    """Frees the tensors that the op is the last to read, in every memory that has them."""
    for at in range(input_offsets[op], input_offsets[op + 1]):
        tensor = input_tensors[at]
        source = assignment[producer[tensor]]
        readers[tensor] -= 1
        for device in range(len(memory_home) if readers[tensor] == 0 else 0):
            if memory_home[device] == device and is_in_memory(tensor, device, source, memory_home, pooled, arrival_s):
                live_bytes[device] -= num_bytes[tensor]
