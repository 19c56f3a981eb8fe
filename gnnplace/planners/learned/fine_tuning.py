"""Training on the graph at hand, inside a share of the budget: searches from the best placement so far, and PPO of what they drew."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from gnnplace.planners.learned.policy_search import PolicySearch, ShareUsed, used_share
from gnnplace.planners.learned.revisit.search import RevisitConfig, revisit
from gnnplace.training.search_ppo import SearchPpoConfig, SearchPpoUpdate, SearchRuns, ppo_optimizer, search_ppo_update
from gnnplace.training.search_trace import SearchTrace

__all__ = ["FineTuningConfig", "fine_tune"]


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
