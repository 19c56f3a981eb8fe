"""Simulated annealing with moves of units and of clusters: the bar for every learned planner."""

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
    """Temperatures come from the moves of the instance, all else was set by measurement on generated graphs."""

    sampled_moves: int = 64
    """Moves from the start whose effect sets the temperature."""
    sampled_share: float = 0.1
    """Of the budget; no more of it goes to them."""
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
    cluster_share: float = 0.5
    """Moves that take neighbours on the same device along; between 0.3 and 0.8 shares differ less than seeds do."""
    mean_cluster: float = 3.0
    """Mean number of units that such a move takes along, where there are so many."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """From the better of `single` and `heft`, one move after the other, over the whole budget.

    Kirkpatrick, Gelatt and Vecchi 1983. Departures: it begins at a good placement and so almost cold; it reheats only
    when the budget lets every move be tried some 50 times; half of the moves take a cluster of neighbours along, as single
    ones walk slowly where a chain should move as a whole (on ten graphs some 2 % less time after 500 evaluations and 1 %
    after 2,000 than with single moves alone).
    """
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
    moves = _Moves(problem, movable, rng, config)
    clock = _Clock(search, config.unlimited_evaluations_per_unit * problem.num_units)
    devices, cycle = assignment[moves.first_op], 0
    scale_s = _sampled_rise_s(search, devices, value, moves, clock, config)
    cycles = max(1, clock.expected_evaluations() // (config.cycle_evaluations_per_move * moves.count))
    while (done := cycles * clock.share_done()) < cycles:
        if int(done) > cycle and search.best is not None:
            cycle, devices, value = int(done), search.best.assignment[moves.first_op], search.best_s
        now_s = temperature_s(scale_s, done, config)
        moved = moves.draw(devices)
        # A full evaluation: the move's cheaper one would first have to evaluate what it starts from.
        after = float(search.evaluate_batch(moved[None, problem.unit_of_op])[0])
        rise = after - value
        if rise <= 0 or (now_s > 0 and rng.random() < math.exp(-rise / now_s)):
            devices, value = moved, after


def temperature_s(scale_s: float, done: float, config: AnnealingConfig) -> float:
    """The temperature after `done` cycles, from `scale_s`, the rise that its acceptance is stated for.

    >>> config = AnnealingConfig(initial_acceptance=math.exp(-2), final_ratio=0.01)
    >>> [round(temperature_s(6.0, done, config), 9) for done in (0.0, 0.5)]
    [3.0, 0.3]
    """
    acceptance = config.reheated_acceptance if done >= 1 else config.initial_acceptance
    return scale_s / -math.log(acceptance) * math.pow(config.final_ratio, done % 1)


def typical_rise_s(before_s: float, after_s: FloatArray, limit_s: float) -> float:
    """Seconds by which the median worsening move is worse, of those whose `after_s` is within the limit; 0 without any.

    >>> typical_rise_s(10.0, np.array([9.0, 11.0, 10.0, 14.0, 12.0, 99.0]), limit_s=50.0)
    2.0
    """
    worse = after_s[(after_s > before_s) & (after_s <= limit_s)]
    return float(np.median(worse)) - before_s if worse.size else 0.0


def _sampled_rise_s(
    search: Search, devices: IntArray, value: float, moves: _Moves, clock: _Clock, config: AnnealingConfig
) -> float:
    """The typical rise of a few moves from the start."""
    after_s: list[float] = []
    while len(after_s) < config.sampled_moves and clock.share_done() < config.sampled_share:
        moved = moves.draw(devices)
        after_s.append(float(search.evaluate_batch(moved[None, search.problem.unit_of_op])[0]))
    # What does not fit is worse by a penalty that says nothing of the landscape.
    return typical_rise_s(value, np.array(after_s), search.problem.worst_case_s)


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
    """Draws one unit, at times with a cluster around it, and another device for them."""

    def __init__(self, problem: Problem, movable: IntArray, rng: np.random.Generator, config: AnnealingConfig) -> None:
        self._mask, self._movable, self._rng, self._config = problem.action_mask, movable, rng, config
        source, target = (problem.unit_of_op[ends] for ends in problem.graph.edges)
        pairs = np.stack([np.concatenate([source, target]), np.concatenate([target, source])])
        pairs = np.unique(pairs[:, pairs[0] != pairs[1]], axis=1)
        rows = np.split(pairs[1], np.searchsorted(pairs[0], np.arange(1, problem.num_units)))
        # Lists, as a move looks at a few of them only.
        self._neighbours: list[list[int]] = [row.tolist() for row in rows]
        self._allowed = [np.flatnonzero(row) for row in problem.action_mask]
        self.first_op = np.array([ops[0] for ops in problem.unit_ops], dtype=np.int64)
        """`[U]`: where it is, the whole unit is."""
        self.count = int((problem.action_mask[movable].sum(axis=1) - 1).sum())
        """(unit, other device) pairs."""

    def draw(self, devices: IntArray) -> IntArray:
        """`[U]` devices after a random move from `devices` `[U]`."""
        unit = int(self._movable[self._rng.integers(len(self._movable))])
        device = self._target(unit, devices)
        cluster = self._cluster(unit, devices) if self._rng.random() < self._config.cluster_share else [unit]
        moved = devices.copy()
        for member in cluster:
            if self._mask[member, device]:
                moved[member] = device
        return moved

    def _target(self, unit: int, devices: IntArray) -> int:
        here, neighbours = devices[unit], self._neighbours[unit]
        if neighbours and self._rng.random() < self._config.follow_neighbour:
            device = devices[neighbours[self._rng.integers(len(neighbours))]]
            if device != here and self._mask[unit, device]:
                return int(device)
        allowed = self._allowed[unit]
        choice = int(self._rng.integers(len(allowed) - 1))
        return int(allowed[choice] if allowed[choice] < here else allowed[choice + 1])

    def _cluster(self, unit: int, devices: IntArray) -> list[int]:
        """A random connected set of units on the unit's device, itself first."""
        missing = int(self._rng.geometric(1.0 / self._config.mean_cluster))
        on, members, border = devices.tolist(), [unit], [unit]
        while border and missing:
            around = self._neighbours[border.pop(int(self._rng.integers(len(border))))]
            fresh = [member for member in around if on[member] == on[unit] and member not in members]
            if len(fresh) > missing:
                fresh = [fresh[index] for index in self._rng.permutation(len(fresh))[:missing].tolist()]
            missing -= len(fresh)
            members += fresh
            border += fresh
        return members
