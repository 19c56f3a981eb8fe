"""HEFT: heterogeneous earliest finish time."""

from collections.abc import Iterable

from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution

MEMORY_AND_ACTIVATION_SHARES = ((None, 0.0), (1.0, 0.0), (0.9, 0.1), (0.9, 0.3), (0.9, 1.0), (0.5, 0.0), (0.5, 1.0))
"""Pairs of `ScheduleOptions.memory_share` and `activation_share`, tried in turn until the placement fits."""


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The placement of HEFT: upward ranks from mean costs, earliest finish time with insertion.

    Topcuoglu, Hariri and Wu 2002, section 4. Departures:

    - A tensor is sent once per device, however many ops there read it.
    - Colocation groups follow their first op.
    - An op that waited pays the dispatch overhead, and one with inputs to receive pays the segment overhead.
    - Only devices that may run the op are candidates.
    - HEFT ignores memory. Where its placement does not fit, devices whose weights (and a growing share of their
      activations) would fill more than a share of their memory are no candidates, with stricter shares until it fits.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "heft", seed) as search:
        evaluate_heft(search)
    return search.solution()


def evaluate_heft(search: Search, seen: Seen | None = None) -> int | None:
    """Evaluates HEFT's placement and, while none fits, its memory-aware variants, each distinct one once.

    Adds them to `seen`. Returns the index in `MEMORY_AND_ACTIVATION_SHARES` of the one that fits, None where none does.
    """
    seen = seen or Seen()
    for index, (memory_share, activation_share) in enumerate(MEMORY_AND_ACTIVATION_SHARES):
        options = ScheduleOptions(memory_share=memory_share, activation_share=activation_share)
        assignment = list_schedule(search.problem, options).assignment
        # A placement that does not fit costs more than the worst case.
        if seen.add(assignment) and search.evaluate(Placement(assignment)) <= search.problem.worst_case_s:
            return index
    return None


def evaluate_in_order(search: Search, schedules: Iterable[ListSchedule]) -> None:
    """Evaluates schedules in their own order of ops until one fits, and that placement in order of upward rank too."""
    assignment = None
    for schedule in schedules:
        assignment = schedule.assignment
        if search.evaluate(Placement(assignment, schedule.priorities)) <= search.problem.worst_case_s:
            break
    if assignment is not None:
        search.evaluate(Placement(assignment))
