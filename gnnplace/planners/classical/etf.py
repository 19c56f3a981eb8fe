"""m-ETF, memory-constrained earliest task first, and the compiled scheduler that it shares with m-SCT."""

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.etf_state import (
    AVAILABLE,
    PARKED,
    URGENT,
    WAITING,
    Run,
    bytes_to_copy,
    dispatch_s,
    earliest_start_s,
    lacking_and_end,
    lacking_bytes,
    may_run,
    place_unit,
    pop,
    push,
    ready_s,
)
from gnnplace.planners.classical.heft import evaluate_in_order
from gnnplace.planners.classical.list_schedule import ListSchedule, connected_schedule, rank_order
from gnnplace.planners.classical.list_state import SENT, TRIED, empty_state, is_in_memory, list_machine, list_work
from gnnplace.planners.search import Search, deadline
from gnnplace.planners.solution import Budget, Solution

MEMORY_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2)
"""Shares of every device's memory, tried one after the other until the placement fits when it is evaluated."""
_SCHEDULING_SHARE = 0.8  # of the budget's seconds


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
    - Once most of the budget's seconds have passed, the ops that are left go to their earliest end in order of upward rank.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "m-etf", seed) as search, deadline(schedule_limit_s(search)) as stop:
        evaluate_in_order(search, (earliest_task_schedule(problem, share, stop=stop) for share in MEMORY_SHARES))
    return search.solution()


def schedule_limit_s(search: Search) -> float | None:
    """Seconds after which a scheduler has to finish in a hurry, so that its schedule can still be evaluated; None: no limit."""
    seconds = search.budget.seconds
    return None if seconds is None else max(0.0, _SCHEDULING_SHARE * seconds - search.wall_s)


def earliest_task_schedule(
    problem: Problem,
    memory_share: float | None = 1.0,
    favourite: IntArray | None = None,
    stop: BoolArray | None = None,
) -> ListSchedule:
    """The schedule of m-ETF, or of m-SCT where `favourite` `[N]` names each op's favourite child (-1: none).

    A device takes no op that would fill more than `memory_share` of its memory with weights, live activations and
    received copies (None ignores memory). When no device has memory for any op, the op and device that lack the least
    go first. `O(N D log N)` for ops with few inputs, with favourites `O(N D^2)` at worst.

    Once `stop[0]` is true, the ops that are left go to the device where they end first, in order of upward rank.
    """
    graph, num_devices = problem.graph, problem.topology.num_devices
    machine = list_machine(problem.topology, 1.0, memory_share, channels=True)
    order = rank_order(problem)
    favourite = np.full(graph.num_ops, -1, dtype=np.int64) if favourite is None else favourite

    def build(mask: BoolArray) -> ListSchedule:
        work = list_work(problem, mask)
        run = Run(
            work=work,
            machine=machine,
            state=empty_state(work, machine),
            order=order,
            place=np.argsort(order),
            favourite=favourite,
            stop=np.zeros(1, dtype=np.bool_) if stop is None else stop,
            reserves=bool((favourite >= 0).any()),
            extra_s=work.op_time_s - work.op_time_s.min(axis=1, keepdims=True),
            successor_offsets=graph.successor_offsets,
            successors=graph.successors,
            free_s=np.zeros(num_devices),
            last_op=np.full(num_devices, -1),
            live_bytes=np.zeros(num_devices),
            missing=np.diff(graph.input_offsets),
            readers=work.readers.copy(),
            heap_key_s=np.empty((4, num_devices, graph.num_ops)),
            heap_place=np.empty((4, num_devices, graph.num_ops), np.int64),
            heap_size=np.zeros((4, num_devices), np.int64),
        )
        return ListSchedule(*_schedule(run))

    return connected_schedule(problem, build)


