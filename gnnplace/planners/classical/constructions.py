"""Starts of searches: placements built without search."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest
from typing import NamedTuple

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.planners.classical.expert import expert_assignment
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.heft_portfolio import held_shares, noisy_options, plain_options
from gnnplace.planners.classical.list_schedule import ScheduleOptions, list_schedule
from gnnplace.planners.classical.packed import best_estimated, evaluate_packed, packed_assignments
from gnnplace.planners.classical.segments import segment_assignments
from gnnplace.planners.search import BudgetExhausted, Search, Seen
from gnnplace.planners.solution import Budget

_LEAST_STARTS = 25
_LEAST_BUILDS = 16  # list schedules of each kind, of which the best are evaluated
_PACKED = 10  # packed schedules that a local search evaluates before it begins
_PACKED_SHARE = 0.1  # of the budget, for these
_PACKED_STARTS_SHARE = 0.6  # of many starts, where memory is tight


def starts_within(budget: Budget, most: int = 100) -> int:
    """Number of placements to build as starts: an eighth of the evaluations, at least 25, at most half of them or `most`.

    On 52 problems of up to 500 units, two seeds, `gnn` ended 7.5 % above the best known after 200 evaluations with 30 starts, 7.9 %
    with 20 and, one seed, 8.5 % with 100; after 500 evaluations 6.1 % with 30 and 6.7 % with 100; after 20 evaluations, one seed,
    14.8 % with 5 and 12.8 % with 10.
    """
    if budget.evaluations is None:
        return most
    return min(most, max(_LEAST_STARTS, budget.evaluations // 8), budget.evaluations // 2)


class Start(NamedTuple):
    """The placement at which a local search begins."""

    assignment: IntArray  # [N]
    seconds: float  # penalised
    is_tight: bool  # HEFT does not fit without regard to memory


class Starts(NamedTuple):
    """Distinct placements, from best to worst."""

    assignments: IntArray  # [S, N]
    seconds: FloatArray  # [S] penalised
    is_tight: bool  # HEFT does not fit without regard to memory


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


def evaluate_starts(search: Search, count: int, rng: np.random.Generator) -> Starts:
    """Evaluates at most `count` constructions, at least one: single devices, HEFT, list schedules, segments, whole layers.

    List schedules, with noise or without, come in the order of their own estimates; half of them model the occupancy of channels.
    Where memory is tight, packed schedules come before them.
    """
    problem = search.problem
    seen, rows, seconds = Seen(), list[IntArray](), list[FloatArray]()

    def evaluate(candidates: Iterable[IntArray], most: int) -> None:
        fresh = list(islice((each for each in candidates if seen.add(each)), max(0, most)))
        if fresh:
            rows.append(np.stack(fresh))
            seconds.append(search.evaluate_batch(rows[-1]))

    singles = problem.single_device_assignments
    evaluate(singles[:1], 1)
    heft = list_schedule(problem, ScheduleOptions(memory_share=None)).assignment
    evaluate([heft], count - 1)
    is_tight = len(rows) > 1 and float(seconds[1][0]) > problem.worst_case_s
    left = count - 2
    if is_tight:
        evaluate(packed_assignments(search, int(_PACKED_STARTS_SHARE * left), rng), left)
    left = count - sum(map(len, rows))
    evaluate(_constructions(search, left, rng), left)
    assignments, values = np.concatenate(rows), np.concatenate(seconds)
    order = np.argsort(values, kind="stable")
    return Starts(assignments[order], values[order], is_tight)


def _constructions(search: Search, count: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """The best list schedules, other single devices and whole layers, then segments and more list schedules in turn."""
    problem = search.problem
    if count <= 0:
        return
    schedules = iter(_list_schedules(search, count, rng))
    yield from islice(schedules, count // 2)
    yield from problem.single_device_assignments[1:]
    if (problem.graph.stages >= 0).any():
        yield expert_assignment(problem)
    segments = chain.from_iterable(segment_assignments(problem, rng, turn) for turn in range(1 + count // 50))
    for pair in zip_longest(schedules, segments):
        yield from (each for each in pair if each is not None)


def _list_schedules(search: Search, count: int, rng: np.random.Generator) -> list[IntArray]:
    """List schedules with and without channels in turn, each kind in the order of its estimates; about twice `count` are built."""
    problem, shares = search.problem, held_shares(search.problem)
    builds = max(_LEAST_BUILDS, count)
    kinds = []
    for channels in ((True,), (False,)):
        options = chain(plain_options(shares[::2], channels), noisy_options(problem, rng, shares, channels))
        kinds.append(best_estimated(search, (list_schedule(problem, each) for each in islice(options, builds))))
    return [each for pair in zip_longest(*kinds) for each in pair if each is not None]
