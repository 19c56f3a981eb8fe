"""The guided search, which draws its moves from the policy, the compiled walk after it, and training on traced searches."""

import math
import statistics
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from gnnplace.arrays import IntArray
from gnnplace.env.process import PlacementProcess
from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.local_search import Proposals
from gnnplace.planners.classical.annealing import AnnealingConfig, anneal
from gnnplace.planners.classical.estimates import estimated_s
from gnnplace.planners.classical.list_schedule import on_all_cores
from gnnplace.planners.gnn.compiled_revisit import Stage, revisit_compiled
from gnnplace.planners.gnn.moves import KINDS, Candidates, Moves, MovesConfig
from gnnplace.planners.gnn.odds import MoveOdds, OddsConfig, PolicySearch
from gnnplace.planners.metropolis import SearchClock, accepts, cooled_s
from gnnplace.planners.search import Search, ShareUsed
from gnnplace.planners.solution import Budget, Change, Step
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.search_ppo import (
    SearchPpoConfig,
    SearchPpoUpdate,
    SearchRuns,
    TrainingProblem,
    ppo_optimizer,
    search_ppo_update,
)
from gnnplace.training.search_trace import SearchTrace

_OPS_SCREENED = 4_000_000  # single ops in all placements that one search estimates; one takes 0.1 to 0.4 microseconds


@dataclass(frozen=True)
class WalkConfig:
    """Settings of the walk; it is simulated annealing with other odds of units and devices."""

    policy_share: float = 0.5
    """Share of the moves that begin at units drawn by the policy's odds; the others begin at any unit."""
    annealing: AnnealingConfig = AnnealingConfig()


def walk(policy_search: PolicySearch, config: WalkConfig) -> None:
    """Anneals from the best placement so far until the budget ends; evaluations must be simulated."""
    search, move_odds = policy_search.search, MoveOdds(policy_search, OddsConfig())
    assert search.best is not None
    annealing, units, tables = config.annealing, search.problem.num_units, policy_search.inputs.tables
    timing = empty_timing(search.problem, 1)

    def proposals_at(assignment: IntArray) -> Proposals:
        refresh(search.problem, tables, timing, 0, assignment)
        move_odds.update(search.problem.unit_devices(assignment), timing)
        table = move_odds.odds.table
        by_policy = table.by_unit / max(table.by_unit.sum(), 1e-300)  # all odds are 0 where no device can be reached
        weights = config.policy_share * by_policy + (1.0 - config.policy_share) / units
        return replace(annealing.proposals, unit_weights=weights, device_weights=table.likely)

    anneal(search, search.best.assignment, search.best_s, policy_search.rng, annealing, proposals_at)


@dataclass(frozen=True)
class RevisitConfig:
    """Distribution and acceptance of moves; the defaults were measured on generated graphs."""

    moves: MovesConfig = MovesConfig()
    cold: tuple[float, float] = (3e-3, 3e-4)
    """First and last temperature, as fractions of the makespan, where evaluations are few: the search then only descends."""
    hot: tuple[float, float] = (0.6, 0.15)
    """First and last temperature where evaluations are many, as fractions of a typical rise: the median of the last worsening
    moves."""
    evaluations_per_move: tuple[float, float] = (0.3, 3.0)
    """Few and many evaluations, per pair of a unit and another device; in between temperatures are interpolated geometrically."""
    lookahead: int = 4
    """Candidates evaluated, and counted, before the search accepts or rejects the best of them. Nine generated problems, four seeds,
    1,000 evaluations: 8.5 % above the best known with 1, 8.4 % with 2, 9.1 % with 4, 7.9 % with 6, within the variation between seeds. With 4 a
    search takes five eighths of the time (held-out graphs): batches are cheaper, and the policy scores fewer placements."""
    screened: int = 0
    """Candidates drawn for each `lookahead`. Those with the best estimates by list schedules (`estimates.estimated_s`) are evaluated; the
    estimates are not counted. Fewer are drawn where ops or evaluations are many; 0 turns screening off."""
    remembered_rises: int = 64
    """Number of worsening moves in that median."""


