"""A local search in which the policy says which units are worth revisiting and where they may go.

One move at a time is drawn from the policy's odds of moving over staying, over all units at once; it moves one unit or a
cluster of neighbours, or exchanges units of two devices; other moves rebuild a stretch of the placement, without the policy.
A few moves are drawn and evaluated together, and the best of them is taken or left. Acceptance is that of simulated annealing.
Temperatures are chosen by the evaluations that there are for each possible move, a unit and another device: low ones where they
are few and best spent on going down, higher ones where they are many.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections import deque
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.planners.learned.moves import Moves, MovesConfig, Proposal
from gnnplace.planners.learned.policy_search import CountedRuntime, PolicySearch, used_share
from gnnplace.planners.search import Search
from gnnplace.training.search_trace import SearchTrace

__all__ = ["RevisitConfig", "revisit"]


@dataclass(frozen=True)
class RevisitConfig:
    """How moves are drawn and accepted; set by measurement on generated graphs."""

    moves: MovesConfig = MovesConfig()
    cold: tuple[float, float] = (3e-3, 3e-4)
    """Temperatures, first and last, as fractions of the makespan, where there are few evaluations: best spent on going down."""
    hot: tuple[float, float] = (0.6, 0.15)
    """The same as fractions of a typical rise, where there are many: a search then may climb. A typical rise is the median of the
    last worsening moves."""
    evaluations_per_move: tuple[float, float] = (0.3, 3.0)
    """What few and many are, for each (unit, other device) there is; in between temperatures rise geometrically."""
    lookahead: int = 4
    """Draws whose effects are looked at, and counted, before the best of them is taken or left. Nine generated problems, four seeds,
    1,000 evaluations: 8.5 % above the best known with 1, 8.4 % with 2, 9.1 % with 4, 7.9 % with 6, which seeds explain; with 4 it
    takes half the time, as a batch is cheaper than one by one, and the policy is asked less often."""
    remembered_rises: int = 64
    """How many worsening moves that median is of."""
    max_idle: int = 300
    """Draws of known placements in a row after which nothing new is expected."""


def revisit(
    policy_search: PolicySearch,
    start: tuple[IntArray, float],
    end_share: float,
    config: RevisitConfig,
    limit: int | None = None,
) -> None:
    """Searches from `start` (an assignment `[N]` and its seconds) until `end_share` of the budget, or `limit` evaluations, are gone."""
    search, rng = policy_search.search, policy_search.rng
    runtime, trace = CountedRuntime(search, end_share), policy_search.trace
    moves = Moves(policy_search, config.moves)
    (current, value), known = start, _Known()
    known.note(current, value)
    moves.odds.update(current)
    rises: deque[float] = deque(maxlen=config.remembered_rises)
    clock = _Clock(search, end_share, limit)
    warmth = _warmth(search, clock, config)
    while (done := clock.share_done()) < 1.0:
        drawn = _draw(moves, known, (current, value), min(config.lookahead, clock.left()), config.max_idle, trace)
        if drawn.fresh:
            seconds = runtime.evaluate_batch(np.stack([proposal.assignment for proposal in drawn.fresh]))
            if trace is not None:
                trace.evaluated(seconds.tolist())
            for proposal, after_s in zip(drawn.fresh, seconds.tolist(), strict=True):
                moves.learn(proposal.kind, after_s < value)
                known.note(proposal.assignment, after_s)
            chosen = int(seconds.argmin())
            candidate, after = drawn.fresh[chosen].assignment, float(seconds[chosen])
        elif drawn.better is not None:
            candidate, after = drawn.better
        else:
            return
        if value < after <= search.problem.worst_case_s:
            rises.append(after - value)
        temperature_s = _temperature_s(value, float(np.median(rises)) if rises else 0.0, done, warmth, config)
        if after <= value or (temperature_s > 0 and rng.random() < math.exp((value - after) / temperature_s)):
            current, value = candidate, after
            moves.odds.update(current)


@dataclass(frozen=True)
class _Drawn:
    """What was drawn from one placement."""

    fresh: list[Proposal]
    better: tuple[IntArray, float] | None
    """A known placement that is better than the current one: back from a detour."""


def _draw(
    moves: Moves, known: _Known, current: tuple[IntArray, float], count: int, max_idle: int, trace: SearchTrace | None
) -> _Drawn:
    """Up to `count` different candidates that are not known yet; fewer where `max_idle` draws in a row bring nothing new."""
    assignment, value = current
    fresh: list[Proposal] = []
    idle = 0
    while len(fresh) < count and idle < max_idle:
        proposal = moves.propose(assignment)
        if proposal is None:
            break
        before = known.recall(proposal.assignment)
        if before is None and not any(np.array_equal(proposal.assignment, other.assignment) for other in fresh):
            fresh.append(proposal)
            idle = 0
            if trace is not None:
                trace.proposed()
            continue
        idle += 1
        if trace is not None:
            trace.recalled()
        if before is not None and before < value and not fresh:  # walking among equals that are known would never end
            return _Drawn(fresh, (proposal.assignment, before))
    return _Drawn(fresh, None)


class _Clock:
    """Which part of the stage is over."""

    def __init__(self, search: Search, end_share: float, limit: int | None) -> None:
        self._search = search
        self._first = search.evaluations
        self._begin_share = used_share(search)
        self._end_share = end_share
        whole = search.budget.evaluations
        left = None if whole is None else max(0, math.ceil(end_share * whole) - search.evaluations)
        self.evaluations = limit if left is None else left if limit is None else min(left, limit)
        """At most so many; None where only seconds count."""

    def left(self) -> int:
        """Evaluations; as good as endless where only seconds count."""
        return sys.maxsize if self.evaluations is None else self.evaluations - (self._search.evaluations - self._first)

    def share_done(self) -> float:
        """From 0 to 1."""
        share = (used_share(self._search) - self._begin_share) / max(1e-9, self._end_share - self._begin_share)
        if self.evaluations is not None:
            share = max(share, (self._search.evaluations - self._first) / max(1, self.evaluations))
        return min(1.0, share)


def _warmth(search: Search, clock: _Clock, config: RevisitConfig) -> float:
    """From 0 where evaluations are few to 1 where they are many; a budget of seconds alone counts as many."""
    if clock.evaluations is None:
        return 1.0
    few, many = config.evaluations_per_move
    each = clock.evaluations / max(1, search.problem.num_moves)
    return math.log(min(max(each, few), many) / few) / math.log(many / few)


def _temperature_s(value_s: float, rise_s: float, done: float, warmth: float, config: RevisitConfig) -> float:
    """Seconds of worsening that are accepted with probability 1/e, when a part `done` of the stage is over."""
    cold_s, hot_s = (
        scale_s * first * (last / first) ** done
        for scale_s, (first, last) in ((value_s, config.cold), (rise_s or value_s * config.cold[0], config.hot))
    )
    return float(cold_s ** (1.0 - warmth) * hot_s**warmth)


class _Known:
    """Seconds of placements that this stage has evaluated: none is paid for twice."""

    def __init__(self) -> None:
        self._seconds: dict[bytes, float] = {}

    def note(self, assignment: IntArray, seconds: float) -> None:
        self._seconds[self._key(assignment)] = seconds

    def recall(self, assignment: IntArray) -> float | None:
        return self._seconds.get(self._key(assignment))

    def _key(self, assignment: IntArray) -> bytes:
        return hashlib.blake2b(assignment.tobytes(), digest_size=16).digest()
