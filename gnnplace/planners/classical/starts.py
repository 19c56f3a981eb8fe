"""Where local searches begin: the better of the best single device and HEFT."""

from __future__ import annotations

from gnnplace.arrays import IntArray
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.single import single_device_assignments
from gnnplace.planners.search import BudgetExhausted, Search

__all__ = ["best_start"]


def best_start(search: Search) -> tuple[IntArray, float]:
    """The assignment `[N]` to begin with and its penalised seconds; a few evaluations.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(), "example", seed=0) as search:
    ...     assignment, seconds = best_start(search)
    >>> assignment.tolist(), round(seconds, 3), search.evaluations
    ([0, 0, 1, 1], 4.001, 2)

    Raises:
        BudgetExhausted: not one evaluation was left.
    """
    search.evaluate_batch(single_device_assignments(search.problem))
    evaluate_heft(search)
    if search.best is None:
        raise BudgetExhausted
    search.stage("start")
    return search.best.assignment, search.best_s
