"""Simulated annealing with moves of one unit: the bar for every learned planner."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.heuristic.starts import best_start
from gnnplace.planners.search import Search, Solution

__all__ = ["AnnealingConfig", "anneal", "plan"]


@dataclass(frozen=True)
class AnnealingConfig:
    """Kirkpatrick, Gelatt and Vecchi 1983, with temperatures from the moves of the instance."""

    sampled_moves: int = 64
    """Moves from the start whose effect sets the temperature, at most a tenth of what is left of the budget."""
    initial_acceptance: float = 1e-3
    """Chance of a median worsening move at the start; low, as the search begins at a good placement."""
    reheated_acceptance: float = 0.3
    """The same for the later cycles of a search that has time for several; each begins at the best placement so far."""
    cycle_evaluations_per_move: int = 25
    """A cycle has at least this many evaluations for each (unit, other device) there is."""
    final_ratio: float = 1e-2
    """Last temperature over first; cooling is geometric in evaluations (or seconds, whichever ends first)."""
    follow_neighbour: float = 0.8
    """Chance that a move goes to the device of a neighbour of the unit, else to any other device."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """From the better of `single` and `heft`, one move at a time, over the whole budget."""
    with Search(problem, budget, "annealing", seed) as search:
        assignment, value = best_start(search)
        anneal(search, assignment, value, np.random.default_rng(seed), AnnealingConfig())
    return search.solution()


def anneal(
    search: Search, assignment: IntArray, value: float, rng: np.random.Generator, config: AnnealingConfig
) -> None:
    """Searches until the budget ends; `value` are the penalised seconds of `assignment` `[N]`."""
    problem = search.problem
    movable = np.flatnonzero(problem.action_mask.sum(axis=1) > 1)
    if not movable.size:
        return
    moves = _Moves(problem, movable, config.follow_neighbour)
    clock = _Clock(search, config.unlimited_evaluations_per_unit * problem.num_units)
    scale_s = _typical_rise(search, assignment, value, moves, rng, config)
    cycles = max(1, clock.expected_evaluations() // (config.cycle_evaluations_per_move * moves.count))
    current, cycle = assignment.copy(), 0
    while (done := cycles * clock.share_done()) < cycles:
        if int(done) > cycle and search.best is not None:
            cycle, current, value = int(done), search.best.assignment.copy(), search.best_s
        acceptance = config.reheated_acceptance if cycle else config.initial_acceptance
        temperature_s = scale_s / -math.log(acceptance) * config.final_ratio ** (done - int(done))
        unit, device = moves.draw(current, rng)
        moved = current.copy()
        moved[problem.unit_ops[unit]] = device
        # A full evaluation: the move's cheaper one would first have to evaluate what it starts from.
        after = float(search.evaluate_batch(moved[None])[0])
        rise = after - value
        if rise <= 0 or (temperature_s > 0 and rng.random() < math.exp(-rise / temperature_s)):
            current, value = moved, after


class _Clock:
    """Which share of the budget has gone since the annealing began."""

    def __init__(self, search: Search, unlimited: int) -> None:
        budget = search.budget
        endless = budget.evaluations is None and budget.seconds is None
        self._search = search
        self._first = search.evaluations
        self._last = search.evaluations + unlimited if endless else budget.evaluations
        self._begin_s, self._end_s = search.wall_s, budget.seconds

    def expected_evaluations(self) -> int:
        """What the budget allows, by the rate so far where it only names seconds."""
        if self._last is not None:
            return self._last - self._first
        rate_per_s = self._search.evaluations / max(1e-9, self._search.wall_s)
        return int(rate_per_s * max(0.0, (self._end_s or 0.0) - self._begin_s))

    def share_done(self) -> float:
        """From 0 to 1."""
        shares = [0.0]
        if self._last is not None:
            shares.append((self._search.evaluations - self._first) / max(1, self._last - self._first))
        if self._end_s is not None:
            shares.append((self._search.wall_s - self._begin_s) / max(1e-9, self._end_s - self._begin_s))
        return max(shares)


class _Moves:
    """Draws one unit and another device for it."""

    def __init__(self, problem: Problem, movable: IntArray, follow_neighbour: float) -> None:
        self._problem, self._movable, self._follow = problem, movable, follow_neighbour
        producers, consumers = problem.graph.edges
        source, target = problem.unit_of_op[producers], problem.unit_of_op[consumers]
        ends = np.concatenate([source, target])
        order = np.argsort(ends, kind="stable")
        first_op = np.array([ops[0] for ops in problem.unit_ops], dtype=np.int64)
        self._neighbour_op = first_op[np.concatenate([target, source])[order]]
        self._offsets = np.searchsorted(ends[order], np.arange(problem.num_units + 1))
        self._first_op = first_op
        self.count = int((problem.action_mask[movable].sum(axis=1) - 1).sum())
        self._allowed = [np.flatnonzero(row) for row in problem.action_mask]

    def draw(self, assignment: IntArray, rng: np.random.Generator) -> tuple[int, int]:
        unit = int(self._movable[rng.integers(len(self._movable))])
        here = assignment[self._first_op[unit]]
        begin, end = self._offsets[unit], self._offsets[unit + 1]
        if end > begin and rng.random() < self._follow:
            device = assignment[self._neighbour_op[rng.integers(begin, end)]]
            if device != here and self._problem.action_mask[unit, device]:
                return unit, int(device)
        allowed = self._allowed[unit]
        choice = int(rng.integers(len(allowed) - 1))
        return unit, int(allowed[choice] if allowed[choice] < here else allowed[choice + 1])


def _typical_rise(
    search: Search, assignment: IntArray, value: float, moves: _Moves, rng: np.random.Generator, config: AnnealingConfig
) -> float:
    """Seconds that a median worsening move from `assignment` costs; 0 when none worsens."""
    count = min(config.sampled_moves, search.remaining // 10)
    if count < 1:
        return 0.0
    drawn = np.array([moves.draw(assignment, rng) for _ in range(count)], dtype=np.int64)
    rises: FloatArray = search.evaluate_moves(assignment, drawn[:, 0], drawn[:, 1]) - value
    # What does not fit is worse by a penalty that says nothing of the landscape.
    rises = rises[(rises > 0) & (rises + value <= search.problem.worst_case_s)]
    return float(np.median(rises)) if rises.size else 0.0
