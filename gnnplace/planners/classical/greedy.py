"""Greedy one-step lookahead: the limit of local moves alone."""

from __future__ import annotations

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.heft import best_start
from gnnplace.planners.search import Search, Solution

__all__ = ["plan"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """From the better of `single` and `heft`: each unit in topological order to its best device, until no move helps.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "greedy", seed) as search:
        assignment, value = best_start(search)
        assignment = assignment.copy()
        unit, settled = 0, 0  # units in a row for which no move helped
        while settled < problem.num_units:
            ops = problem.unit_ops[unit]
            allowed = problem.action_mask[unit].copy()
            allowed[assignment[ops[0]]] = False
            devices = np.flatnonzero(allowed)
            settled += 1
            if devices.size:
                values = search.evaluate_moves(assignment, np.full(len(devices), unit), devices)
                best = int(np.argmin(values))
                if values[best] < value:
                    value, settled = float(values[best]), 0
                    assignment[ops] = devices[best]
            unit = (unit + 1) % problem.num_units
    return search.solution()
