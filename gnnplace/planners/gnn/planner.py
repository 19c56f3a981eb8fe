"""The improver: the best of several starts, a search that the policy guides, then a compiled one; training on request."""

import math
from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.annealing import anneal
from gnnplace.planners.classical.constructions import evaluate_starts, heft_lacks_memory, starts_within
from gnnplace.planners.classical.estimates import Revise
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.gnn.builds import DECIDED_AGAIN, PolicyBuilder
from gnnplace.planners.gnn.execution import ExecutionConfig, plan_measured
from gnnplace.planners.gnn.multilevel import MultilevelConfig, search_levels
from gnnplace.planners.gnn.odds import PolicySearch
from gnnplace.planners.gnn.search import FineTuningConfig, RevisitConfig, WalkConfig, fine_tune, revisit, walk
from gnnplace.planners.gnn.stretch import Rebuilds
from gnnplace.planners.search import BudgetExhausted, Search, ShareUsed
from gnnplace.planners.solution import Budget, Solution
from gnnplace.policy.checkpoint import Policy, named_policy
from gnnplace.policy.network import PolicyNetwork, one_thread, policy_inputs

_REVISIONS = 14  # of each selected placement; list scheduling makes those that the policy cannot make
_LEAST_BUILDS = 32  # schedules that the policy builds, of which those with the best estimates are evaluated


