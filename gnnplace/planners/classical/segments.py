"""Segments: consecutive pieces of topological orders, each on one device, cut by dynamic programming."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import HOST_KIND_PREFIX, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import depth_first_order
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.single import fastest_first, single_device_assignments
from gnnplace.planners.search import Search, Seen, Solution

__all__ = ["plan", "segment_assignments"]


_ORDERS = 16
_MAX_POSITIONS = 512  # with more units than this, cuts lie between blocks of units


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best of the single devices and of segments of random depth-first orders, each evaluated through the search.

    This project's own method; cutting an order of ops into consecutive segments by dynamic programming is old.
    For every order two programs run over (position, devices used so far of a sequence of devices): one minimises the
    sum of compute and incoming transfers, which is the latency when nothing overlaps; the other minimises the largest
    load of any segment, which balances a pipeline and, as depth-first orders keep branches whole, spreads branches over
    devices. Device sequences are fastest first, its reverse, then random; for sums the hosts may be used again between
    any two devices. A device is used for one segment at most otherwise.

    The programs know less than the evaluator: memory is checked for each segment alone, though all segments of a host
    share its memory and ops that may not run on their segment's device fill another one's; a transfer takes what it
    takes on the mean route to its target; dispatch overheads are ignored.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "segments", seed) as search:
        singles = single_device_assignments(problem)
        search.evaluate_batch(singles)
        seen = Seen(singles)
        for turn in range(_ORDERS):
            fresh = seen.fresh(segment_assignments(problem, rng, turn))
            if fresh:
                search.evaluate_batch(np.stack(fresh))
    return search.solution()


def segment_assignments(problem: Problem, rng: np.random.Generator, turn: int) -> list[IntArray]:
    """Candidates `[N]` of one order: the optimum of each program with the first 1, 2, ... devices of the sequence.

    >>> from gnnplace.sim.example import diamond
    >>> sorted({tuple(row.tolist()) for row in segment_assignments(diamond(), np.random.default_rng(0), turn=0)})
    [(0, 0, 0, 0), (0, 0, 1, 1)]
    """
    if not problem.num_units or problem.topology.num_devices == 1:
        return []
    line = _line(problem, _unit_order(problem, rng, turn))
    sequence = _device_sequence(problem, rng, turn)
    reused = _with_hosts_between(problem.topology, sequence)
    candidates: list[IntArray] = []
    for devices, bottleneck in ((reused, False), (sequence, True)):
        for activations in (True, False):
            cuts, excess = _cut(line, devices, bottleneck, activations)
            candidates.extend(_placed(line, problem, devices, row) for row in cuts)
            # When weights with activations fit, there is no need to ask what would fit without them.
            if excess == 0.0:
                break
    return candidates


class _Line(NamedTuple):
    """`P` positions (blocks of units in one order) and the prices of the pieces between them."""

    block_of_unit: IntArray  # [U]
    device_of_unit: IntArray  # [U, D] where the unit really goes when its segment is on a device
    compute_s: FloatArray  # [P + 1, D] summed seconds of all positions before
    latency_s: FloatArray  # [D] mean over the routes that lead to the device
    per_byte_s: FloatArray  # [D]
    in_count: FloatArray  # [P + 1, P + 1] tensors that the piece i..j reads from before
    in_bytes: FloatArray
    out_count: FloatArray  # tensors of the piece i..j that are read after it
    out_bytes: FloatArray
    weight_bytes: FloatArray  # weights and results of the piece i..j
    live_bytes: FloatArray  # the largest sum of tensors and workspace at any position of the piece
    memory_bytes: FloatArray  # [D]


def _unit_order(problem: Problem, rng: np.random.Generator, turn: int) -> IntArray:
    """`[U]` units by their first op in a depth-first order: the first one by index, the others at random."""
    graph = problem.graph
    priority = -np.arange(graph.num_ops, dtype=np.float64) if turn == 0 else rng.random(graph.num_ops)
    order = depth_first_order(graph.successor_offsets, graph.successors, priority)
    units, first = np.unique(problem.unit_of_op[order], return_index=True)
    return np.asarray(units[np.argsort(first)])


def _device_sequence(problem: Problem, rng: np.random.Generator, turn: int) -> IntArray:
    """`[D]` fastest first, then the reverse, then at random."""
    fastest = fastest_first(problem)
    return (fastest, fastest[::-1])[turn] if turn < 2 else rng.permutation(len(fastest))


def _with_hosts_between(topology: Topology, sequence: IntArray) -> IntArray:
    """The sequence with every host before, between and after the other devices."""
    hosts = [d for d in sequence.tolist() if topology.devices[d].kind.startswith(HOST_KIND_PREFIX)]
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
    unit_s = np.zeros((num_units, topology.num_devices))
    np.add.at(unit_s, problem.unit_of_op, problem.op_time_s)
    unit_s[~problem.action_mask] = np.inf
    # A unit that may not run on its segment's device goes to the fastest one where it may.
    own = np.where(problem.action_mask, np.arange(topology.num_devices), np.argmin(unit_s, axis=1)[:, None])
    compute = np.zeros((positions + 1, topology.num_devices))
    np.add.at(compute[1:], block, np.take_along_axis(unit_s, own, axis=1))
    latency, per_byte = _incoming(topology)
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
    reads = _distinct(graph.consumer_tensor, block_of_op[graph.consumers], positions)
    shared = _distinct(
        np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_offsets)),
        block_of_op[graph.weight_consumers],
        positions,
    )
    return _Line(
        block, own, np.cumsum(compute, axis=0), latency, per_byte,
        *_tables(positions, reads, producer, last, graph.tensor_bytes),
        *_memory_tables(weights, np.cumsum(live)[:-1] + workspace, shared, graph.weight_bytes),
        topology.memory_bytes.astype(np.float64),
    )  # fmt: skip


def _incoming(topology: Topology) -> tuple[FloatArray, FloatArray]:
    """`[D]` mean latency and seconds per byte of the routes to each device; the latency is infinite where none leads."""
    latency, per_byte = np.full(topology.num_devices, np.inf), np.zeros(topology.num_devices)
    for target in range(topology.num_devices):
        routes = [
            r for s in range(topology.num_devices) if s != target and (r := topology.route(s, target)) is not None
        ]
        if routes:
            latency[target] = np.mean([topology.latency_s[list(r)].sum() for r in routes])
            per_byte[target] = np.mean([(1.0 / topology.bandwidth_bytes_per_s[list(r)]).sum() for r in routes])
    return latency, per_byte


def _distinct(what: IntArray, block: IntArray, positions: int) -> tuple[IntArray, IntArray]:
    """Each (what, block) once, sorted by block."""
    pairs = np.unique(block * (what.max(initial=0) + 1) + what)
    return pairs % (what.max(initial=0) + 1), pairs // (what.max(initial=0) + 1)


@njit(cache=True, nogil=True)
def _tables(
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
def _cut(line: _Line, sequence: IntArray, bottleneck: bool, activations: bool) -> tuple[IntArray, float]:
    """`[S, P]` index into the sequence of the device of every position, for each prefix of the sequence; least excess.

    State `(s, j)`: positions before `j` lie on the first `s` devices of the sequence. Prices are pairs: bytes that do
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
                price = line.compute_s[end, device] - line.compute_s[begin, device]
                incoming = 0.0
                if line.in_count[begin, end] > 0:
                    incoming = (
                        line.in_count[begin, end] * line.latency_s[device]
                        + line.in_bytes[begin, end] * line.per_byte_s[device]
                    )
                if bottleneck:
                    outgoing = 0.0
                    if end < positions and line.out_count[begin, end] > 0:
                        outgoing = (
                            line.out_count[begin, end] * line.latency_s[device]
                            + line.out_bytes[begin, end] * line.per_byte_s[device]
                        )
                    total = max(seconds[step - 1, begin], price, incoming, outgoing)
                else:
                    total = seconds[step - 1, begin] + price + incoming
                if over < excess[step, end] or total < seconds[step, end]:
                    seconds[step, end], excess[step, end], origin[step, end] = total, over, begin
    found = np.empty((steps, positions), dtype=np.int64)
    for last in range(1, steps + 1):
        end, step = positions, last
        while end > 0:
            begin = origin[step, end]
            if begin >= 0:
                found[last - 1, begin:end] = step - 1
                end = begin
            step -= 1
    return found, excess[steps, positions]


def _placed(line: _Line, problem: Problem, devices: IntArray, row: IntArray) -> IntArray:
    """`[N]` from the sequence index of every position."""
    wanted = devices[row][line.block_of_unit]
    units = line.device_of_unit[np.arange(problem.num_units), wanted]
    return np.asarray(units[problem.unit_of_op])
