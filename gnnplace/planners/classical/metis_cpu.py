"""MinCut with the hosts among the devices."""

from __future__ import annotations

from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.metis import MetisConfig, metis_assignment
from gnnplace.planners.search import Search, Solution

__all__ = ["plan"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """As `metis`, but hosts take part too, each device with as much of the computation as its speed is of all speeds.

    That is what the baseline "Scotch" of Mirhoseini et al. (2017), section 4.2, is given, without its link costs.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "metis-cpu", seed) as search:
        search.evaluate(Placement(metis_assignment(problem, seed, hosts=True, config=MetisConfig())))
    return search.solution()
