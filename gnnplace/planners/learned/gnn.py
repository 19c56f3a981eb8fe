"""The improver: the best start of several, rollouts and training on this graph, then a search that the policy guides."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.learned.constructions import evaluate_starts
from gnnplace.planners.learned.episodes import EpisodesConfig, train_on_graph
from gnnplace.planners.learned.policy_search import PolicySearch, ShareUsed, one_thread, used_share
from gnnplace.planners.learned.revisit import RevisitConfig, revisit
from gnnplace.planners.search import Search, Solution
from gnnplace.policy.checkpoint import load_policy
from gnnplace.policy.network import build_policy, policy_inputs

__all__ = ["GnnConfig", "plan"]


@dataclass(frozen=True)
class GnnConfig:
    """Which share of the budget each stage may use; what a stage leaves goes to the last one."""

    max_starts: int = 100
    """Placements that are built in one go."""
    starts_share: float = 0.25
    episodes_share: float = 0.1
    """Rollouts of the policy, and training on them."""
    episodes: EpisodesConfig = EpisodesConfig()
    revisit: RevisitConfig = RevisitConfig()
    policy: Path | None = None
    """A trained policy to begin with; None: fresh weights, whose choices follow the head's prior."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


def plan(problem: Problem, budget: Budget, seed: int, config: GnnConfig = GnnConfig()) -> Solution:
    """The best placement seen by any stage; never worse than the best start, and so never worse than `single` and `heft`.

    Stages, noted in the solution: `starts`, `episodes`, `revisit`.

    Raises:
        InvalidPolicy: the policy file cannot be used.
    """
    rng = np.random.default_rng(seed)
    network = build_policy(seed) if config.policy is None else load_policy(config.policy)[0]
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "gnn", seed) as search, one_thread():
        count = config.max_starts
        if budget.evaluations is not None:
            count = min(count, int(config.starts_share * budget.evaluations))
        assignments, seconds, single_s = evaluate_starts(search, count, rng)
        search.stage("starts")
        can_run = np.isfinite(seconds)
        if can_run.any() and (problem.action_mask.sum(axis=1) > 1).any():
            policy_search = PolicySearch(search, policy_inputs(problem), network, rng)
            reference_s = single_s if single_s <= problem.worst_case_s else float(seconds[0])
            end_share = used_share(search) + config.episodes_share
            starts = assignments[can_run], seconds[can_run]
            train_on_graph(policy_search, starts, reference_s, end_share, config.episodes)
            search.stage("episodes")
            assert search.best is not None
            with suppress(ShareUsed):  # seconds run out between any two steps
                revisit(policy_search, (search.best.assignment, search.best_s), 1.0, config.revisit)
            search.stage("revisit")
    return search.solution()
