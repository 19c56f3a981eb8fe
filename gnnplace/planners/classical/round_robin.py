"""Devices in turn, regardless of times and transfers."""

from __future__ import annotations

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.search import Search, Solution

__all__ = ["plan"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """Units in topological order on devices in turn; a unit goes to the next device that may run it.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    units = np.empty(problem.num_units, dtype=np.int64)
    device = -1
    for unit, allowed in enumerate(problem.action_mask):
        device = (device + 1 + int(np.argmax(np.roll(allowed, -(device + 1))))) % len(allowed)
        units[unit] = device
    with Search(problem, budget, "round-robin", seed) as search:
        search.evaluate(Placement(units[problem.unit_of_op]))
    return search.solution()
