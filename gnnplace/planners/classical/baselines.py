"""The simplest placements: one device, devices in turn, and single moves until none helps."""

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.classical.constructions import best_start
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution


def plan_single(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best placement on a single device; ops that may not run there go to the fastest device that may run them.

    When no device holds the whole graph, the placement with the least shortfall of memory.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_single(diamond(), Budget(50), seed=0).objective_s, 3)
    6.0
    """
    with Search(problem, budget, "single", seed) as search:
        search.evaluate_batch(problem.single_device_assignments)
    return search.solution()


def plan_round_robin(problem: Problem, budget: Budget, seed: int) -> Solution:
    """Units in topological order on devices in turn; a unit goes to the next device that may run it.

    Of devices that share resources only those take part that can all compute at a time, where they may run the unit.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_round_robin(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    units = np.empty(problem.num_units, dtype=np.int64)
    device = -1
    taking_part = problem.action_mask & np.isin(np.arange(problem.topology.num_devices), problem.topology.apart)
    mask = np.where(taking_part.any(axis=1, keepdims=True), taking_part, problem.action_mask)
    for unit, allowed in enumerate(mask):
        device = (device + 1 + int(np.argmax(np.roll(allowed, -(device + 1))))) % len(allowed)
        units[unit] = device
    with Search(problem, budget, "round-robin", seed) as search:
        search.evaluate(Placement(units[problem.unit_of_op]))
    return search.solution()


def plan_greedy(problem: Problem, budget: Budget, seed: int) -> Solution:
    """From the better of `single` and `heft`: each unit in topological order to its best device, until no move helps.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_greedy(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "greedy", seed) as search:
        assignment, value, _ = best_start(search)
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
