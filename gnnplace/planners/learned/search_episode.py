"""Searches by a policy, written down so that the policy can learn from them."""

from __future__ import annotations

import numpy as np
import torch

from gnnplace.planners.budget import Budget
from gnnplace.planners.learned.policy_search import PolicySearch
from gnnplace.planners.learned.revisit.search import RevisitConfig, revisit
from gnnplace.planners.search import Search
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.problems import TrainingProblem
from gnnplace.training.search_ppo import SearchRuns
from gnnplace.training.search_trace import SearchTrace

__all__ = ["trace_searches"]


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
