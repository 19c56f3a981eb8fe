"""Simulated annealing with moves of units and of clusters."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.local_search import Proposals, WalkRequest
from gnnplace.planners.classical.constructions import best_start, evaluate_starts, starts_within
from gnnplace.planners.metropolis import SearchClock, accepts, cooled_s
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution

# A compiled walk lasts about a tenth of a second, so that the search sees the clock and Ctrl-C between walks.
# Proposing a move costs about as much as simulating 100 ops.
_OPS_PER_WALK, _OPS_PER_MOVE = 2_000_000, 100
_SMALLEST_STEP = 1e-12


@dataclass(frozen=True)
class AnnealingConfig:
    """Hyper-parameters; the temperature follows from moves of the instance, the rest was measured on generated graphs."""

    sampled_moves: int = 64
    """Moves from the start whose effect sets the temperature."""
    sampled_share: float = 0.1
    """Largest share of the budget for these moves."""
    initial_acceptance: float = 1e-3
    """Chance to accept a median worsening move at the start; low, as the search begins at a good placement."""
    reheated_acceptance: float = 0.3
    """The same chance at the start of each later cycle, which begins at the best placement so far."""
    cycle_evaluations_per_move: int = 25
    """Least evaluations of a cycle for each (unit, other device) pair."""
    final_ratio: float = 1e-2
    """Last temperature over first; cooling is geometric in evaluations (or seconds, whichever ends first)."""
    proposals: Proposals = Proposals(follow_neighbour=0.8, cluster_share=0.5, mean_cluster=3.0)
    """Distribution of moves; cluster shares between 0.3 and 0.8 differ less than seeds do."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget is unlimited."""
    tight_exchange_share: float = 0.25
    """Fraction of moves that make room on the other device, where memory is tight: full devices take nothing else. Four such problems,
    four seeds, above the best known: 500 evaluations 33 % without exchanges, 25 % with; 2,000 22 and 18 %; 10,000 15 and 9 %."""

    def where_tight(self, is_tight: bool) -> Self:
        """This configuration with exchanges, if memory is tight."""
        if not is_tight:
            return self
        return replace(self, proposals=replace(self.proposals, exchange_share=self.tight_exchange_share))


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best placement of simulated annealing from the better of `single` and `heft`, over the whole budget.

    Kirkpatrick, Gelatt and Vecchi 1983. Departures: the search begins at a good placement and therefore almost cold; it
    reheats only when the budget allows some 50 trials of every move; half of the moves take a cluster of neighbours
    along, because single moves cross barriers slowly (on ten graphs, 2 % less time after 500 evaluations and 1 % after
    2,000 than with single moves alone).

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "annealing", seed) as search:
        start = best_start(search)
        config = AnnealingConfig().where_tight(start.is_tight)
        anneal(search, start.assignment, start.seconds, np.random.default_rng(seed), config)
    return search.solution()


