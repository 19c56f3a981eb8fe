"""Segments: consecutive pieces of topological orders, each on one device, cut by dynamic programming."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import depth_first_order
from gnnplace.planners.classical.expert import fastest_first
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution

_ORDERS = 16
_MAX_POSITIONS = 512  # with more units than this, cuts lie between blocks of units


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best of the single devices and of segments of random depth-first orders.

    This project's own method; cutting an order of ops into consecutive segments by dynamic programming is old.
    Depth-first orders keep branches whole. Two programs run for every order, over (position, devices used so far):

    - The first minimises the sum of compute and incoming transfers: the latency when nothing overlaps.
    - The second minimises the largest load of any segment: it balances a pipeline and spreads branches over devices.

    Device sequences are fastest first, its reverse, then random. A device gets at most one segment, except that the
    first program may use the hosts again between any two devices.

    The programs know less than the evaluator. They check memory for each segment alone, although all segments of a host
    share its memory, and ops that may not run on their segment's device use another's. A transfer takes its time on the
    mean route to the target. Dispatch overheads are ignored.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "segments", seed) as search:
        search.evaluate_batch(problem.single_device_assignments)
        seen = Seen(problem.single_device_assignments)
        for turn in range(_ORDERS):
            fresh = seen.fresh(segment_assignments(problem, rng, turn))
            if fresh:
                search.evaluate_batch(np.stack(fresh))
    return search.solution()


def segment_assignments(problem: Problem, rng: np.random.Generator, turn: int) -> list[IntArray]:
    """Candidates `[N]` of one order: the optimum of each program with the first 1, 2, ... devices of the sequence."""
    if not problem.num_units or problem.topology.num_devices == 1:
        return []
    line = _line(problem, _unit_order(problem, rng, turn))
    sequence = _device_sequence(problem, rng, turn)
    reused = _with_hosts_between(problem.topology, sequence)
    candidates: list[IntArray] = []
    for devices, bottleneck in ((reused, False), (sequence, True)):
        for activations in (True, False):
            cuts, excess = _cut(line, devices, bottleneck, activations)
            candidates.extend(_assignment(line, problem, devices, row) for row in cuts)
            if excess == 0.0:  # weights with activations fit
                break
    return candidates


class _Line(NamedTuple):
    """`P` positions (blocks of units in one order), and the costs of the pieces `i..j` between them."""

    block_of_unit: IntArray  # [U]
    device_of_unit: IntArray  # [U, D] device of a unit whose segment is on a device
    memory_bytes: FloatArray  # [D]
    compute_s: FloatArray  # [P + 1, D] summed seconds of all positions before
    latency_s: FloatArray  # [D] mean over the routes that lead to the device
    per_byte_s: FloatArray  # [D]
    in_count: FloatArray  # [P + 1, P + 1] tensors that the piece reads from before
    in_bytes: FloatArray  # [P + 1, P + 1]
    out_count: FloatArray  # [P + 1, P + 1] tensors of the piece that are read after it
    out_bytes: FloatArray  # [P + 1, P + 1]
    weight_bytes: FloatArray  # [P + 1, P + 1] weights and results of the piece
    live_bytes: FloatArray  # [P + 1, P + 1] the largest sum of tensors and workspace at any position of the piece


def _unit_order(problem: Problem, rng: np.random.Generator, turn: int) -> IntArray:
    """`[U]` units by their first op in a depth-first order: by index at first, then random."""
    graph = problem.graph
    priority = -np.arange(graph.num_ops, dtype=np.float64) if turn == 0 else rng.random(graph.num_ops)
    order = depth_first_order(graph.successor_offsets, graph.successors, priority)
    units, first = np.unique(problem.unit_of_op[order], return_index=True)
    return np.asarray(units[np.argsort(first)])


def _device_sequence(problem: Problem, rng: np.random.Generator, turn: int) -> IntArray:
    """`[D]` fastest first in the first turn, then the reverse, then random."""
    fastest = fastest_first(problem)
    return (fastest, fastest[::-1])[turn] if turn < 2 else rng.permutation(len(fastest))


def _with_hosts_between(topology: Topology, sequence: IntArray) -> IntArray:
    """The sequence with every host before, between and after the other devices."""
    hosts = [d for d in sequence.tolist() if topology.devices[d].is_host]
    others = [d for d in sequence.tolist() if d not in hosts]
    if not hosts or not others or len(hosts) > 2:
        return sequence
    return np.array([*hosts, *(d for other in others for d in (other, *hosts))], dtype=np.int64)


def _line(problem: Problem, order: IntArray) -> _Line:
    graph, topology, num_units = problem.graph, problem.topology, problem.num_units
    positions = min(num_units, _MAX_POSITIONS)
    block = np.empty(num_units, dtype=np.int64)
    block[order] = np.arange(num_units) * positions // num_units
    block_of_op = block[problem.unit_of_op]
    unit_s = problem.unit_time_s
    # A unit that may not run on its segment's device goes to the fastest one where it may.
    own = np.where(problem.action_mask, np.arange(topology.num_devices), np.argmin(unit_s, axis=1)[:, None])
    compute = np.zeros((positions + 1, topology.num_devices))
    np.add.at(compute[1:], block, np.take_along_axis(unit_s, own, axis=1))
    producer = block_of_op[graph.tensor_producer]
    weights = np.bincount(block_of_op, weights=graph.memory_bytes, minlength=positions).astype(np.float64)
    results = np.diff(graph.consumer_offsets) == 0
    np.add.at(weights, producer[results], graph.tensor_bytes[results])
    last = producer.copy()
    np.maximum.at(last, graph.consumer_tensor, block_of_op[graph.consumers])
    live = np.zeros(positions + 1)
    np.add.at(live, producer[~results], graph.tensor_bytes[~results])
    np.subtract.at(live, last[~results] + 1, graph.tensor_bytes[~results])
    workspace = np.zeros(positions)
    np.maximum.at(workspace, block_of_op, graph.workspace_bytes)
    reads = _distinct(graph.consumer_tensor, block_of_op[graph.consumers])
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_offsets))
    shared = _distinct(weight, block_of_op[graph.weight_consumers])
    return _Line(
        *(block, own, topology.memory_bytes.astype(np.float64), np.cumsum(compute, axis=0)),
        *_incoming(topology),
        *_transfer_tables(positions, reads, producer, last, graph.tensor_bytes),
        *_memory_tables(weights, np.cumsum(live)[:-1] + workspace, shared, graph.weight_bytes),
    )


def _incoming(topology: Topology) -> tuple[FloatArray, FloatArray]:
    """`[D]` mean latency and seconds per byte of the routes to each device; infinite and 0 where none leads there."""
    latency_s, per_byte_s = np.full(topology.num_devices, np.inf), np.zeros(topology.num_devices)
    routed = np.isfinite(topology.route_latency_s) & ~np.eye(topology.num_devices, dtype=np.bool_)
    for target in np.flatnonzero(routed.any(axis=0)).tolist():
        latency_s[target] = topology.route_latency_s[routed[:, target], target].mean()
        per_byte_s[target] = topology.route_s_per_byte[routed[:, target], target].mean()
    return latency_s, per_byte_s


def _distinct(index: IntArray, block: IntArray) -> tuple[IntArray, IntArray]:
    """Each (index, block) pair once, sorted by block."""
    size = index.max(initial=0) + 1
    pairs = np.unique(block * size + index)
    return pairs % size, pairs // size


@njit(cache=True, nogil=True)
def _transfer_tables(
    positions: int, reads: tuple[IntArray, IntArray], producer: IntArray, last: IntArray, num_bytes: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Counts and bytes of the tensors that enter and that leave every piece `i..j`; quadratic in positions."""
    tensor, block = reads
    shape = (positions + 1, positions + 1)
    in_count, in_bytes, out_count, out_bytes = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    seen = np.full(len(num_bytes), -1, dtype=np.int64)
    for begin in range(positions):
        for at in range(np.searchsorted(block, begin), len(block)):
            read = tensor[at]
            if producer[read] < begin and seen[read] != begin:
                seen[read] = begin
                in_count[begin, block[at] + 1] += 1
                in_bytes[begin, block[at] + 1] += num_bytes[read]
        for end in range(begin + 1, positions + 1):
            in_count[begin, end] += in_count[begin, end - 1]
            in_bytes[begin, end] += in_bytes[begin, end - 1]
    for read in range(len(num_bytes)):
        # It leaves every piece that begins at or before its producer and ends after it, before its last reader.
        for end in range(producer[read] + 1, last[read] + 1):
            out_count[producer[read], end] += 1
            out_bytes[producer[read], end] += num_bytes[read]
    for begin in range(positions - 2, -1, -1):
        for end in range(begin + 2, positions + 1):
            out_count[begin, end] += out_count[begin + 1, end]
            out_bytes[begin, end] += out_bytes[begin + 1, end]
    return in_count, in_bytes, out_count, out_bytes


