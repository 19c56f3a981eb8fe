"""Earliest task first, compiled: of all ops whose inputs exist, always the one that can start first, where it can."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.event_heap import pop_event, push_event
from gnnplace.planners.classical.list_schedule import ListSchedule, connected_mask, rank_order
from gnnplace.planners.classical.list_state import (
    Machine,
    State,
    Work,
    empty_state,
    list_machine,
    list_work,
    new_bytes,
    put_unit,
    ready_s,
)

__all__ = ["earliest_task_schedule"]


def earliest_task_schedule(
    problem: Problem, memory_share: float | None = 1.0, favourite: IntArray | None = None
) -> ListSchedule:
    """The schedule of m-ETF, or of m-SCT where `favourite` `[N]` names each op's favourite child (-1: none).

    A device is no candidate while its weights, live activations and received copies would fill more than
    `memory_share` of its memory (None: memory is ignored). When nothing can run anywhere for lack of memory, the op and
    the device that lack least go first. `O(N D log N)` for ops of few inputs, with favourites `O(N D^2)` at worst.

    >>> from gnnplace.sim.example import diamond
    >>> schedule = earliest_task_schedule(diamond())
    >>> schedule.assignment.tolist(), schedule.start_s.round(3).tolist()
    ([0, 0, 1, 1], [0.0, 1.0, 1.001, 3.001])
    """
    graph = problem.graph
    produced = np.zeros(graph.num_ops)
    np.add.at(produced, graph.tensor_producer, graph.tensor_bytes)
    machine = list_machine(problem.topology, 1.0, memory_share, channels=True)
    children = np.full(graph.num_ops, -1, dtype=np.int64) if favourite is None else favourite
    order = rank_order(problem)

    def build(mask: BoolArray) -> ListSchedule:
        work = list_work(problem, mask)
        jobs = _Jobs(
            order,
            np.argsort(order),
            children,
            bool((children >= 0).any()),
            work.op_time_s - work.op_time_s.min(axis=1, keepdims=True),
            np.diff(work.input_offsets),
            graph.successor_offsets,
            graph.successors,
            produced,
            graph.workspace_bytes.astype(np.float64),
            np.diff(graph.consumer_offsets),
        )
        return ListSchedule(*_schedule(jobs, work, machine))

    result = build(problem.action_mask)
    return result if result.connected else build(connected_mask(problem))


class _Jobs(NamedTuple):
    """What earliest task first knows of the ops beyond `Work`."""

    order: IntArray  # [N] from the highest upward rank to the lowest; queues hold places in it
    place: IntArray  # [N] of each op in the order
    favourite: IntArray  # [N] child, -1: none
    reserves: bool  # some op has a favourite child
    extra_s: FloatArray  # [N, D] that the op takes longer than on its fastest device
    num_inputs: IntArray  # [N]
    successor_offsets: IntArray
    successors: IntArray
    output_bytes: FloatArray  # [N]
    workspace_bytes: FloatArray  # [N]
    num_readers: IntArray  # [T]


class _Clock(NamedTuple):
    """How far each device is."""

    free_s: FloatArray  # [D]
    last_op: IntArray  # [D] that it ran, -1: none
    live_bytes: FloatArray  # [D] activations and copies
    missing: IntArray  # [N] inputs that do not exist yet
    readers: IntArray  # [T] that have not run


class _Queues(NamedTuple):
    """Four heaps for each device: the smallest key first, of equal ones the smallest place."""

    key_s: FloatArray  # [4, D, N]
    place: IntArray  # [4, D, N]
    size: IntArray  # [4, D]


_WAITING = 0
"""Inputs are on their way; an op is in at most one of the first three of a device."""
_AVAILABLE = 1
"""Inputs are there."""
_PARKED = 2
"""Memory is lacking for now."""
_URGENT = 3
"""By when the inputs could be on any device."""


class _Run(NamedTuple):
    """Everything at hand."""

    jobs: _Jobs
    work: Work
    machine: Machine
    state: State
    clock: _Clock
    queues: _Queues
    ready_ops: IntArray  # [N] whose inputs exist; as many as `num_ready`
    ready_index: IntArray  # [N]
    num_ready: IntArray  # [1]


@njit(cache=True, nogil=True)
def _schedule(jobs: _Jobs, work: Work, machine: Machine) -> tuple[IntArray, FloatArray, FloatArray, bool]:
    num_ops, num_devices = work.op_time_s.shape
    state = empty_state(work, machine)
    clock = _Clock(
        np.zeros(num_devices), np.full(num_devices, -1), np.zeros(num_devices),
        jobs.num_inputs.copy(), jobs.num_readers.copy(),
    )  # fmt: skip
    queues = _Queues(
        np.empty((4, num_devices, num_ops)),
        np.empty((4, num_devices, num_ops), np.int64),
        np.zeros((4, num_devices), np.int64),
    )
    run = _Run(
        jobs, work, machine, state, clock, queues,
        np.empty(num_ops, np.int64), np.empty(num_ops, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip
    connected = True
    for op in range(num_ops):
        if clock.missing[op] == 0:
            _release(op, run)
    for _ in range(num_ops):
        best, best_s, best_place, best_keeps = -1, np.inf, num_ops, False
        for device in range(num_devices):
            value_s, place, keeps = _offer(device, run)
            # Of equal starts the higher rank; of equal devices one that keeps itself free for nothing else, then the first.
            better = place < best_place or (place == best_place and best_keeps and not keeps)
            if value_s < best_s or (value_s == best_s and better):
                best, best_s, best_place, best_keeps = device, value_s, place, keeps
        op = int(jobs.order[best_place]) if best >= 0 else -1
        if best < 0:
            op, best = _least_lacking(run)
        if state.unit_device[work.unit_of_op[op]] < 0:
            put_unit(work.unit_of_op[op], best, work, state)
        clock.live_bytes[best] += jobs.output_bytes[op] + _copied_bytes(op, best, run)
        ready = ready_s(op, best, work, machine, state, True)
        if ready == np.inf:
            connected, ready = False, 0.0
        start = max(ready, clock.free_s[best])
        overhead = machine.overhead_s[best] if start > clock.free_s[best] else 0.0
        end = start + overhead + work.op_time_s[op, best]
        state.assignment[op], state.start_s[op], state.end_s[op] = best, start, end
        clock.free_s[best], clock.last_op[best] = end, op
        _finish(op, run)
    return state.assignment, state.start_s, state.end_s, connected


@njit(cache=True, nogil=True)
def _push(queues: _Queues, kind: int, device: int, key_s: float, place: int) -> None:
    push_event(queues.key_s[kind, device], queues.place[kind, device], queues.size[kind, device], key_s, place)
    queues.size[kind, device] += 1


@njit(cache=True, nogil=True)
def _pop(queues: _Queues, kind: int, device: int) -> None:
    queues.size[kind, device] -= 1
    pop_event(queues.key_s[kind, device], queues.place[kind, device], queues.size[kind, device])


@njit(cache=True, nogil=True)
def _release(op: int, run: _Run) -> None:
    """Offers an op whose inputs exist to every device that it can reach."""
    run.ready_ops[run.num_ready[0]], run.ready_index[op] = op, run.num_ready[0]
    run.num_ready[0] += 1
    place, everywhere_s = run.jobs.place[op], 0.0
    for device in range(run.work.op_time_s.shape[1]):
        if _may_run(op, device, run.work, run.state):
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            if ready < np.inf:
                everywhere_s = max(everywhere_s, ready)
                _push(run.queues, _WAITING, device, ready + run.jobs.extra_s[op, device], place)
    for device in range(run.work.op_time_s.shape[1]):
        if run.jobs.reserves and _may_run(op, device, run.work, run.state):
            _push(run.queues, _URGENT, device, everywhere_s + run.jobs.extra_s[op, device], place)


@njit(cache=True, nogil=True)
def _finish(op: int, run: _Run) -> None:
    """Frees what the op was the last to read, and releases the ops that waited for it alone."""
    state, work = run.state, run.work
    run.num_ready[0] -= 1
    last = run.ready_ops[run.num_ready[0]]
    run.ready_ops[run.ready_index[op]], run.ready_index[last] = last, run.ready_index[op]
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        run.clock.readers[tensor] -= 1
        for device in range(work.op_time_s.shape[1] if run.clock.readers[tensor] == 0 else 0):
            if state.assignment[work.producer[tensor]] == device or state.arrival_s[tensor, device] < np.inf:
                run.clock.live_bytes[device] -= work.num_bytes[tensor]
                while run.queues.size[_PARKED, device] > 0:
                    _push(run.queues, _WAITING, device, 0.0, run.queues.place[_PARKED, device, 0])
                    _pop(run.queues, _PARKED, device)
    for at in range(run.jobs.successor_offsets[op], run.jobs.successor_offsets[op + 1]):
        child = run.jobs.successors[at]
        run.clock.missing[child] -= 1
        if run.clock.missing[child] == 0:
            _release(child, run)


@njit(cache=True, nogil=True)
def _offer(device: int, run: _Run) -> tuple[float, int, bool]:
    """When a device could start an op, the op's place, and whether it would go before a favourite child.

    A device waits for the favourite child of its last op where the child is best off here.
    """
    value_s, place = _earliest(device, run)
    last = run.clock.last_op[device]
    child = run.jobs.favourite[last] if last >= 0 else -1
    if child < 0 or run.state.assignment[child] >= 0 or run.clock.missing[child] > 0:
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
    while run.queues.size[_URGENT, device] > 0:
        op = run.jobs.order[run.queues.place[_URGENT, device, 0]]
        if _may_run(op, device, run.work, run.state):
            urgent_s = max(run.queues.key_s[_URGENT, device, 0], _start_s(op, device, run))
            if urgent_s <= child_s:
                return urgent_s, run.jobs.place[op], op != child
            break
        _pop(run.queues, _URGENT, device)
    return child_s, run.jobs.place[child], False


@njit(cache=True, nogil=True)
def _earliest(device: int, run: _Run) -> tuple[float, int]:
    """When a device could start the op that it could start first, and the op's place; infinite where there is none.

    Keys are what starts looked like when the op was last on top. Channels only fill up, so starts only become later and
    it is enough to check the one on top; the exception, a tensor that another op has fetched meanwhile, is found late.
    """
    queues, free = run.queues, run.clock.free_s[device]
    while True:
        waiting_s = available_s = np.inf
        if queues.size[_WAITING, device] > 0:
            key, place = queues.key_s[_WAITING, device, 0], queues.place[_WAITING, device, 0]
            op = run.jobs.order[place]
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            value = ready + run.jobs.extra_s[op, device]
            if ready <= free or value > key or not _may_run(op, device, run.work, run.state):
                _pop(queues, _WAITING, device)
                if _may_run(op, device, run.work, run.state):
                    if ready <= free:
                        _push(queues, _AVAILABLE, device, run.jobs.extra_s[op, device], place)
                    else:
                        _push(queues, _WAITING, device, value, place)
                continue
            waiting_s = value + run.machine.overhead_s[device]
        if queues.size[_AVAILABLE, device] > 0:
            key, place = queues.key_s[_AVAILABLE, device, 0], queues.place[_AVAILABLE, device, 0]
            op = run.jobs.order[place]
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            if ready > free or not _may_run(op, device, run.work, run.state):
                _pop(queues, _AVAILABLE, device)
                if _may_run(op, device, run.work, run.state):
                    _push(queues, _WAITING, device, ready + key, place)
                continue
            available_s = free + key
        value = min(waiting_s, available_s)
        if value == np.inf:
            return value, len(run.jobs.order)
        from_available = available_s < waiting_s or (
            available_s == waiting_s and queues.place[_AVAILABLE, device, 0] < queues.place[_WAITING, device, 0]
        )
        kind = _AVAILABLE if from_available else _WAITING
        place = queues.place[kind, device, 0]
        weights, everything = _lacking_bytes(run.jobs.order[place], device, run)
        if everything <= 0:
            return value, place
        _pop(queues, kind, device)
        # Activations are freed some day; weights only become more.
        if weights <= 0:
            _push(run.queues, _PARKED, device, 0.0, place)


@njit(cache=True, nogil=True)
def _start_s(op: int, device: int, run: _Run) -> float:
    """When an op could start on a device, later by what it takes longer there than on its fastest; infinite: never."""
    if not _may_run(op, device, run.work, run.state) or _lacking_bytes(op, device, run)[1] > 0:
        return np.inf
    ready, free = ready_s(op, device, run.work, run.machine, run.state, False), run.clock.free_s[device]
    overhead = run.machine.overhead_s[device] if ready > free else 0.0
    return float(max(ready, free) + run.jobs.extra_s[op, device] + overhead)


@njit(cache=True, nogil=True)
def _may_run(op: int, device: int, work: Work, state: State) -> bool:
    """The op is not placed, and neither its times nor its unit keep it from the device."""
    decided = state.unit_device[work.unit_of_op[op]]
    allowed = work.op_time_s[op, device] < np.inf and (decided < 0 or decided == device)
    return bool(state.assignment[op] < 0 and allowed)


@njit(cache=True, nogil=True)
def _copied_bytes(op: int, device: int, run: _Run) -> float:
    """What a device would have to receive."""
    total = 0.0
    for at in range(run.work.input_offsets[op], run.work.input_offsets[op + 1]):
        tensor = run.work.input_tensors[at]
        home = run.state.assignment[run.work.producer[tensor]]
        if home != device and run.state.arrival_s[tensor, device] == np.inf:
            total += run.work.num_bytes[tensor]
    return total


@njit(cache=True, nogil=True)
def _lacking_bytes(op: int, device: int, run: _Run) -> tuple[float, float]:
    """What a device lacks for the weights of an op, and for everything; not above zero where it fits."""
    unit = run.work.unit_of_op[op]
    weights = run.state.resident[device] - run.machine.limit_bytes[device]
    if run.state.unit_device[unit] < 0:
        weights += new_bytes(unit, device, run.work, run.state.held)
    activations = run.clock.live_bytes[device] + run.jobs.output_bytes[op] + run.jobs.workspace_bytes[op]
    return weights, weights + activations + _copied_bytes(op, device, run)


@njit(cache=True, nogil=True)
def _least_lacking(run: _Run) -> tuple[int, int]:
    """The op and its device that lack the least memory; of equal ones the op of the highest rank, where it ends first."""
    best_op, best, least, earliest = -1, -1, np.inf, np.inf
    for op in run.ready_ops[: run.num_ready[0]]:
        for device in range(run.work.op_time_s.shape[1]):
            if not _may_run(op, device, run.work, run.state):
                continue
            ready = ready_s(op, device, run.work, run.machine, run.state, False)
            # No way there is worse than no room there.
            lacking = max(0.0, _lacking_bytes(op, device, run)[1]) if ready < np.inf else 2.0**62
            end = max(ready, run.clock.free_s[device]) + run.work.op_time_s[op, device]
            sooner = run.jobs.place[op] < run.jobs.place[best_op] or (op == best_op and end < earliest)
            if best_op < 0 or lacking < least or (lacking == least and sooner):
                best_op, best, least, earliest = op, device, lacking, end
    return best_op, best
