"""m-ETF: memory-constrained earliest task first."""

from __future__ import annotations

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.earliest_task import earliest_task_schedule
from gnnplace.planners.classical.heft import evaluate_in_order
from gnnplace.planners.search import Search, Solution

__all__ = ["MEMORY_SHARES", "plan"]


MEMORY_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2)
"""Of every device's memory, one after the other until the placement fits when it runs."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The better of m-ETF's placement in its own order of ops, and the same placement in order of upward rank.

    Jeon et al. 2020 (Baechi), section 3, after Hwang et al. 1989: of all ops whose inputs exist and all devices with
    memory for them, the pair that can start first, one after the other. Departures: a transfer waits for the channels
    of this topology, not for one channel per device; where devices differ, a start counts as later by what the op takes
    longer there than on its fastest device (nothing changes where they do not differ); equal starts go to the op with
    the higher upward rank, as when a placement runs, and not in topological order; received copies count as memory. The
    schedule is built op by op, not by steps of a clock, so that ops without duration cannot stall it. Where the
    placement does not fit when it runs, it is built again with a smaller share of every memory.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "m-etf", seed) as search:
        evaluate_in_order(search, (earliest_task_schedule(problem, share) for share in MEMORY_SHARES))
    return search.solution()
