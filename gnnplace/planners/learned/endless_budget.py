"""An end for budgets that have none, for learners that would draw for ever."""

from __future__ import annotations

from dataclasses import replace

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget

__all__ = ["bounded"]


def bounded(budget: Budget, problem: Problem, evaluations_per_unit: int) -> Budget:
    """The budget itself, or if it limits neither evaluations nor seconds, one of `evaluations_per_unit` for every unit."""
    if budget.evaluations is not None or budget.seconds is not None:
        return budget
    return replace(budget, evaluations=evaluations_per_unit * problem.num_units)