@njit(cache=True, nogil=True)
def _memory_tables(
    own_bytes: FloatArray, live: FloatArray, shared: tuple[IntArray, IntArray], weight_bytes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Resident bytes, shared weights once, and peak of live bytes, of every piece `i..j`."""
    positions = len(own_bytes)
    weight, block = shared
    resident, peak = np.zeros((positions + 1, positions + 1)), np.zeros((positions + 1, positions + 1))
    seen = np.full(len(weight_bytes), -1, dtype=np.int64)
    for begin in range(positions):
        at = np.searchsorted(block, begin)
        for end in range(begin + 1, positions + 1):
            resident[begin, end] = resident[begin, end - 1] + own_bytes[end - 1]
            peak[begin, end] = max(peak[begin, end - 1], live[end - 1])
            while at < len(block) and block[at] < end:
                if seen[weight[at]] != begin:
                    seen[weight[at]] = begin
                    resident[begin, end] += weight_bytes[weight[at]]
                at += 1
    return resident, peak


@njit(cache=True, nogil=True)
def _transfers_s(count: float, num_bytes: float, device: int, line: _Line) -> float:
    """Seconds of transfers on mean routes; 0 for none, also where no route leads to the device."""
    return count * line.latency_s[device] + num_bytes * line.per_byte_s[device] if count > 0 else 0.0


@njit(cache=True, nogil=True)
def _cut(line: _Line, sequence: IntArray, bottleneck: bool, activations: bool) -> tuple[IntArray, float]:
    """`[S, P]` index into the sequence of the device of every position, for each prefix of it, and the least excess.

    State `(s, j)`: positions before `j` lie on the first `s` devices of the sequence. Costs are pairs: bytes that do
    not fit first, then seconds. `O(S P^2)`.
    """
    positions, steps = line.compute_s.shape[0] - 1, len(sequence)
    seconds = np.full((steps + 1, positions + 1), np.inf)
    excess = np.full((steps + 1, positions + 1), np.inf)
    origin = np.full((steps + 1, positions + 1), -1, dtype=np.int64)  # where the last segment begins; -1: none on it
    seconds[0, 0] = excess[0, 0] = 0.0
    for step in range(1, steps + 1):
        device = sequence[step - 1]
        for end in range(positions + 1):
            seconds[step, end], excess[step, end] = seconds[step - 1, end], excess[step - 1, end]
            for begin in range(end):
                if excess[step - 1, begin] > excess[step, end]:
                    continue
                used = line.weight_bytes[begin, end] + (line.live_bytes[begin, end] if activations else 0.0)
                over = excess[step - 1, begin] + max(0.0, used - line.memory_bytes[device])
                if over > excess[step, end]:
                    continue
                compute = line.compute_s[end, device] - line.compute_s[begin, device]
                incoming = _transfers_s(line.in_count[begin, end], line.in_bytes[begin, end], device, line)
                if bottleneck:
                    outgoing = _transfers_s(line.out_count[begin, end], line.out_bytes[begin, end], device, line)
                    total = max(seconds[step - 1, begin], compute, incoming, outgoing)
                else:
                    total = seconds[step - 1, begin] + compute + incoming
                if over < excess[step, end] or total < seconds[step, end]:
                    seconds[step, end], excess[step, end], origin[step, end] = total, over, begin
    cuts = np.empty((steps, positions), dtype=np.int64)
    for last in range(1, steps + 1):
        end, step = positions, last
        while end > 0:
            begin = origin[step, end]
            if begin >= 0:
                cuts[last - 1, begin:end] = step - 1
                end = begin
            step -= 1
    return cuts, excess[steps, positions]


def _assignment(line: _Line, problem: Problem, devices: IntArray, row: IntArray) -> IntArray:
    """`[N]` from the sequence index of every position."""
    wanted = devices[row][line.block_of_unit]
    units = line.device_of_unit[np.arange(problem.num_units), wanted]
    return np.asarray(units[problem.unit_of_op])
