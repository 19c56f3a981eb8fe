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
    """A stage has used its share of the budget."""


@dataclass(frozen=True, eq=False)
class PolicySearch:
    """A search and the policy that guides it."""

    search: Search
    inputs: PolicyInputs
    network: PolicyNetwork
    rng: np.random.Generator
    trace: SearchTrace | None = None
    """Record of the policy's inputs and moves, for learning from them; None records nothing."""


def used_share(search: Search) -> float:
    """Share of the budget that is used, in evaluations or in seconds, whichever is larger."""
    evaluations, seconds = search.budget.evaluations, search.budget.seconds
    return max(
        0.0 if evaluations is None else search.evaluations / max(1, evaluations),
        0.0 if seconds is None else search.wall_s / max(1e-9, seconds),
    )


@dataclass(frozen=True, eq=False)
class CountedRuntime:
    """The evaluator that an environment steps on: counts every evaluation, and ends a stage at its share of the budget."""

    search: Search
    end_share: float = 1.0

    @property
    def lookahead_is_exact(self) -> bool:
        """True: a move's seconds are those of the moved placement."""
        return True

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds.

        Raises:
            ShareUsed: the stage has used its share.
            BudgetExhausted: the budget has ended.
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
        # Placements beyond the budget were not evaluated; a learner must not learn from their infinite seconds.
        if not np.isfinite(seconds).all() and not self.search.remaining:
            raise BudgetExhausted
        return seconds