@dataclass(frozen=True)
class GnnConfig:
    """Share of the budget that each stage may use; a stage leaves the rest of its share to those after it."""

    max_starts: int = 100
    """Most placements built as starts; small budgets allow fewer (`starts_within`)."""
    revised_evaluations: int = 2000
    """Most evaluations of a budget with which constructions are revised by their estimates, which takes about half a second. On 53
    development cases without limits of memory, three seeds: 2.9, 2.2, 1.9, 1.6 and 0.5 % shorter with 1, 5, 20, 50 and 200
    evaluations. On 58 cases, three seeds, 0.4 and 0.3 % with 1,000 and 2,000 (standard errors 0.2 and 0.3), and nothing without a
    trained policy. Graphs that are searched level by level are revised within `few_evaluations` only."""
    few_evaluations: int = 500
    """Most evaluations of a budget with which candidates are screened, and graphs of medium size are searched at once."""
    fine_tuning_share: float = 0.0
    """Share of the evaluations or seconds for training on this graph. Nine generated problems, three seeds, 5,000 evaluations: 3.7 %
    above the best known without, 4.6 % with 0.3, which takes more than twice the time."""
    fine_tuning: FineTuningConfig = FineTuningConfig()
    revisit_evaluations_per_unit: int = 20
    """Evaluations per unit before the compiled walk. On nine generated problems on which searches differ, 5,000 evaluations, three
    seeds, ended 6.0 % above the best known with 8, 3.7 % with 20, 3.5 % with 60, which takes nearly twice as long."""
    revisit_pairs: int = 6_000_000
    """Evaluations before the walk, times pairs of a unit and a device: after each accepted move the policy scores all pairs, so
    large graphs reach the walk sooner."""
    least_evaluations_per_unit: int = 2
    """Least evaluations per unit before the walk, however large the graph is."""
    revisit_share: float = 0.2
    """Share of the remaining seconds for the guided search, where seconds are limited: the walk makes six to forty times as
    many evaluations in a second. Against `annealing-portfolio`, on development cases without limits of memory, one seed, `policy_share` 0.8:
    after a second 0.8 % shorter with 0.2, 0.6 % with 0.1 and without a guided search (63 cases); after 10 s 0.9 % with 0.3, 0.8 %
    with 0.1, 0.5 % without (32 cases). With 0.8, the default of an earlier version, `gnn` was 1.2 % longer after a second."""
    least_revisit_s: float = 0.1
    """Least seconds of the guided search, which is left out where its share is smaller. That made results 0.2 % shorter after 0.3 s (63 cases)."""
    least_policy_s: float = 0.2
    """Budgets of fewer seconds use no policy, whose first scores take 10 to 40 ms: after 0.1 s `gnn` was 2.0 % longer than
    `annealing-portfolio` with a policy (63 cases, three seeds)."""
    revisit: RevisitConfig = RevisitConfig(screened=48)
    """Settings of the guided search. Candidates are screened within `few_evaluations`. 58 development cases, one seed: 0.6, 0.7 and 1.1 %
    shorter with 20, 50 and 200 evaluations than unscreened."""
    walk: WalkConfig = WalkConfig()
    policy: str | Path | Policy = "shipped"
    """A policy, its name, see `gnnplace.policy.POLICIES`, or the file of a trained one."""
    execution: ExecutionConfig = ExecutionConfig()
    """Settings where evaluations are executions; the other fields then apply to searches in the simulator."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


def plan(
    problem: Problem,
    budget: Budget,
    seed: int,
    config: GnnConfig = GnnConfig(),
    multilevel: MultilevelConfig = MultilevelConfig(),
) -> Solution:
    """The best placement seen by any stage; never worse than the best start.

    Budgets of about 100 evaluations and more evaluate every single device and HEFT as starts.

    Stages, noted in the solution: `starts`, `fine-tuning` if it has a share, `revisit`, `walk`; large graphs (`MultilevelConfig`)
    are searched level by level, which adds `schedules`, `coarsest`, and numbers of units. Where evaluations are executions, all
    stages run in the simulator, and `plan_measured` executes few placements, the best single device among them.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001

    Raises:
        InvalidPolicy: the policy file cannot be used.
        GnnplaceError: a policy without weights is to be fine-tuned.
    """
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    network = config.policy if isinstance(config.policy, Policy) else named_policy(config.policy)
    if config.fine_tuning_share and not isinstance(network, PolicyNetwork):
        raise GnnplaceError(
            f"the policy {config.policy!r} has no weights to train; leave fine_tuning_share at 0, or choose another"
        )
    if config.fine_tuning_share:
        network = deepcopy(network)
    if problem.evaluator.kind == "measured":
        # Executions wait for these searches and correct them, so short ones are enough; a simulation takes less than an estimate.
        quick = replace(
            config,
            revisit_evaluations_per_unit=config.least_evaluations_per_unit,
            revised_evaluations=min(config.revised_evaluations, config.few_evaluations),
        )
        planner = partial(plan, config=_unscreened(quick), multilevel=multilevel)
        return plan_measured(problem, budget, seed, network, planner, config.execution)
    is_short = budget.seconds is not None and budget.seconds < config.least_policy_s
    guide = None if is_short and not config.fine_tuning_share else network
    rng = np.random.default_rng(seed)
    evaluations = math.inf if budget.evaluations is None else budget.evaluations
    is_few = evaluations <= config.few_evaluations
    config = replace(config, max_starts=starts_within(budget, config.max_starts))
    if not is_few:
        config = _unscreened(config)
    # With few evaluations, all ops of medium graphs are better searched than groups, as long as that takes seconds.
    at_once = problem.graph.num_ops <= multilevel.more_ops_than or (
        is_few and problem.num_units <= multilevel.whole_units
    )
    revises = evaluations <= config.revised_evaluations and (is_few or at_once)
    improve = partial(_improve, network=guide, config=config, revises=revises)

    def search_all(search: Search, rng: np.random.Generator) -> None:
        tuned = replace(config, fine_tuning_share=0.0)
        _search_from_best(search, rng, guide, tuned, heft_lacks_memory(problem))

    with Search(problem, budget, "gnn", seed) as search, one_thread():
        if at_once:
            improve(search, rng)
        else:
            search_levels(search, rng, improve, search_all, multilevel)
    return search.solution()


def _unscreened(config: GnnConfig) -> GnnConfig:
    return replace(config, revisit=replace(config.revisit, screened=0))


def _improve(
    search: Search, rng: np.random.Generator, network: Policy | None, config: GnnConfig, revises: bool
) -> None:
    """Runs all stages, each from the best placement so far, until the budget ends; without a policy only those that need none.

    Where it `revises`, constructions are revised by their estimates.
    """
    built: Iterable[ListSchedule] = ()
    revisers = list[Revise]()
    if network is not None and search.problem.num_moves:
        # Constructions use the same random numbers with any policy.
        for_builder, for_rebuilds = rng.spawn(2)
        builder = None
        if isinstance(network, PolicyNetwork) and network.decides:
            builder = PolicyBuilder(search.problem, network, for_builder)
            built = builder.schedules(max(_LEAST_BUILDS, config.max_starts))
        if revises:
            by_policy: list[Revise] = [] if builder is None else [builder.revisions]
            by_lists = Rebuilds(search.problem, for_rebuilds, _REVISIONS - DECIDED_AGAIN * len(by_policy))
            revisers = [by_lists.revisions, *by_policy]
    starts = evaluate_starts(search, config.max_starts, rng, built, revisers)
    search.stage("starts")
    if np.isfinite(starts.seconds).any():
        _search_from_best(search, rng, network, config, starts.is_tight)


def _search_from_best(
    search: Search, rng: np.random.Generator, network: Policy | None, config: GnnConfig, is_tight: bool
) -> None:
    """Runs the guided search and the walk from the best placement so far, until the budget ends."""
    if not search.problem.num_moves:
        return
    policy_search = None
    if network is not None:
        policy_search = PolicySearch(search, policy_inputs(search.problem), network, rng)
        _guided(policy_search, config)
    num_placements = math.prod(search.problem.action_mask.sum(axis=1).tolist())
    if search.remaining and num_placements > search.evaluations:
        annealing = config.walk.annealing.where_tight(is_tight)
        assert search.best is not None
        with suppress(BudgetExhausted):
            if policy_search is None:
                anneal(search, search.best.assignment, search.best_s, rng, annealing)
            else:
                walk(policy_search, replace(config.walk, annealing=annealing))
        search.stage("walk")


def _guided(policy_search: PolicySearch, config: GnnConfig) -> None:
    """Training on request, and the guided search in its share of the budget."""
    search = policy_search.search
    if config.fine_tuning_share:
        end_share = min(1.0, search.used_share + config.fine_tuning_share)
        fine_tune(policy_search, end_share, config.fine_tuning, config.revisit)
        search.stage("fine-tuning")
    end_share = 1.0
    if search.budget.seconds is not None:
        begin_share = search.used_share
        end_share = begin_share + config.revisit_share * (1.0 - begin_share)
        if (end_share - begin_share) * search.budget.seconds < config.least_revisit_s:
            return
    assert search.best is not None
    limit = _revisit_limit(search.problem, config)
    with suppress(ShareUsed):  # seconds can run out at any step; the walk has its own share
        revisit(policy_search, (search.best.assignment, search.best_s), end_share, config.revisit, limit)
    search.stage("revisit")


def _revisit_limit(problem: Problem, config: GnnConfig) -> int:
    """Evaluations of the guided search before the walk."""
    affordable = config.revisit_pairs // (problem.num_units * problem.topology.num_devices)
    affordable = max(affordable, config.least_evaluations_per_unit * problem.num_units)
    return min(affordable, config.revisit_evaluations_per_unit * problem.num_units)
