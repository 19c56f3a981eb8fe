"""Searches of learned planners: a search with its policy, and stages that end at a share of the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.planners.search import BudgetExhausted, Search
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.search_trace import SearchTrace

__all__ = ["CountedRuntime", "PolicySearch", "ShareUsed", "used_share"]


class ShareUsed(Exception):
    """Ends a stage whose share of the budget is used up.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> search = Search(diamond(), Budget(10), "example", seed=0)
    >>> runtime = CountedRuntime(search, end_share=0.2)
    >>> runtime.evaluate_batch(np.array([[0, 0, 0, 0], [0, 0, 1, 1]])).round(3).tolist()
    [6.0, 4.001]
    >>> runtime.evaluate_batch(np.array([[0, 1, 0, 1]]))
    Traceback (most recent call last):
        ...
    gnnplace.planners.policy_search.ShareUsed
    """


@dataclass(frozen=True, eq=False)
class PolicySearch:
    """A search, the policy that steers it, and its source of chance.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> search = Search(diamond(), Budget(10), "example", seed=0)
    >>> asked = PolicySearch(search, policy_inputs(search.problem), build_policy(0), np.random.default_rng(0))
    >>> asked.search.remaining, asked.trace is None
    (10, True)
    """

    search: Search
    inputs: PolicyInputs
    network: PolicyNetwork
    rng: np.random.Generator
    trace: SearchTrace | None = None
    """Where it is written down what the policy is asked and what is drawn, if it is to learn from that."""


def used_share(search: Search) -> float:
    """Which share of the budget is gone, in evaluations or seconds, whichever is nearer its end.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> search = Search(diamond(), Budget(evaluations=4, seconds=1e9), "example", seed=0)
    >>> _ = search.evaluate_batch(np.array([[0, 0, 0, 0]]))
    >>> used_share(search)
    0.25
    """
    evaluations, seconds = search.budget.evaluations, search.budget.seconds
    return max(
        0.0 if evaluations is None else search.evaluations / max(1, evaluations),
        0.0 if seconds is None else search.wall_s / max(1e-9, seconds),
    )


@dataclass(frozen=True, eq=False)
class CountedRuntime:
    """A search's simulator for an environment: counts every evaluation, lookahead too, and ends a stage at a share of the budget.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> runtime = CountedRuntime(Search(diamond(), Budget(10), "example", seed=0))
    >>> runtime.evaluate_batch(np.array([[0, 0, 1, 1]])).round(3).tolist()
    [4.001]
    >>> runtime.evaluate_moves(np.array([0, 0, 0, 0]), np.array([2, 3]), np.array([1, 1])).round(3).tolist()
    [4.002, 6.001]
    >>> runtime.search.evaluations
    3
    """

    search: Search
    end_share: float = 1.0

    @property
    def lookahead_is_exact(self) -> bool:
        """A move's seconds are those of the moved placement."""
        return True

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds.

        Raises:
            ShareUsed: the stage's share is used up.
            BudgetExhausted: the budget is.
        """
        self._check()
        return self._complete(self.search.evaluate_batch(assignments))

    def evaluate_moves(self, assignment: IntArray, units: IntArray, devices: IntArray) -> FloatArray:
        """`[M]` penalised seconds; see `evaluate_batch`."""
        self._check()
        return self._complete(self.search.evaluate_moves(assignment, units, devices))

    def _check(self) -> None:
        if used_share(self.search) >= self.end_share:
            raise ShareUsed

    def _complete(self, seconds: FloatArray) -> FloatArray:
        # Placements beyond the budget have not been run, and their infinity must not be learned from.
        if not np.isfinite(seconds).all() and not self.search.remaining:
            raise BudgetExhausted
        return seconds
