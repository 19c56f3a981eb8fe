"""Everything on one device: the placement that every other planner has to beat."""

from __future__ import annotations

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.search import Search, Solution

__all__ = ["plan"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best placement on a single device; ops that may not run there go to the fastest device that may run them.

    When no device holds the whole graph, the placement with the least shortfall of memory.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    6.0
    """
    with Search(problem, budget, "single", seed) as search:
        search.evaluate_batch(problem.single_device_assignments)
    return search.solution()