def plan_portfolio(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best placement of simulated annealing from the best construction, with the starts of `gnn`.

    `starts_within` states how many evaluations go to constructions, and `evaluate_starts` which ones these are.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_portfolio(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "annealing-portfolio", seed) as search:
        starts = evaluate_starts(search, starts_within(budget), rng)
        search.stage("starts")
        config = AnnealingConfig().where_tight(starts.is_tight)
        anneal(search, starts.assignments[0], float(starts.seconds[0]), rng, config)
    return search.solution()


def anneal(
    search: Search,
    assignment: IntArray,
    value: float,
    rng: np.random.Generator,
    config: AnnealingConfig,
    proposals_at: Callable[[IntArray], Proposals] | None = None,
) -> None:
    """Anneals until the budget ends; where seconds alone limit it, by a chain on each core.

    Chains share the temperature. They begin each cycle at the best placement of all, and in the first cycle, which is almost cold,
    each walk: multiple Markov chains with periodic exchange (Lee and Lee 1996, "Synchronous and asynchronous parallel simulated
    annealing with multiple Markov chains").

    Args:
        search: Evaluates the moves and keeps the best placement.
        assignment: `[N]` start.
        value: Penalised seconds of the start.
        rng: Source of randomness.
        config: Hyper-parameters.
        proposals_at: Distribution of moves from an assignment; called before each compiled walk, about ten times a
            second, for one chain after the other. None: always `config.proposals`, which also set the temperature.
    """
    problem = search.problem
    if not problem.num_moves:
        return
    proposals_at = proposals_at or (lambda _: config.proposals)
    unlimited = config.unlimited_evaluations_per_unit * problem.num_units if search.budget.is_unlimited else None
    clock = SearchClock(search, max_evaluations=unlimited)

    def moved_from(assignment: IntArray, proposals: Proposals) -> tuple[IntArray, float]:
        # A full evaluation: the incremental one would first have to evaluate the assignment that it starts from.
        moved = problem.local_search.propose(assignment, proposals, rng)
        return moved, float(search.evaluate_batch(moved[None])[0])

    after_s: list[float] = []
    while len(after_s) < config.sampled_moves and clock.share_done < config.sampled_share:
        # Guided moves rise less, and a temperature from them can be too cold for the search to leave its start.
        after_s.append(moved_from(assignment, config.proposals)[1])
    # A placement that does not fit costs a penalty, which carries no information about the other moves.
    cycle, scale_s = 0, typical_rise_s(value, np.array(after_s), problem.worst_case_s)
    cycles = max(1, clock.expected_evaluations // (config.cycle_evaluations_per_move * problem.num_moves))
    chains, turn = [assignment] * chains_of(search), 0
    proposals, proposed_from = proposals_at(assignment), assignment
    while (done := cycles * clock.share_done) < cycles:
        if int(done) > cycle and search.best is not None:
            cycle, chains, value = int(done), [search.best.assignment] * len(chains), search.best_s
        now_s = temperature_s(scale_s, done, config)
        if chains[turn] is not proposed_from:
            proposals, proposed_from = proposals_at(chains[turn]), chains[turn]
        if problem.evaluator.kind == "measured":
            moved, moved_s = moved_from(chains[0], proposals)
            if accepts(value, moved_s, now_s, rng):
                chains, value = [moved], moved_s
        else:
            per_evaluation = cycles * clock.share_per_evaluation * len(chains)
            in_cycle = math.ceil((int(done) + 1 - done) / max(per_evaluation, _SMALLEST_STEP))
            count = min(in_cycle, max(1, _OPS_PER_WALK // (problem.local_search.ops_per_evaluation + _OPS_PER_MOVE)))
            last_s = now_s * config.final_ratio ** min(1.0, count * per_evaluation)
            requests = [WalkRequest(chain, count, now_s, last_s, proposals) for chain in chains]
            # One chain draws from `rng` itself, as it always did: stored results of a seed stay as they are.
            walks = search.walk_side_by_side(requests, rng) if len(chains) > 1 else [search.walk(requests[0], rng)]
            if cycle == 0:  # almost cold: chains hardly ever leave what they found, and the best one helps the others
                walks = [min(walks, key=lambda walk: walk.value_s)] * len(walks)
            chains, turn = [walk.assignment for walk in walks], (turn + 1) % len(chains)


def chains_of(search: Search) -> int:
    """Number of chains that anneal side by side.

    One per thread where seconds alone limit the search. Otherwise one, as the evaluations are shared out, and the same seed has to give
    the same answer on any machine.
    """
    is_timed = search.budget.seconds is not None and search.budget.evaluations is None
    return search.problem.local_search.num_threads if is_timed and search.problem.evaluator.kind == "simulated" else 1


def temperature_s(scale_s: float, done: float, config: AnnealingConfig) -> float:
    """Seconds of the temperature after `done` cycles, from `scale_s`, the rise that its acceptance is stated for."""
    acceptance = config.reheated_acceptance if done >= 1 else config.initial_acceptance
    return cooled_s(scale_s / -math.log(acceptance), config.final_ratio, done % 1)


def typical_rise_s(before_s: float, after_s: FloatArray, limit_s: float) -> float:
    """Seconds by which the median worsening move is worse, of those whose `after_s` is within the limit; 0 without any."""
    worse = after_s[(after_s > before_s) & (after_s <= limit_s)]
    return float(np.median(worse)) - before_s if worse.size else 0.0
