"""The hierarchical planner with groups that are drawn once: only the placer learns."""

from __future__ import annotations

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.papers.hierarchical.planner import HierarchicalConfig, plan_with
from gnnplace.planners.search import Solution

__all__ = ["plan"]


def plan(problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig = HierarchicalConfig()) -> Solution:
    """The ablation "random grouping" of Mirhoseini et al. 2018; all else as in `hierarchical`.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.002
    """
    return plan_with("hierarchical-random-grouping", "random", (problem, budget, seed), config)
