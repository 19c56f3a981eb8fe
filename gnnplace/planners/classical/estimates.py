"""Estimates of placements and of list schedules, which choose what is worth an evaluation."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.placement import resident_bytes
from gnnplace.planners.classical.channel_queues import queued_s
from gnnplace.planners.classical.list_schedule import (
    ListSchedule,
    OpInputs,
    ScheduleOptions,
    list_schedule,
    on_all_cores,
    rank_order,
    schedule_placed,
)
from gnnplace.planners.classical.list_state import Tensors, list_machine, tensors_of
from gnnplace.planners.search import Search, Seen

BuiltT = TypeVar("BuiltT")
ItemT = TypeVar("ItemT")
Revise = Callable[[IntArray], Iterable[IntArray]]
"""Gives assignments that could improve the given one."""

_SECONDS_SHARE = 0.05  # of the budget's seconds, for building placements of one kind
_ROUNDS, _REVISED = 8, 4  # of revisions, and placements that are revised in each
_OPS_ESTIMATED = 1_200_000  # ops of all placements that are estimated together; one takes 0.15 to 0.5 microseconds


class Estimated(NamedTuple):
    """A placement with estimates from a list schedule."""

    assignment: IntArray  # [N]
    schedule: ListSchedule
    """Of the problem's ops, or of the single ops in them."""
    seconds: float
    peak_bytes: IntArray  # [D]


def best_estimated(
    search: Search, candidates: Iterable[IntArray], revisers: Sequence[Revise] = ()
) -> Iterator[IntArray]:
    """The distinct assignments `[N]` among the candidates and their revisions: by missing memory, then by seconds.

    Estimates are those of `estimated_by_op`. On 49 development cases without limits of memory, the best of 80 constructions by
    list schedules of single ops in which transfers wait took 9 % more than the best known seconds, by those of the schedules that
    made them 28 %, and by list schedules of op groups 17 %; the best of all 80 took 7 % more.

    The best are revised, then the best of all that are new, and so on, a few times.

    On large graphs only the first candidates are estimated; the others follow in their order.
    """
    seen = Seen()
    fresh = (each for each in candidates if seen.add(each))
    found = estimated_by_op(search, fresh)
    add_revisions(search, found, revisers, seen)
    return chain((each.assignment for each in ranked(search.problem, found)), fresh)


