"""m-ETF, memory-constrained earliest task first, and the compiled scheduler that it shares with m-SCT."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.event_heap import pop_event, push_event
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.heft import evaluate_in_order
from gnnplace.planners.classical.list_schedule import ListSchedule, connected_mask, rank_order
from gnnplace.planners.classical.list_state import (
    Machine,
    State,
    Work,
    empty_state,
    list_machine,
    list_work,
    new_bytes,
    place_unit,
    ready_s,
)
from gnnplace.planners.search import Search, Solution

__all__ = ["MEMORY_SHARES", "earliest_task_schedule", "plan"]


MEMORY_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2)
"""Shares of every device's memory, tried one after the other until the placement fits when it is evaluated."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The better of m-ETF's placement in its own order of ops, and the same placement in order of upward rank.

    Jeon et al. 2020 (Baechi), section 3, after Hwang et al. 1989: of all ops whose inputs exist and all devices with
    memory for them, m-ETF places the pair that can start first, and repeats. Departures:

    - A transfer waits for the channels of this topology, not for one channel per device.
    - Where devices differ, a start counts as later by the extra time of the op there over its fastest device.
    - Equal starts go to the op with the higher upward rank, not to the first in topological order.
    - Received copies count as memory.
    - The schedule is built op by op, not by steps of a clock, so that ops without duration cannot stall it.
    - Where the placement does not fit when it is evaluated, it is built again with a smaller share of every memory.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "m-etf", seed) as search:
        evaluate_in_order(search, (earliest_task_schedule(problem, share) for share in MEMORY_SHARES))
    return search.solution()


def earliest_task_schedule(
    problem: Problem, memory_share: float | None = 1.0, favourite: IntArray | None = None
) -> ListSchedule:
    """The schedule of m-ETF, or of m-SCT where `favourite` `[N]` names each op's favourite child (-1: none).

    A device takes no op that would fill more than `memory_share` of its memory with weights, live activations and
    received copies (None ignores memory). When no device has memory for any op, the op and device that lack the least
    go first. `O(N D log N)` for ops with few inputs, with favourites `O(N D^2)` at worst.
    """
    graph = problem.graph
    produced = np.zeros(graph.num_ops)
    np.add.at(produced, graph.tensor_producer, graph.tensor_bytes)
    machine = list_machine(problem.topology, 1.0, memory_share, channels=True)
    children = np.full(graph.num_ops, -1, dtype=np.int64) if favourite is None else favourite
    order = rank_order(problem)

    def build(mask: BoolArray) -> ListSchedule:
        work = list_work(problem, mask)
        ops = _Ops(
            order=order,
            place=np.argsort(order),
            favourite=children,
            reserves=bool((children >= 0).any()),
            extra_s=work.op_time_s - work.op_time_s.min(axis=1, keepdims=True),
            num_inputs=np.diff(work.input_offsets),
            successor_offsets=graph.successor_offsets,
            successors=graph.successors,
            output_bytes=produced,
            workspace_bytes=graph.workspace_bytes.astype(np.float64),
            num_readers=np.diff(graph.consumer_offsets),
        )
        return ListSchedule(*_schedule(ops, work, machine))

    result = build(problem.action_mask)
    return result if result.connected else build(connected_mask(problem))


class _Ops(NamedTuple):
    """Properties of the ops beyond those in `Work`."""

    order: IntArray  # [N] ops from the highest upward rank to the lowest; heaps hold places in this order
    place: IntArray  # [N] of each op in the order
    favourite: IntArray  # [N] child, -1: none
    reserves: bool  # some op has a favourite child
    extra_s: FloatArray  # [N, D] time of the op beyond that on its fastest device
    num_inputs: IntArray  # [N]
    successor_offsets: IntArray
    successors: IntArray
    output_bytes: FloatArray  # [N]
    workspace_bytes: FloatArray  # [N]
    num_readers: IntArray  # [T]


class _Progress(NamedTuple):
    """Times and memory of the devices, and counts of what is still to come."""

    free_s: FloatArray  # [D]
    last_op: IntArray  # [D] -1: none
    live_bytes: FloatArray  # [D] activations and copies
    missing: IntArray  # [N] inputs that do not exist yet
    readers: IntArray  # [T] ops that have not read the tensor yet


