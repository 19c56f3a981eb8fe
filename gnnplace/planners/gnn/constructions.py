"""Starts for the improver: placements built without search."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.expert import expert_assignment
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.heft_portfolio import held_shares, noisy_schedules, plain_options
from gnnplace.planners.classical.list_schedule import list_schedule
from gnnplace.planners.classical.segments import segment_assignments
from gnnplace.planners.search import Search


def evaluate_starts(search: Search, count: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Evaluates the best single device, HEFT, whole layers, segments and list schedules, about `count` in all.

    Gives the distinct placements `[S, N]` from best to worst and their penalised seconds `[S]`. Half of the list schedules
    model the occupancy of channels.
    """
    problem = search.problem
    singles = problem.single_device_assignments
    rows, seconds = [singles], [search.evaluate_batch(singles)]
    evaluate_heft(search)
    left = max(0, count - len(singles) - 1)
    distinct: dict[bytes, IntArray] = {}
    for candidate in _constructions(problem, left, rng):
        if len(distinct) >= left:
            break
        distinct.setdefault(candidate.tobytes(), candidate)
    if distinct:
        rows.append(np.array(list(distinct.values())))
        seconds.append(search.evaluate_batch(rows[-1]))
    assignments, values = np.concatenate(rows), np.concatenate(seconds)
    order = np.argsort(values, kind="stable")
    return assignments[order], values[order]


def _constructions(problem: Problem, count: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Whole layers where the graph names them, plain list schedules, segments of a few orders, list schedules with noise."""
    shares = held_shares(problem)
    if (problem.graph.stages >= 0).any():
        yield expert_assignment(problem)
    yield from (list_schedule(problem, options).assignment for options in plain_options(shares[::2]))
    for turn in range(1 + count // 50):
        yield from segment_assignments(problem, rng, turn)
    yield from islice(noisy_schedules(problem, rng, shares), count)
