"""Devices in turn: what one gets without thinking."""

from __future__ import annotations

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.search import Search, Solution

__all__ = ["plan"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """Units in topological order to devices in turn; a unit goes to the next device that may run it.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    num_devices = problem.topology.num_devices
    units = np.empty(problem.num_units, dtype=np.int64)
    turn = 0
    for unit in range(problem.num_units):
        units[unit] = next(
            d % num_devices for d in range(turn, turn + num_devices) if problem.action_mask[unit, d % num_devices]
        )
        turn = int(units[unit]) + 1
    with Search(problem, budget, "round-robin", seed) as search:
        search.evaluate(Placement(units[problem.unit_of_op]))
    return search.solution()