class _Heaps(NamedTuple):
    """Four heaps of ops for each device, ordered by key, then by place."""

    key_s: FloatArray  # [4, D, N]
    place: IntArray  # [4, D, N]
    size: IntArray  # [4, D]


# An op is in at most one of the first three heaps of a device.
_WAITING = 0  # its inputs arrive later than the device is free
_AVAILABLE = 1  # its inputs are on the device
_PARKED = 2  # the device lacks memory for now
_URGENT = 3  # keys are the times at which the inputs could be on any device


class _Run(NamedTuple):
    """The whole state of one scheduling run."""

    ops: _Ops
    work: Work
    machine: Machine
    state: State
    progress: _Progress
    heaps: _Heaps
    ready_ops: IntArray  # [N] the first `num_ready` are the ops whose inputs exist
    ready_index: IntArray  # [N] of each op in `ready_ops`
    num_ready: IntArray  # [1]


@njit(cache=True, nogil=True)
def _schedule(ops: _Ops, work: Work, machine: Machine) -> tuple[IntArray, FloatArray, FloatArray, bool]:
    """Devices, starts and ends of all ops `[N]`, and whether all inputs had a route."""
    num_ops, num_devices = work.op_time_s.shape
    run = _Run(
        ops=ops,
        work=work,
        machine=machine,
        state=empty_state(work, machine),
        progress=_Progress(
            free_s=np.zeros(num_devices),
            last_op=np.full(num_devices, -1),
            live_bytes=np.zeros(num_devices),
            missing=ops.num_inputs.copy(),
            readers=ops.num_readers.copy(),
        ),
        heaps=_Heaps(
            key_s=np.empty((4, num_devices, num_ops)),
            place=np.empty((4, num_devices, num_ops), np.int64),
            size=np.zeros((4, num_devices), np.int64),
        ),
        ready_ops=np.empty(num_ops, np.int64),
        ready_index=np.empty(num_ops, np.int64),
        num_ready=np.zeros(1, np.int64),
    )
    state, progress, connected = run.state, run.progress, True
    for op in range(num_ops):
        if progress.missing[op] == 0:
            _release(op, run)
    for _ in range(num_ops):
        best, best_s, best_place, best_keeps = -1, np.inf, num_ops, False
        for device in range(num_devices):
            value_s, place, keeps = _offer(device, run)
            # Equal starts: the higher rank. Equal ranks: a device without a reservation, then the first device.
            better = place < best_place or (place == best_place and best_keeps and not keeps)
            if value_s < best_s or (value_s == best_s and better):
                best, best_s, best_place, best_keeps = device, value_s, place, keeps
        op = int(ops.order[best_place]) if best >= 0 else -1
        if best < 0:
            op, best = _least_lacking(run)
        if state.unit_device[work.unit_of_op[op]] < 0:
            place_unit(work.unit_of_op[op], best, work, state)
        progress.live_bytes[best] += ops.output_bytes[op] + _copied_bytes(op, best, run)
        ready = ready_s(op, best, work, machine, state, True)
        if ready == np.inf:
            connected, ready = False, 0.0
        start = max(ready, progress.free_s[best])
        overhead = machine.overhead_s[best] if start > progress.free_s[best] else 0.0
        end = start + overhead + work.op_time_s[op, best]
        state.assignment[op], state.start_s[op], state.end_s[op] = best, start, end
        progress.free_s[best], progress.last_op[best] = end, op
        _finish(op, run)
    return state.assignment, state.start_s, state.end_s, connected


@njit(cache=True, nogil=True)
def _push(heaps: _Heaps, heap: int, device: int, key_s: float, place: int) -> None:
    push_event(heaps.key_s[heap, device], heaps.place[heap, device], heaps.size[heap, device], key_s, place)
    heaps.size[heap, device] += 1


@njit(cache=True, nogil=True)
def _pop(heaps: _Heaps, heap: int, device: int) -> None:
    heaps.size[heap, device] -= 1
    pop_event(heaps.key_s[heap, device], heaps.place[heap, device], heaps.size[heap, device])