def revisit(
    policy_search: PolicySearch,
    start: tuple[IntArray, float],
    end_share: float,
    config: RevisitConfig,
    limit: int | None = None,
) -> None:
    """Searches from `start` (an assignment `[N]` and its seconds) up to `end_share` of the budget, or for `limit` evaluations.

    All rows of the process are alternatives: each iteration proposes changes, steps them from the current placement, and keeps the
    best of them or takes the step back. Where evaluations are single simulations and nothing is traced, `revisit_compiled` makes
    the same steps in compiled code: from the same random numbers it finds the same placements.
    """
    search, rng, problem = policy_search.search, policy_search.rng, policy_search.search.problem
    clock = SearchClock(search, end_share, limit)
    warmth = _warmth(search, clock, config)
    screened = _screened(policy_search, clock, config)
    simulator = problem.compiled_simulator() if policy_search.trace is None and not screened else None
    if simulator is not None:
        revisit_compiled(policy_search, simulator, start, Stage(clock, end_share, warmth), config)
        return
    process = PlacementProcess(
        problem,
        lambda rows: search.evaluate_to_learn(rows, end_share),
        max(start[1], 1e-12),
        policy_search.inputs.tables,
    )
    begin = np.tile(problem.unit_devices(start[0]), (config.lookahead, 1))
    process.reset(begin, np.full(config.lookahead, start[1]))
    moves = Moves(policy_search, config.moves, max(config.lookahead, screened), warmth)
    moves.move_odds.update(process.devices[0], process.schedules(0), clock.known_evaluations_left)
    moves.note(process.devices[0], start[1])
    rises: deque[float] = deque(maxlen=config.remembered_rises)
    while (done := clock.share_done) < 1.0:
        before, before_s, best_s = process.devices[0], float(process.seconds[0]), min(start[1], search.best_s)
        count = min(config.lookahead, clock.evaluations_left)
        drawn = moves.draw(max(count, screened), before_s)
        if len(drawn.devices) > count:
            drawn = drawn.rows(_best_estimated(problem, drawn.devices, count))
        if len(drawn.devices):
            process.step(drawn.devices)
            seconds = process.seconds[: len(drawn.devices)]
            moves.learn(drawn, seconds.tolist(), before_s)
        elif drawn.better_devices is not None:
            seconds = np.array([drawn.better_s])
            process.step(drawn.better_devices[None], seconds)
        else:
            return
        chosen = int(seconds.argmin())
        after_s = float(seconds[chosen])
        if after_s < best_s:
            search.steps.append(_step(search, before, drawn, chosen, (best_s, after_s)))
        if before_s < after_s <= problem.worst_case_s:
            rises.append(after_s - before_s)
        temperature_s = _temperature_s(before_s, statistics.median(rises) if rises else 0.0, done, warmth, config)
        if accepts(before_s, after_s, temperature_s, rng):
            process.keep(chosen)
            moves.move_odds.update(process.devices[0], process.schedules(0), clock.known_evaluations_left)
        else:
            process.take_back()


def _screened(policy_search: PolicySearch, clock: SearchClock, config: RevisitConfig) -> int:
    """Candidates to estimate for each `lookahead` of them; 0 where none are screened."""
    if not config.screened or clock.max_evaluations is None or policy_search.trace is not None:
        return 0
    batches = max(1, math.ceil(clock.max_evaluations / config.lookahead))
    affordable = _OPS_SCREENED // (batches * max(1, policy_search.search.problem.over_ops.problem.graph.num_ops))
    screened = min(config.screened, affordable)
    return screened if screened > config.lookahead else 0


def _best_estimated(problem: Problem, devices: IntArray, count: int) -> IntArray:
    """The rows of `devices` `[C, U]` with the best estimates, in their order."""
    assignments = devices[:, problem.unit_of_op]
    seconds = list(on_all_cores(problem.over_ops.problem, partial(estimated_s, problem), assignments))
    return np.sort(np.argsort(seconds, kind="stable")[:count])


