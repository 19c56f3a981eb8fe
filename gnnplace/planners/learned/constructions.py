"""Starts for the improver: placements that are built in one go, and rebuilt around one that is already good."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.heuristic.expert import expert_assignment
from gnnplace.planners.heuristic.heft import evaluate_heft
from gnnplace.planners.heuristic.heft_portfolio import (
    NOISE,
    TRANSFER_FACTORS,
    held_shares,
    memory_shares,
    noisy_schedules,
    plain_schedules,
)
from gnnplace.planners.heuristic.list_schedule import ListScheduling, list_schedule
from gnnplace.planners.heuristic.segments import segment_assignments
from gnnplace.planners.heuristic.single import single_device_assignments
from gnnplace.planners.search import Search

__all__ = ["evaluate_starts", "rebuild"]


def evaluate_starts(search: Search, count: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Evaluates the best single device, HEFT, whole layers, segments and list schedules, about `count` in all.

    Gives the distinct ones `[S, N]` from best to worst and their penalised seconds `[S]`. Half of the list schedules keep
    the channels' occupancy while they decide.
    """
    problem = search.problem
    singles = single_device_assignments(problem)
    rows, seconds = [singles], [search.evaluate_batch(singles)]
    evaluate_heft(search)
    left = count - len(singles) - 1
    candidates = list(_distinct(_constructions(problem, max(0, left), rng), max(0, left)))
    if candidates:
        rows.append(np.array(candidates))
        seconds.append(search.evaluate_batch(rows[-1]))
    assignments, values = np.concatenate(rows), np.concatenate(seconds)
    order = np.argsort(values, kind="stable")
    return assignments[order], values[order]


def rebuild(problem: Problem, assignment: IntArray, window: int, pull: float, rng: np.random.Generator) -> IntArray:
    """A list schedule that is drawn to `assignment` everywhere but in a stretch of the topological order.

    Outside of the stretch of `2 * window + 1` ops, devices other than the present one look `pull` times slower.
    """
    ops, devices = problem.op_time_s.shape
    position = np.argsort(problem.graph.topological_order)
    outside = np.abs(position - rng.integers(ops)) > window
    factors = np.exp(0.5 * NOISE * rng.normal(size=(ops, devices)))
    away = np.ones((ops, devices), dtype=np.bool_)
    away[np.arange(ops), assignment] = False
    factors[outside[:, None] & away] *= pull
    return list_schedule(
        problem,
        float(rng.choice(TRANSFER_FACTORS)),
        np.exp(0.5 * NOISE * rng.normal(size=ops)),
        ListScheduling(
            channels=bool(rng.integers(2)),
            memory_share=float(rng.choice(memory_shares(problem))),
            finish_noise=factors,
        ),
    )


def _constructions(problem: Problem, count: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Whole layers where they are known, plain list schedules, segments of a few orders, list schedules with noise."""
    shares = held_shares(problem)
    if (problem.graph.stages >= 0).any():
        yield expert_assignment(problem)
    yield from plain_schedules(problem, shares)
    for turn in range(1 + count // 50):
        yield from segment_assignments(problem, rng, turn)
    yield from islice(noisy_schedules(problem, rng, shares), count)


def _distinct(candidates: Iterator[IntArray], count: int) -> Iterator[IntArray]:
    seen: set[bytes] = set()
    for candidate in candidates:
        if len(seen) >= count:
            return
        key = candidate.tobytes()
        if key not in seen:
            seen.add(key)
            yield candidate