@njit(cache=True, nogil=True)
def _schedule(run: Run) -> tuple[IntArray, FloatArray, FloatArray, bool]:
    """Devices, starts and ends of all ops `[N]`, and whether all inputs had a route."""
    work, machine, state, connected = run.work, run.machine, run.state, True
    num_ops, num_devices = work.op_time_s.shape
    for op in range(num_ops):
        if run.missing[op] == 0:
            _release(op, run)
    next_place = 0
    for _ in range(num_ops):
        best, best_s, best_place, best_keeps = -1, np.inf, num_ops, False
        is_late = run.stop[0]
        for device in range(0 if is_late else num_devices):
            value_s, place, keeps = _offer(device, run)
            # Equal starts: the higher rank. Equal ranks: a device without a reservation, then the first device.
            better = place < best_place or (place == best_place and best_keeps and not keeps)
            if value_s < best_s or (value_s == best_s and better):
                best, best_s, best_place, best_keeps = device, value_s, place, keeps
        op = int(run.order[best_place]) if best >= 0 else -1
        if is_late:
            while state.assignment[run.order[next_place]] >= 0:
                next_place += 1
            op = int(run.order[next_place])
            best = _earliest_end(op, run)
        elif best < 0:
            op, best = _least_lacking(run)
        if state.unit_device[work.unit_of_op[op]] < 0:
            place_unit(work.unit_of_op[op], best, run)
        run.live_bytes[machine.memory_home[best]] += work.output_bytes[op] + bytes_to_copy(op, best, run)
        ready = ready_s(op, best, SENT, run)
        if ready == np.inf:
            connected, ready = False, 0.0
        start = max(ready, run.free_s[best])
        end = start + dispatch_s(start, best, run) + work.op_time_s[op, best]
        state.assignment[op], state.start_s[op], state.end_s[op] = best, start, end
        run.free_s[best], run.last_op[best] = end, op
        for device in range(num_devices):
            if machine.excludes[best, device]:
                run.free_s[device] = max(run.free_s[device], end)
        _finish(op, run)
    return state.assignment, state.start_s, state.end_s, connected


@njit(cache=True, nogil=True)
def _release(op: int, run: Run) -> None:
    """Adds an op whose inputs exist to the heaps of every device that it can reach."""
    place, everywhere_s = run.place[op], 0.0
    for device in range(run.work.op_time_s.shape[1]):
        if may_run(op, device, run):
            ready = ready_s(op, device, TRIED, run)
            if ready < np.inf:
                everywhere_s = max(everywhere_s, ready)
                push(run, WAITING, device, ready + run.extra_s[op, device], place)
    for device in range(run.work.op_time_s.shape[1]):
        if run.reserves and may_run(op, device, run):
            push(run, URGENT, device, everywhere_s + run.extra_s[op, device], place)


@njit(cache=True, nogil=True)
def _finish(op: int, run: Run) -> None:
    """Frees the tensors that the op was the last to read, and releases the ops that waited for it alone."""
    state, work = run.state, run.work
    for at in range(work.input_offsets[op], work.input_offsets[op + 1]):
        tensor = work.input_tensors[at]
        run.readers[tensor] -= 1
        for device in range(work.op_time_s.shape[1] if run.readers[tensor] == 0 else 0):
            source, machine = state.assignment[work.producer[tensor]], run.machine
            if is_in_memory(tensor, device, source, machine.memory_home, machine.pooled, state.arrival_s):
                if run.machine.memory_home[device] == device:
                    run.live_bytes[device] -= work.num_bytes[tensor]
                while run.heap_size[PARKED, device] > 0:
                    push(run, WAITING, device, 0.0, run.heap_place[PARKED, device, 0])
                    pop(run, PARKED, device)
    for at in range(run.successor_offsets[op], run.successor_offsets[op + 1]):
        child = run.successors[at]
        run.missing[child] -= 1
        if run.missing[child] == 0 and not run.stop[0]:
            _release(child, run)