@njit(cache=True, nogil=True)
def _release(op: int, run: _Run) -> None:
    """Adds an op whose inputs exist to the heaps of every device that it can reach."""
    run.ready_ops[run.num_ready[0]], run.ready_index[op] = op, run.num_ready[0]
    run.num_ready[0] += 1
    place, everywhere_s = run.ops.place[op], 0.0
    for device in range(run.work.op_time_s.shape[1]):
        if _may_run(op, device, run.work, run.state):
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            if ready < np.inf:
                everywhere_s = max(everywhere_s, ready)
                _push(run.heaps, _WAITING, device, ready + run.ops.extra_s[op, device], place)
    for device in range(run.work.op_time_s.shape[1]):
        if run.ops.reserves and _may_run(op, device, run.work, run.state):
            _push(run.heaps, _URGENT, device, everywhere_s + run.ops.extra_s[op, device], place)


@njit(cache=True, nogil=True)
def _finish(op: int, run: _Run) -> None:
    """Frees the tensors that the op was the last to read, and releases the ops that waited for it alone."""
    state, work = run.state, run.work
    run.num_ready[0] -= 1
    last = run.ready_ops[run.num_ready[0]]
    run.ready_ops[run.ready_index[op]], run.ready_index[last] = last, run.ready_index[op]
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        run.progress.readers[tensor] -= 1
        for device in range(work.op_time_s.shape[1] if run.progress.readers[tensor] == 0 else 0):
            if state.assignment[work.producer[tensor]] == device or state.arrival_s[tensor, device] < np.inf:
                run.progress.live_bytes[device] -= work.num_bytes[tensor]
                while run.heaps.size[_PARKED, device] > 0:
                    _push(run.heaps, _WAITING, device, 0.0, run.heaps.place[_PARKED, device, 0])
                    _pop(run.heaps, _PARKED, device)
    for at in range(run.ops.successor_offsets[op], run.ops.successor_offsets[op + 1]):
        child = run.ops.successors[at]
        run.progress.missing[child] -= 1
        if run.progress.missing[child] == 0:
            _release(child, run)


@njit(cache=True, nogil=True)
def _offer(device: int, run: _Run) -> tuple[float, int, bool]:
    """Earliest start of an op on the device, the op's place, and whether it runs before a favourite child.

    A device waits for the favourite child of its last op where the child could start nowhere earlier.
    """
    value_s, place = _earliest(device, run)
    last = run.progress.last_op[device]
    child = run.ops.favourite[last] if last >= 0 else -1
    if child < 0 or run.state.assignment[child] >= 0 or run.progress.missing[child] > 0:
        return value_s, place, False
    inputs_s = 0.0
    for at in range(run.work.input_offsets[child], run.work.input_offsets[child + 1]):
        inputs_s = max(inputs_s, run.state.end_s[run.work.producer[run.work.input_tensors[at]]])
    child_s = _start_s(child, device, run)
    if child_s == np.inf or value_s < inputs_s:
        return value_s, place, False
    for other in range(run.work.op_time_s.shape[1]):
        if _start_s(child, other, run) < child_s:
            return value_s, place, False
    while run.heaps.size[_URGENT, device] > 0:
        op = run.ops.order[run.heaps.place[_URGENT, device, 0]]
        if _may_run(op, device, run.work, run.state):
            urgent_s = max(run.heaps.key_s[_URGENT, device, 0], _start_s(op, device, run))
            if urgent_s <= child_s:
                return urgent_s, run.ops.place[op], op != child
            break
        _pop(run.heaps, _URGENT, device)
    return child_s, run.ops.place[child], False


