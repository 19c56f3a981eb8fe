"""Training of the policy on traced searches: for `training`, and on the graph that is being placed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnplace.planners.budget import Budget
from gnnplace.planners.gnn.odds import PolicySearch
from gnnplace.planners.gnn.search import RevisitConfig, revisit
from gnnplace.planners.search import Search, ShareUsed
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

__all__ = ["FineTuningConfig", "fine_tune", "trace_searches"]


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
    search, updates = policy_search.search, list[SearchPpoUpdate]()
    optimizer = ppo_optimizer(policy_search.network, config.ppo.learning_rate)
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
            updates.append(search_ppo_update(policy_search.network, optimizer, [runs], config.ppo))
            if all(len(trace.seconds) < config.evaluations for trace in traces):
                break  # every search has met all placements in its reach
    return updates