def _step(search: Search, before: IntArray, drawn: Candidates, chosen: int, seconds: tuple[float, float]) -> Step:
    """The accepted change of `before` `[U]` with its probability; `seconds` are the best before and after it."""
    after, log_prob = drawn.devices[chosen], float(drawn.log_probs[chosen])
    return Step(
        search.evaluations, KINDS[drawn.kinds[chosen]], *seconds, Change.between(before, after),
        None if math.isnan(log_prob) else math.exp(log_prob), 1.0 / search.problem.num_moves,
    )  # fmt: skip


def _warmth(search: Search, clock: SearchClock, config: RevisitConfig) -> float:
    """0 for few evaluations to 1 for many; a budget of seconds alone counts as many."""
    if clock.max_evaluations is None:
        return 1.0
    few, many = config.evaluations_per_move
    each = clock.max_evaluations / max(1, search.problem.num_moves)
    return math.log(min(max(each, few), many) / few) / math.log(many / few)


def _temperature_s(value_s: float, rise_s: float, done: float, warmth: float, config: RevisitConfig) -> float:
    """Temperature: seconds of worsening that are accepted with probability 1/e, after a share `done` of the stage."""
    cold_s, hot_s = (
        cooled_s(scale_s * first, last / first, done)
        for scale_s, (first, last) in ((value_s, config.cold), (rise_s or value_s * config.cold[0], config.hot))
    )
    return float(cold_s ** (1.0 - warmth) * hot_s**warmth)


def trace_searches(
    network: PolicyNetwork,
    inputs: PolicyInputs,
    start: TrainingProblem,
    evaluations: int,
    seeds: list[int],
    config: RevisitConfig = RevisitConfig(),
) -> SearchRuns:
    """Guided searches from a start, one per seed, with their traces."""
    traces = []
    for seed in seeds:
        trace = SearchTrace()
        with Search(start.problem, Budget(evaluations), "gnn", seed) as search, torch.no_grad():
            policy_search = PolicySearch(search, inputs, network, np.random.default_rng(seed), trace)
            revisit(policy_search, (start.start, start.start_s), 1.0, config)
        traces.append(trace)
    return SearchRuns(inputs, start.start_s, evaluations, config.moves.odds.repeat_penalty, traces)


@dataclass(frozen=True)
class FineTuningConfig:
    """Amount of searching between two updates."""

    searches: int = 6
    """Searches from the same start; advantages compare them with each other."""
    evaluations: int = 60
    """Evaluations of each search."""
    ppo: SearchPpoConfig = SearchPpoConfig(learning_rate=5e-4)
    """`num_updates` has no effect here: the share of the budget ends the training."""


def fine_tune(
    policy_search: PolicySearch, end_share: float, config: FineTuningConfig, revisit_config: RevisitConfig
) -> list[SearchPpoUpdate]:
    """Trains the policy in place until `end_share` of the budget is used; gives statistics of the updates.

    The searches count as evaluations and may find the best placement. Each batch starts at the best placement so far; the end of the
    share may cut the last batch short.
    """
    search, network, updates = policy_search.search, policy_search.network, list[SearchPpoUpdate]()
    assert isinstance(network, PolicyNetwork), "linear policies have no weights to train"
    optimizer = ppo_optimizer(network, config.ppo.learning_rate)
    with suppress(ShareUsed):  # seconds can run out at any step
        while search.used_share < end_share:
            assert search.best is not None
            start, start_s = search.best.assignment, search.best_s
            traces = [SearchTrace() for _ in range(config.searches)]
            for trace in traces:
                traced = replace(policy_search, trace=trace)
                revisit(traced, (start, start_s), end_share, revisit_config, config.evaluations)
            penalty = revisit_config.moves.odds.repeat_penalty
            runs = SearchRuns(policy_search.inputs, start_s, config.evaluations, penalty, traces)
            updates.append(search_ppo_update(network, optimizer, [runs], config.ppo))
            if all(len(trace.seconds) < config.evaluations for trace in traces):
                break  # every search has met all placements in its reach
    return updates
