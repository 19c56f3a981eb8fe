"""Simulated annealing with moves of units and of clusters: the bar for every learned planner."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem, Proposals, WalkRequest
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.starts import best_start
from gnnplace.planners.search import Search, Solution

__all__ = ["AnnealingConfig", "anneal", "plan"]


# About a tenth of a second between two looks at the clock; a move costs about as much as simulating so many ops.
_OPS_PER_WALK, _OPS_PER_MOVE = 2_000_000, 100
_SMALLEST_STEP = 1e-12


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
    proposals: Proposals = Proposals(follow_neighbour=0.8, cluster_share=0.5, mean_cluster=3.0)
    """How moves are drawn; shares of clusters between 0.3 and 0.8 differ less than seeds do."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """From the better of `single` and `heft`, one move after the other, over the whole budget.

    Kirkpatrick, Gelatt and Vecchi 1983. Departures: it begins at a good placement and so almost cold; it reheats only
    when the budget lets every move be tried some 50 times; half of the moves take a cluster of neighbours along, as single
    ones walk slowly where a chain should move as a whole (on ten graphs some 2 % less time after 500 evaluations and 1 %
    after 2,000 than with single moves alone).

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "annealing", seed) as search:
        assignment, value = best_start(search)
        anneal(search, assignment, value, np.random.default_rng(seed), AnnealingConfig())
    return search.solution()


def anneal(
    search: Search,
    assignment: IntArray,
    value: float,
    rng: np.random.Generator,
    config: AnnealingConfig,
    proposals_at: Callable[[IntArray], Proposals] | None = None,
) -> None:
    """Searches until the budget ends; `value` are the penalised seconds of `assignment` `[N]`.

    `proposals_at` is asked, about ten times a second, how moves from the present assignment shall be drawn; None: as in `config`.

    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(50), "annealing", seed=0) as search:
    ...     anneal(search, np.array([0, 0, 0, 0]), 6.0, np.random.default_rng(0), AnnealingConfig())
    >>> round(search.best_s, 3), search.evaluations
    (4.001, 50)
    """
    problem = search.problem
    if not problem.num_moves:
        return
    proposals_at = proposals_at or (lambda _: config.proposals)
    moves, asked_at = _Moves(search, rng, proposals_at(assignment)), assignment
    clock = _Clock(search, config.unlimited_evaluations_per_unit * problem.num_units)
    cycle, scale_s = 0, _sampled_rise_s(moves, assignment, value, clock, config)
    cycles = max(1, clock.expected_evaluations() // (config.cycle_evaluations_per_move * problem.num_moves))
    while (done := cycles * clock.share_done()) < cycles:
        if int(done) > cycle and search.best is not None:
            cycle, assignment, value = int(done), search.best.assignment, search.best_s
        now_s = temperature_s(scale_s, done, config)
        if assignment is not asked_at:
            moves, asked_at = replace(moves, proposals=proposals_at(assignment)), assignment
        if problem.evaluator.kind == "measured":
            assignment, value = moves.execute(assignment, value, now_s)
        else:
            per_evaluation = cycles * clock.share_per_evaluation()
            in_cycle = math.ceil((int(done) + 1 - done) / max(per_evaluation, _SMALLEST_STEP))
            count = min(in_cycle, max(1, _OPS_PER_WALK // (problem.local_search.ops_per_evaluation + _OPS_PER_MOVE)))
            last_s = now_s * config.final_ratio ** min(1.0, count * per_evaluation)
            assignment = moves.walk(assignment, count, now_s, last_s)


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


def _sampled_rise_s(moves: _Moves, assignment: IntArray, value: float, clock: _Clock, config: AnnealingConfig) -> float:
    """The typical rise of a few moves from the start."""
    after_s: list[float] = []
    while len(after_s) < config.sampled_moves and clock.share_done() < config.sampled_share:
        after_s.append(moves.draw(assignment)[1])
    # What does not fit is worse by a penalty that says nothing of the landscape.
    return typical_rise_s(value, np.array(after_s), moves.search.problem.worst_case_s)


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

    def share_per_evaluation(self) -> float:
        """How much an evaluation adds to `share_done`, by the rate so far where seconds are what ends first."""
        shares = [0.0]
        made = self._search.evaluations - self._first
        if self._last is not None:
            shares.append(1.0 / max(1, self._last - self._first))
        if self._end_s is not None and made:
            shares.append((self._search.wall_s - self._begin_s) / made / max(1e-9, self._end_s - self._begin_s))
        return max(shares)

    def share_done(self) -> float:
        """From 0 to 1."""
        shares = [0.0]
        if self._last is not None:
            shares.append((self._search.evaluations - self._first) / max(1, self._last - self._first))
        if self._end_s is not None:
            shares.append((self._search.wall_s - self._begin_s) / max(1e-9, self._end_s - self._begin_s))
        return max(shares)


@dataclass(frozen=True, eq=False)
class _Moves:
    """Random moves of a search, all from one source of chance: thousands at a time in the simulator, else one by one."""

    search: Search
    rng: np.random.Generator
    proposals: Proposals

    def draw(self, assignment: IntArray) -> tuple[IntArray, float]:
        """`[N]` an assignment one move away, and its penalised seconds; one evaluation."""
        moved = self.search.problem.local_search.propose(assignment, self.proposals, self.rng)
        # A full evaluation: the move's cheaper one would first have to evaluate what it starts from.
        return moved, float(self.search.evaluate_batch(moved[None])[0])

    def execute(self, assignment: IntArray, value: float, temperature_s: float) -> tuple[IntArray, float]:
        """Where one move leads, and its seconds; the same again where it is not accepted."""
        moved, after = self.draw(assignment)
        rise = after - value
        accepted = rise <= 0 or (temperature_s > 0 and self.rng.random() < math.exp(-rise / temperature_s))
        return (moved, after) if accepted else (assignment, value)

    def walk(self, assignment: IntArray, evaluations: int, first_s: float, last_s: float) -> IntArray:
        """Where so many moves lead, while the temperature falls."""
        request = WalkRequest(assignment, evaluations, first_s, last_s, self.proposals)
        return self.search.walk(request, self.rng).assignment
