"""A compiled walk from the best placement so far, whose moves begin more often where the policy expects a gain."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Proposals
from gnnplace.planners.classical.annealing import AnnealingConfig, anneal
from gnnplace.planners.gnn.moves import KINDS, Candidates, Moves, MovesConfig
from gnnplace.planners.gnn.odds import MoveOdds, OddsConfig
from gnnplace.planners.metropolis import SearchClock, accepts, cooled_s
from gnnplace.planners.policy_search import CountedRuntime, PolicySearch
from gnnplace.planners.search import Search, Step

__all__ = ["RevisitConfig", "WalkConfig", "revisit", "walk"]


@dataclass(frozen=True)
class WalkConfig:
    """How moves are drawn; all else is annealing's."""

    policy_share: float = 0.5
    """Of the moves, those that begin where the policy likes them; the others begin anywhere, so that nothing is left out."""
    annealing: AnnealingConfig = AnnealingConfig()


def walk(policy_search: PolicySearch, config: WalkConfig) -> None:
    """Anneals from the best so far until the budget ends; evaluations must be simulated.

    >>> import numpy as np
    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.planners.search import Search
    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(40), "example", seed=0) as search:
    ...     _ = search.evaluate_batch(np.array([[0, 0, 0, 0]]))
    ...     inputs, rng = policy_inputs(search.problem), np.random.default_rng(0)
    ...     walk(PolicySearch(search, inputs, build_policy(0), rng), WalkConfig())
    >>> search.evaluations, round(search.best_s, 3)
    (40, 4.001)
    """
    search, asked = policy_search.search, MoveOdds(policy_search, OddsConfig())
    assert search.best is not None
    annealing, units = config.annealing, search.problem.num_units

    def proposals_at(assignment: IntArray) -> Proposals:
        asked.update(assignment)
        table = asked.odds.table
        liked = table.by_unit / max(table.by_unit.sum(), 1e-300)  # nothing is where no device can be reached
        weights = config.policy_share * liked + (1.0 - config.policy_share) / units
        return replace(annealing.proposals, unit_weights=weights, device_weights=table.likely)

    anneal(search, search.best.assignment, search.best_s, policy_search.rng, annealing, proposals_at)


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
    1,000 evaluations: 8.5 % above the best known with 1, 8.4 % with 2, 9.1 % with 4, 7.9 % with 6, which seeds explain. With 4 it
    takes five eighths of the time (held-out graphs), as a batch is cheaper than one by one, and the policy is asked less often."""
    remembered_rises: int = 64
    """How many worsening moves that median is of."""


def revisit(
    policy_search: PolicySearch,
    start: tuple[IntArray, float],
    end_share: float,
    config: RevisitConfig,
    limit: int | None = None,
) -> None:
    """Searches from `start` (an assignment `[N]` and its seconds) until `end_share` of the budget, or `limit` evaluations, are gone.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(40), "example", seed=0) as search:
    ...     asked = PolicySearch(search, policy_inputs(search.problem), build_policy(0), np.random.default_rng(0))
    ...     revisit(asked, (np.array([0, 0, 0, 0]), 6.0), 1.0, RevisitConfig())
    >>> round(search.best_s, 3), search.evaluations  # there are no more than 16 placements
    (4.001, 15)
    """
    search, rng, trace = policy_search.search, policy_search.rng, policy_search.trace
    runtime, unit_of_op = CountedRuntime(search, end_share), search.problem.unit_of_op
    moves = Moves(policy_search, config.moves, config.lookahead)
    current_s = start[1]
    moves.asked.update(start[0])
    moves.note(moves.asked.odds.devices, current_s)
    rises: deque[float] = deque(maxlen=config.remembered_rises)
    clock = SearchClock(search, end_share, limit)
    warmth = _warmth(search, clock, config)
    while (done := clock.share_done) < 1.0:
        drawn = moves.draw(min(config.lookahead, clock.evaluations_left), current_s)
        best_s = search.best_s
        if len(drawn.devices):
            seconds = runtime.evaluate_batch(drawn.devices[:, unit_of_op])
            if trace is not None:
                trace.evaluated(seconds.tolist())
            moves.learn(drawn, seconds.tolist(), current_s)
            chosen = int(seconds.argmin())
            devices, after_s = drawn.devices[chosen], float(seconds[chosen])
            if after_s < best_s:
                search.steps.append(_step(search, moves.asked.odds.devices, drawn, chosen, (best_s, after_s)))
        elif drawn.better_devices is not None:
            devices, after_s = drawn.better_devices, drawn.better_s
        else:
            return
        if current_s < after_s <= search.problem.worst_case_s:
            rises.append(after_s - current_s)
        temperature_s = _temperature_s(current_s, statistics.median(rises) if rises else 0.0, done, warmth, config)
        if accepts(current_s, after_s, temperature_s, rng):
            current_s = after_s
            moves.asked.update(devices[unit_of_op])


def _step(search: Search, before: IntArray, drawn: Candidates, chosen: int, seconds: tuple[float, float]) -> Step:
    """What was changed `before` `[U]`, and how likely the policy had drawn it; `seconds` are the best before and after it."""
    after, log_prob = drawn.devices[chosen], float(drawn.log_probs[chosen])
    units = np.flatnonzero(before != after)
    return Step(
        search.evaluations, KINDS[drawn.kinds[chosen]], *seconds, units, before[units], after[units],
        None if math.isnan(log_prob) else math.exp(log_prob), 1.0 / search.problem.num_moves,
    )  # fmt: skip


def _warmth(search: Search, clock: SearchClock, config: RevisitConfig) -> float:
    """From 0 where evaluations are few to 1 where they are many; a budget of seconds alone counts as many."""
    if clock.max_evaluations is None:
        return 1.0
    few, many = config.evaluations_per_move
    each = clock.max_evaluations / max(1, search.problem.num_moves)
    return math.log(min(max(each, few), many) / few) / math.log(many / few)


def _temperature_s(value_s: float, rise_s: float, done: float, warmth: float, config: RevisitConfig) -> float:
    """Seconds of worsening that are accepted with probability 1/e, when a part `done` of the stage is over."""
    cold_s, hot_s = (
        cooled_s(scale_s * first, last / first, done)
        for scale_s, (first, last) in ((value_s, config.cold), (rise_s or value_s * config.cold[0], config.hot))
    )
    return float(cold_s ** (1.0 - warmth) * hot_s**warmth)