@njit(cache=True, nogil=True)
def _offer(device: int, run: Run) -> tuple[float, int, bool]:
    """Earliest start of an op on the device, the op's place, and whether it runs before a favourite child.

    A device waits for the favourite child of its last op where the child could start nowhere earlier.
    """
    value_s, place = _earliest(device, run)
    last = run.last_op[device]
    child = run.favourite[last] if last >= 0 else -1
    if child < 0 or run.state.assignment[child] >= 0 or run.missing[child] > 0:
        return value_s, place, False
    inputs_s = 0.0
    for at in range(run.work.input_offsets[child], run.work.input_offsets[child + 1]):
        inputs_s = max(inputs_s, run.state.end_s[run.work.producer[run.work.input_tensors[at]]])
    child_s = earliest_start_s(child, device, run)
    if child_s == np.inf or value_s < inputs_s:
        return value_s, place, False
    for other in range(run.work.op_time_s.shape[1]):
        if earliest_start_s(child, other, run) < child_s:
            return value_s, place, False
    while run.heap_size[URGENT, device] > 0:
        op = run.order[run.heap_place[URGENT, device, 0]]
        if may_run(op, device, run):
            urgent_s = max(run.heap_key_s[URGENT, device, 0], earliest_start_s(op, device, run))
            if urgent_s <= child_s:
                return urgent_s, run.place[op], op != child
            break
        pop(run, URGENT, device)
    return child_s, run.place[child], False


@njit(cache=True, nogil=True)
def _earliest(device: int, run: Run) -> tuple[float, int]:
    """The earliest start of any op on the device, and the op's place; infinite where there is no such op.

    A key is the start of an op when it was last at the top of its heap. Starts only become later as channels fill up,
    so checking the top is enough. Exception: an op may start earlier once another one has fetched its input; the heap
    notices that late.
    """
    free = run.free_s[device]
    while True:
        best, best_s, best_place, is_stale = -1, np.inf, len(run.order), False
        for heap in (WAITING, AVAILABLE):
            if is_stale or run.heap_size[heap, device] == 0:
                continue
            key, place = run.heap_key_s[heap, device, 0], run.heap_place[heap, device, 0]
            op = run.order[place]
            ready = ready_s(op, device, TRIED, run)
            arrived, is_allowed = ready <= free, may_run(op, device, run)
            value = run.extra_s[op, device] if arrived else ready + run.extra_s[op, device]
            if arrived != (heap == AVAILABLE) or value > key or not is_allowed:
                is_stale = True
                pop(run, heap, device)
                if is_allowed:
                    push(run, AVAILABLE if arrived else WAITING, device, value, place)
                continue
            start_s = value + (free + dispatch_s(free, device, run) if arrived else run.machine.overhead_s[device])
            if start_s < best_s or (start_s == best_s and place < best_place):
                best, best_s, best_place = heap, start_s, place
        if is_stale:
            continue
        if best < 0:
            return best_s, best_place
        weights, everything = lacking_bytes(run.order[best_place], device, run)
        if everything <= 0:
            return best_s, best_place
        pop(run, best, device)
        # Activations are freed later; weights never are, so an op whose weights do not fit is dropped.
        if weights <= 0:
            push(run, PARKED, device, 0.0, best_place)


@njit(cache=True, nogil=True)
def _earliest_end(op: int, run: Run) -> int:
    """The device where the op ends first; a device that lacks no memory comes before one that does."""
    best, best_lacking, best_end = -1, np.inf, np.inf
    for device in range(run.work.op_time_s.shape[1]):
        if may_run(op, device, run):
            lacking, end = lacking_and_end(op, device, run)
            if best < 0 or lacking < best_lacking or (lacking == best_lacking and end < best_end):
                best, best_lacking, best_end = device, lacking, end
    return best


@njit(cache=True, nogil=True)
def _least_lacking(run: Run) -> tuple[int, int]:
    """The op and device that lack the least memory; of equal ones the highest rank, then the earliest end."""
    best_op, best, least, earliest = -1, -1, np.inf, np.inf
    for op in run.order:
        if run.missing[op] > 0 or run.state.assignment[op] >= 0:
            continue
        for device in range(run.work.op_time_s.shape[1]):
            if not may_run(op, device, run):
                continue
            lacking, end = lacking_and_end(op, device, run)
            sooner = op == best_op and end < earliest
            if best_op < 0 or lacking < least or (lacking == least and sooner):
                best_op, best, least, earliest = op, device, lacking, end
    return best_op, best