def estimated_by_op(search: Search, assignments: Iterator[IntArray]) -> list[Estimated]:
    """The first assignments `[N]` with estimates `by_op`; as many as a limit of ops, and `seconds_to_build`, allow.

    All cores estimate, while the main thread makes the assignments.
    """
    problem, (single, _) = search.problem, search.problem.over_ops
    limit = max(1, _OPS_ESTIMATED // max(1, single.graph.num_ops))
    estimates = on_all_cores(single, partial(by_op, problem), islice(assignments, limit))
    return list(within_seconds(search, estimates))


def by_op(problem: Problem, assignment: IntArray) -> Estimated:
    """The estimate of an assignment `[N]` by two list schedules of its single ops.

    In one of them no transfer waits for another, which is too fast, so `queued_s` counts where it is longer; in the other one transfers
    take their channels in order of their readers' ranks and leave gaps, which is too slow. The seconds are the geometric mean.
    On 53 development cases without limits of memory, the best by it of about 80 constructions took 1.6 % more seconds than the best
    of all, the best of five 0.2 %; with the slow schedule alone 2.1 and 0.7 %, with the fast one alone 6.6 and 2.7 %. That was without
    queues. With revisions (some 500 placements, 18 cases), the best took 2.3 % more with queues and 3.5 % without.
    The fast one knows peaks of memory better: on five cases with limited memory, they were within 3 % for nine tenths of the devices,
    with the slow one within 27 %.
    """
    single = problem.over_ops.problem
    waiting, free = _two_schedules(problem, assignment)
    seconds = _between(single, waiting, free)
    return Estimated(assignment, waiting, seconds, estimated_peak_bytes(single, free))


def estimated_s(problem: Problem, assignment: IntArray) -> float:
    """The seconds of the estimate `by_op` of an assignment `[N]`."""
    return _between(problem.over_ops.problem, *_two_schedules(problem, assignment))


def _two_schedules(problem: Problem, assignment: IntArray) -> tuple[ListSchedule, ListSchedule]:
    """List schedules of the single ops of an assignment `[N]`, in which transfers wait for each other, and in which they do not."""
    single, group_of_op = problem.over_ops
    devices = single.unit_devices(assignment[group_of_op])
    return scheduled(single, devices), scheduled(single, devices, channels=False)


def _between(problem: Problem, slow: ListSchedule, fast: ListSchedule) -> float:
    fast_s = _estimated_s(problem, fast)
    if problem.objective == "latency":
        fast_s = max(fast_s, queued_s(problem, fast))
    return math.sqrt(_estimated_s(problem, slow) * fast_s)


def add_revisions(search: Search, found: list[Estimated], revisers: Sequence[Revise], seen: Seen) -> None:
    """Adds what `revisers` make of the best of `found`, and of the best of these, with estimates `by_op`.

    Revisions in `seen` are left out, others are added to it. No round begins after `seconds_to_build`.
    """
    revised, until_s = Seen(), search.wall_s + seconds_to_build(search)
    for _ in range(_ROUNDS if revisers else 0):
        best = (each.assignment for each in ranked(search.problem, found))
        chosen = list(islice((each for each in best if revised.add(each)), _REVISED))
        made = chain.from_iterable(revise(each) for each in chosen for revise in revisers)
        found += estimated_by_op(search, (each for each in made if seen.add(each)))
        if search.wall_s > until_s:
            return


def within_seconds(search: Search, building: Iterable[BuiltT]) -> Iterator[BuiltT]:
    """What is built, at least one, until `seconds_to_build` are over."""
    until_s = search.wall_s + seconds_to_build(search)
    for each in building:
        yield each
        if search.wall_s > until_s:
            return


def seconds_to_build(search: Search) -> float:
    """Seconds in which to build placements of one kind; infinite where the budget does not limit seconds."""
    return np.inf if search.budget.seconds is None else _SECONDS_SHARE * search.budget.seconds


def estimated(
    search: Search, items: Iterable[ItemT], schedules_of: Callable[[ItemT], Iterable[ListSchedule]]
) -> list[Estimated]:
    """The schedules of all items with their estimates, one for each assignment, made on all cores within `seconds_to_build`."""
    problem = search.problem

    def of_item(item: ItemT) -> list[Estimated]:
        return [estimate(problem, schedule.assignment, schedule) for schedule in schedules_of(item)]

    made = chain.from_iterable(within_seconds(search, on_all_cores(problem, of_item, items)))
    return list({each.assignment.tobytes(): each for each in made}.values())


def ranked(problem: Problem, found: Sequence[Estimated], filled: float = 1.0) -> list[Estimated]:
    """The schedules by missing memory, then by seconds; memory is missing above the share `filled`."""
    peak_bytes = np.array([each.peak_bytes for each in found]).reshape(len(found), -1)
    missing = np.maximum(0.0, peak_bytes - filled * problem.topology.memory_bytes).sum(axis=1)
    return [found[index] for index in np.lexsort(([each.seconds for each in found], missing))]


def estimate(problem: Problem, assignment: IntArray, schedule: ListSchedule) -> Estimated:
    """The estimates of a schedule of the assignment `[N]`."""
    return Estimated(assignment, schedule, _estimated_s(problem, schedule), estimated_peak_bytes(problem, schedule))


def _estimated_s(problem: Problem, schedule: ListSchedule) -> float:
    """Seconds of the objective: the end of the schedule, or the seconds of its busiest device."""
    if problem.objective == "latency":
        return float(schedule.end_s.max(initial=0.0))
    op_s = problem.op_time_s[np.arange(problem.graph.num_ops), schedule.assignment]
    return float(np.bincount(schedule.assignment, op_s).max(initial=0.0))


def missing_bytes(problem: Problem, schedule: ListSchedule) -> int:
    """Bytes that all memories together lack, by the estimated peaks."""
    return int(np.maximum(0, estimated_peak_bytes(problem, schedule) - problem.topology.memory_bytes).sum())


def scheduled(problem: Problem, devices: IntArray, channels: bool = True) -> ListSchedule:
    """The list schedule of a placement `[U]`, in which transfers wait for each other on their `channels`, or do not.

    It is that of `list_schedule` with a mask of these devices alone, in less time.
    """
    assignment = devices[problem.unit_of_op]
    op_s = problem.op_time_s[np.arange(len(assignment)), assignment]
    if problem.action_mask[np.arange(problem.num_units), devices].all() and np.isfinite(op_s).all():
        graph, machine = problem.graph, list_machine(problem.topology, 1.0, None, channels)
        inputs = OpInputs(graph.input_offsets, graph.input_tensors, graph.tensor_producer, graph.tensor_bytes)
        start_s, end_s, connected = schedule_placed(_plain_order(problem), assignment, op_s, inputs, machine)
        if connected:
            return ListSchedule(assignment, start_s, end_s, connected)
    only = np.zeros(problem.action_mask.shape, dtype=np.bool_)
    only[np.arange(problem.num_units), devices] = True
    return list_schedule(problem, ScheduleOptions(channels=channels, memory_share=None, mask=only))


@lru_cache(maxsize=4)  # searches schedule hundreds of placements of one problem
def _plain_order(problem: Problem) -> IntArray:
    return rank_order(problem)


def estimated_peak_bytes(problem: Problem, schedule: ListSchedule) -> IntArray:
    """`[D]` peak memory of a list schedule, of a pool at its first device; copies are held from the end of their producer on."""
    graph, home = problem.graph, problem.topology.memory_home[schedule.assignment]
    resident = resident_bytes(graph, home, problem.topology.num_devices)
    live = _live_peaks(home, resident, schedule.start_s, schedule.end_s, graph.workspace_bytes, tensors_of(graph))
    return np.asarray(resident + live)


@njit(cache=True, nogil=True)
def _live_peaks(
    home: IntArray,
    resident: IntArray,
    start_s: FloatArray,
    end_s: FloatArray,
    workspace_bytes: IntArray,
    tensors: Tensors,
) -> IntArray:
    """`[D]` largest sum of live tensors and workspace in each memory; `resident` `[D]` gives the number of memories."""
    num_ops, num_memories = len(home), len(resident)
    most = num_ops + len(tensors.producer) + len(tensors.consumers)
    begin_s, free_s = np.empty(most), np.empty(most)
    held_bytes, memory = np.empty(most, np.int64), np.empty(most, np.int64)
    count = 0
    for op in range(num_ops):
        if workspace_bytes[op]:
            begin_s[count], free_s[count] = start_s[op], end_s[op]
            held_bytes[count], memory[count] = workspace_bytes[op], home[op]
            count += 1
    last_s = np.full(num_memories, -1.0)
    for tensor in range(len(tensors.producer)):
        producer, num_bytes = tensors.producer[tensor], tensors.num_bytes[tensor]
        begin, end = tensors.consumer_offsets[tensor], tensors.consumer_offsets[tensor + 1]
        last_s[home[producer]] = end_s[producer] if begin < end else np.inf
        for at in range(begin, end):
            reader = tensors.consumers[at]
            last_s[home[reader]] = max(last_s[home[reader]], end_s[reader])
        for place in range(num_memories):
            if last_s[place] >= 0.0:
                made_s = start_s[producer] if place == home[producer] else end_s[producer]
                begin_s[count], free_s[count] = made_s, last_s[place]
                held_bytes[count], memory[count] = num_bytes, place
                count += 1
                last_s[place] = -1.0
    live, peak = np.zeros(num_memories, np.int64), np.zeros(num_memories, np.int64)
    # All frees come before all allocations, so that a stable sort frees first at equal times.
    for event in np.argsort(np.concatenate((free_s[:count], begin_s[:count])), kind="mergesort"):
        if event < count:
            live[memory[event]] -= held_bytes[event]
        else:
            place = memory[event - count]
            live[place] += held_bytes[event - count]
            peak[place] = max(peak[place], live[place])
    return peak
