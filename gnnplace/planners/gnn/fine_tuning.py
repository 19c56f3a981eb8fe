"""Searches by a policy, written down so that the policy can learn from them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnplace.planners.budget import Budget
from gnnplace.planners.gnn.search import RevisitConfig, revisit
from gnnplace.planners.policy_search import PolicySearch, ShareUsed, used_share
from gnnplace.planners.search import Search
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.problems import TrainingProblem
from gnnplace.training.search_ppo import SearchPpoConfig, SearchPpoUpdate, SearchRuns, ppo_optimizer, search_ppo_update
from gnnplace.training.search_trace import SearchTrace

__all__ = ["FineTuningConfig", "fine_tune", "trace_searches"]


def trace_searches(
    network: PolicyNetwork,
    inputs: PolicyInputs,
    exercise: TrainingProblem,
    evaluations: int,
    seeds: list[int],
    config: RevisitConfig = RevisitConfig(),
) -> SearchRuns:
    """The searches that `gnn` would make from the start of `exercise`, one per seed.

    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> exercise = TrainingProblem("diamond", diamond(), np.array([0, 0, 0, 0]), 6.0)
    >>> runs = trace_searches(build_policy(0), policy_inputs(exercise.problem), exercise, evaluations=8, seeds=[0, 1])
    >>> runs.best_s.shape, runs.best_s[:, [0, -1]].round(3).tolist()  # seconds before the first evaluation and after each
    ((2, 9), [[6.0, 4.001], [6.0, 4.001]])
    """
    traces = []
    for seed in seeds:
        trace = SearchTrace()
        with Search(exercise.problem, Budget(evaluations), "gnn", seed) as search, torch.no_grad():
            policy_search = PolicySearch(search, inputs, network, np.random.default_rng(seed), trace)
            revisit(policy_search, (exercise.start, exercise.start_s), 1.0, config)
        traces.append(trace)
    return SearchRuns(inputs, exercise.start_s, evaluations, config.moves.odds.repeat_penalty, traces)


@dataclass(frozen=True)
class FineTuningConfig:
    """How much is searched between two updates."""

    searches: int = 6
    """From the same start, which are compared with each other."""
    evaluations: int = 60
    """Of each search."""
    ppo: SearchPpoConfig = SearchPpoConfig(learning_rate=5e-4)
    """`num_updates` says nothing here: the share of the budget does."""


def fine_tune(
    policy_search: PolicySearch, end_share: float, config: FineTuningConfig, revisit_config: RevisitConfig
) -> list[SearchPpoUpdate]:
    """Trains the policy in place until `end_share` of the budget is gone; gives what the updates saw.

    What the searches find counts like all else; each batch of them begins at the best placement so far, and its last one may be cut short.

    >>> import numpy as np
    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.planners.search import Search
    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(40), "example", seed=0) as search:
    ...     _ = search.evaluate_batch(np.array([[0, 0, 0, 0]]))
    ...     inputs, rng = policy_inputs(search.problem), np.random.default_rng(0)
    ...     few = FineTuningConfig(searches=2, evaluations=4)
    ...     updates = fine_tune(PolicySearch(search, inputs, build_policy(0), rng), 0.5, few, RevisitConfig())
    >>> len(updates), search.evaluations, round(search.best_s, 3)
    (3, 20, 4.001)
    """
    search, updates = policy_search.search, list[SearchPpoUpdate]()
    optimizer = ppo_optimizer(policy_search.network, config.ppo.learning_rate)
    with suppress(ShareUsed):  # seconds run out between any two steps
        while used_share(search) < end_share:
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
                break  # each of them has seen all that is in reach
    return updates
