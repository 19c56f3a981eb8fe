"""Starts of searches: placements built without search."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.estimates import (
    Revise,
    best_estimated,
    missing_bytes,
    seconds_to_build,
    within_seconds,
)
from gnnplace.planners.classical.etf import earliest_task_schedule
from gnnplace.planners.classical.expert import expert_assignment
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.heft_portfolio import held_shares, noisy_options, plain_options
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule
from gnnplace.planners.classical.neighbourhoods import neighbourhood_schedules
from gnnplace.planners.classical.packed import evaluate_packed
from gnnplace.planners.classical.peft import peft_schedule
from gnnplace.planners.classical.segments import segment_assignments
from gnnplace.planners.search import BudgetExhausted, Search, Seen
from gnnplace.planners.solution import Budget

_FEW_EVALUATIONS, _LEAST_STARTS = 10, 25
_LEAST_BUILDS = 16  # list schedules of each kind
_PAIRS_BUILT = 2_000_000  # single ops times devices of list schedules of one kind; a pair takes 20 to 50 nanoseconds
_SLOW_PAIRS = 50_000  # most ops times devices of a graph that PEFT and m-ETF schedule
_SLOW_PAIR_S = 7e-6  # what they take for a pair
_SURE_SHARE = 0.25  # of the starts, for HEFT and single devices
_PACKED = 10  # packed schedules that a local search evaluates before it begins
_PACKED_SHARE = 0.1  # of the budget, for these
_PACKED_STARTS_SHARE = 0.6  # of many starts, where memory is tight and evaluations are cheap


def starts_within(budget: Budget, most: int = 100) -> int:
    """Number of placements to build as starts: the first ten evaluations, then half of them up to 25, then an eighth up to `most`.

    On 52 problems of up to 500 units, `gnn` ended 12.8 % above the best known after 20 evaluations with 10 starts, 13.1 % with 15 and
    14.8 % with 5 (one seed); 7.5 % after 200 evaluations with 30 starts, 7.9 % with 20 (two seeds) and 8.5 % with 100 (one seed).
    """
    if budget.evaluations is None:
        return most
    few = max(_FEW_EVALUATIONS, budget.evaluations // 2)
    return min(most, max(_LEAST_STARTS, budget.evaluations // 8), few, budget.evaluations)


class Start(NamedTuple):
    """The placement at which a local search begins."""

    assignment: IntArray  # [N]
    seconds: float  # penalised
    is_tight: bool  # HEFT does not fit without regard to memory


class Starts(NamedTuple):
    """Distinct placements, from best to worst."""

    assignments: IntArray  # [S, N]
    seconds: FloatArray  # [S] penalised
    is_tight: bool  # HEFT without regard to memory does not fit, by its own estimate


def best_start(search: Search) -> Start:
    """The best of single devices and HEFT, from which local searches begin.

    Where memory is tight, packed schedules are candidates too.

    Raises:
        BudgetExhausted: the budget ended before the first evaluation.
    """
    search.evaluate_batch(search.problem.single_device_assignments)
    is_tight = bool(search.remaining) and evaluate_heft(search) != 0
    if is_tight:
        limit = search.budget.evaluations
        count = _PACKED if limit is None else min(_PACKED, max(1, int(_PACKED_SHARE * limit)))
        evaluate_packed(search, count, np.random.default_rng(search.seed))
    if search.best is None:
        raise BudgetExhausted
    search.stage("start")
    return Start(search.best.assignment, search.best_s, is_tight)


def evaluate_starts(
    search: Search,
    count: int,
    rng: np.random.Generator,
    others: Iterable[ListSchedule] = (),
    revisers: Sequence[Revise] = (),
) -> Starts:
    """Evaluates at most `count` constructions, at least one, in the order of `best_estimated`, and what `revisers` make of the best.

    Candidates are:

    - HEFT, whole layers, `others`, and single devices;
    - list schedules of the problem's ops and of single ops, with noise or without; half of them model the occupancy of channels;
    - list schedules on devices that are near each other;
    - segments, PEFT and m-ETF on small graphs.

    HEFT and all single devices are among the starts where that takes at most a quarter of them. Where memory is tight, packed schedules
    come first, and only they if evaluations are limited. Where only seconds are limited, nothing is estimated or revised.
    """
    if search.budget.seconds is not None and search.best is None:  # an answer, however short the time is
        search.evaluate_batch(search.problem.single_device_assignments[:1])
    heft, is_tight = _heft(search.problem)
    packable = list(within_seconds(search, others)) if is_tight else []
    slow_pairs = min(_SLOW_PAIRS, seconds_to_build(search) / _SLOW_PAIR_S)
    built = _constructions(search.problem, heft, packable or others, count, rng, slow_pairs)
    candidates = within_seconds(search, built)
    sure = [heft.assignment, *search.problem.single_device_assignments]
    are_few, seen = len(sure) <= _SURE_SHARE * count, Seen()
    if search.budget.evaluations is None:  # an evaluation is cheaper than an estimate by single ops
        first = _evaluated(search, seen.fresh(sure) if are_few else [])
        num_packed = max(1, int(_PACKED_STARTS_SHARE * count)) if is_tight else 0
        packed = evaluate_packed(search, num_packed, rng, seen, packable)
        others_found = (_evaluated(search, [each]) for each in candidates if seen.add(each))
        return _sorted([*first, *packed, *chain.from_iterable(others_found)], is_tight)
    chosen = best_estimated(search, candidates, () if is_tight else revisers)
    packed = evaluate_packed(search, max(1, count) if is_tight else 0, rng, seen, packable, revisers)
    if are_few and not is_tight:
        chosen = chain(islice(chosen, count - len(sure)), sure, chosen)
    left = islice((each for each in chosen if seen.add(each)), max(1, count) - len(packed))
    return _sorted([*packed, *_evaluated(search, list(left))], is_tight)


def heft_lacks_memory(problem: Problem) -> bool:
    """Whether HEFT without regard to memory does not fit, by its own estimate: memory is tight."""
    return _heft(problem)[1]


def _heft(problem: Problem) -> tuple[ListSchedule, bool]:
    schedule = list_schedule(problem, ScheduleOptions(memory_share=None))
    return schedule, missing_bytes(problem, schedule) > 0


def _evaluated(search: Search, assignments: Sequence[IntArray]) -> list[tuple[IntArray, float]]:
    """Evaluates assignments `[N]` as one batch; each with its penalised seconds."""
    if not assignments:
        return []
    return list(zip(assignments, search.evaluate_batch(np.stack(assignments)).tolist(), strict=True))


def _sorted(found: Sequence[tuple[IntArray, float]], is_tight: bool) -> Starts:
    assignments, seconds = np.stack([each for each, _ in found]), np.array([each_s for _, each_s in found])
    order = np.argsort(seconds, kind="stable")
    return Starts(assignments[order], seconds[order], is_tight)


def _constructions(
    problem: Problem,
    heft: ListSchedule,
    others: Iterable[ListSchedule],
    count: int,
    rng: np.random.Generator,
    slow_pairs: float,
) -> Iterator[IntArray]:
    """Candidates `[N]` of all kinds in turn."""
    builds = max(_LEAST_BUILDS, count // 2)
    turns = range(1 + count // 50)
    yield heft.assignment
    if (problem.graph.stages >= 0).any():
        yield expert_assignment(problem)
    kinds = (
        (each.assignment for each in others),
        *(list_schedules(problem, channels, builds, rng) for channels in (True, False)),
        *(_schedules_of_ops(problem, channels, builds, rng) for channels in (True, False)),
        neighbourhood_schedules(problem, builds),
        chain.from_iterable(segment_assignments(problem, rng, turn) for turn in turns),
        _slow_schedules(problem, slow_pairs),
        iter(problem.single_device_assignments),
    )
    yield from _in_turn(kinds)


def _in_turn(kinds: Iterable[Iterator[IntArray]]) -> Iterator[IntArray]:
    """One of each kind after the other, as long as they last; none is built before its turn."""
    left = list(kinds)
    while left:
        for kind in tuple(left):
            try:
                yield next(kind)
            except StopIteration:
                left.remove(kind)


def list_schedules(problem: Problem, channels: bool, builds: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """`builds` list schedules `[N]`: with each factor on transfers, then with noise, while channels are occupied or not (`channels`)."""
    shares = held_shares(problem)
    options = chain(plain_options(shares[::2], (channels,)), noisy_options(problem, rng, shares, (channels,)))
    return (list_schedule(problem, each).assignment for each in islice(options, builds))


def _slow_schedules(problem: Problem, most_pairs: float) -> Iterator[IntArray]:
    """PEFT and m-ETF of the problem's ops, then of the single ops in groups, as assignments `[N]`; none of graphs with more pairs."""
    single, group_of_op = problem.over_ops
    first_op = np.unique(group_of_op, return_index=True)[1]
    schedulers = (peft_schedule, earliest_task_schedule)
    if problem.op_time_s.size <= most_pairs:
        yield from (schedule(problem).assignment for schedule in schedulers)
    if single is not problem and single.op_time_s.size <= most_pairs:
        yield from (schedule(single).assignment[first_op] for schedule in schedulers)


def _schedules_of_ops(problem: Problem, channels: bool, builds: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """List schedules of the ops in groups, as assignments `[N]` of the groups; fewer on large graphs."""
    single, group_of_op = problem.over_ops
    if single is problem:
        return iter(())
    first_op = np.unique(group_of_op, return_index=True)[1]
    builds = min(builds, _PAIRS_BUILT // max(1, single.op_time_s.size))
    return (each[first_op] for each in list_schedules(single, channels, builds, rng))