@njit(cache=True, nogil=True)
def _earliest(device: int, run: _Run) -> tuple[float, int]:
    """The earliest start of any op on the device, and the op's place; infinite where there is no such op.

    A key is the start of an op when it was last at the top of its heap. Starts only become later as channels fill up,
    so checking the top is enough. Exception: an op may start earlier once another one has fetched its input; the heap
    notices that late.
    """
    heaps, free = run.heaps, run.progress.free_s[device]
    while True:
        waiting_s = available_s = np.inf
        if heaps.size[_WAITING, device] > 0:
            key, place = heaps.key_s[_WAITING, device, 0], heaps.place[_WAITING, device, 0]
            op = run.ops.order[place]
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            value = ready + run.ops.extra_s[op, device]
            if ready <= free or value > key or not _may_run(op, device, run.work, run.state):
                _pop(heaps, _WAITING, device)
                if _may_run(op, device, run.work, run.state):
                    if ready <= free:
                        _push(heaps, _AVAILABLE, device, run.ops.extra_s[op, device], place)
                    else:
                        _push(heaps, _WAITING, device, value, place)
                continue
            waiting_s = value + run.machine.overhead_s[device]
        if heaps.size[_AVAILABLE, device] > 0:
            key, place = heaps.key_s[_AVAILABLE, device, 0], heaps.place[_AVAILABLE, device, 0]
            op = run.ops.order[place]
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            if ready > free or not _may_run(op, device, run.work, run.state):
                _pop(heaps, _AVAILABLE, device)
                if _may_run(op, device, run.work, run.state):
                    _push(heaps, _WAITING, device, ready + key, place)
                continue
            available_s = free + key
        value = min(waiting_s, available_s)
        if value == np.inf:
            return value, len(run.ops.order)
        from_available = available_s < waiting_s or (
            available_s == waiting_s and heaps.place[_AVAILABLE, device, 0] < heaps.place[_WAITING, device, 0]
        )
        heap = _AVAILABLE if from_available else _WAITING
        place = heaps.place[heap, device, 0]
        weights, everything = _lacking_bytes(run.ops.order[place], device, run)
        if everything <= 0:
            return value, place
        _pop(heaps, heap, device)
        # Activations are freed later; weights never are, so an op whose weights do not fit is dropped.
        if weights <= 0:
            _push(heaps, _PARKED, device, 0.0, place)


@njit(cache=True, nogil=True)
def _start_s(op: int, device: int, run: _Run) -> float:
    """Start of an op on the device, later by its extra time there; infinite where it may not run or does not fit."""
    if not _may_run(op, device, run.work, run.state) or _lacking_bytes(op, device, run)[1] > 0:
        return np.inf
    ready, free = ready_s(op, device, run.work, run.machine, run.state, False), run.progress.free_s[device]
    overhead = run.machine.overhead_s[device] if ready > free else 0.0
    return float(max(ready, free) + run.ops.extra_s[op, device] + overhead)


@njit(cache=True, nogil=True)
def _may_run(op: int, device: int, work: Work, state: State) -> bool:
    """True where the op is not placed yet, and its times and its unit allow the device."""
    decided = state.unit_device[work.unit_of_op[op]]
    allowed = work.op_time_s[op, device] < np.inf and (decided < 0 or decided == device)
    return bool(state.assignment[op] < 0 and allowed)


@njit(cache=True, nogil=True)
def _copied_bytes(op: int, device: int, run: _Run) -> float:
    """Bytes of the op's inputs that the device would have to receive."""
    total = 0.0
    for at in range(run.work.input_offsets[op], run.work.input_offsets[op + 1]):
        tensor = run.work.input_tensors[at]
        home = run.state.assignment[run.work.producer[tensor]]
        if home != device and run.state.arrival_s[tensor, device] == np.inf:
            total += run.work.num_bytes[tensor]
    return total


@njit(cache=True, nogil=True)
def _lacking_bytes(op: int, device: int, run: _Run) -> tuple[float, float]:
    """Bytes that the device lacks for the op's weights, and for everything; 0 or less where it fits."""
    unit = run.work.unit_of_op[op]
    weights = run.state.resident[device] - run.machine.limit_bytes[device]
    if run.state.unit_device[unit] < 0:
        weights += new_bytes(unit, device, run.work, run.state.held)
    activations = run.progress.live_bytes[device] + run.ops.output_bytes[op] + run.ops.workspace_bytes[op]
    return weights, weights + activations + _copied_bytes(op, device, run)


@njit(cache=True, nogil=True)
def _least_lacking(run: _Run) -> tuple[int, int]:
    """The op and device that lack the least memory; of equal ones the highest rank, then the earliest end."""
    best_op, best, least, earliest = -1, -1, np.inf, np.inf
    for op in run.ready_ops[: run.num_ready[0]]:
        for device in range(run.work.op_time_s.shape[1]):
            if not _may_run(op, device, run.work, run.state):
                continue
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            # A missing route is worse than missing memory.
            lacking = max(0.0, _lacking_bytes(op, device, run)[1]) if ready < np.inf else 2.0**62
            end = max(ready, run.progress.free_s[device]) + run.work.op_time_s[op, device]
            sooner = run.ops.place[op] < run.ops.place[best_op] or (op == best_op and end < earliest)
            if best_op < 0 or lacking < least or (lacking == least and sooner):
                best_op, best, least, earliest = op, device, lacking, end
    return best_op, best
