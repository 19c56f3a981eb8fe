"""A compiled walk from the best placement so far, whose moves begin more often where the policy expects a gain."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Proposals
from gnnplace.planners.heuristic.annealing import AnnealingConfig, anneal
from gnnplace.planners.learned.policy_search import PolicySearch
from gnnplace.planners.learned.revisit.odds import MoveOdds, OddsConfig

__all__ = ["WalkConfig", "walk"]


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
