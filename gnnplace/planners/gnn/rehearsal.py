"""Candidates for execution: placements that are good in the simulator, and unlike each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Evaluator, Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.gnn.constructions import evaluate_starts
from gnnplace.planners.search import Planner, Search, Solution, Step

__all__ = ["Rehearsal", "RehearsalConfig", "rehearse"]


_LEAST_S = 0.05  # enough for a planner to evaluate a few placements


@dataclass(frozen=True)
class RehearsalConfig:
    """Amount of simulation before anything but a single device is executed."""

    searches: int = 3
    """Searches with different seeds, which end at placements about as good and unlike each other. After 40 executions in distorted
    simulators of two networks, 3 led to 1.4 % less time than 2; eight runs each."""
    evaluations_per_unit: int = 30
    """Evaluations per unit of all searches together."""
    max_simulated_ops: float = 5e7
    """Evaluations times ops of all searches together; not a limit in seconds, so that a seed repeats its answer."""
    starts: int = 60
    """Placements built without search; they cross between devices less often than those of searches and may run faster."""
    share_of_seconds: float = 0.2
    """Share of the remaining seconds, where the budget limits them."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Placements to execute, and the effort of finding them."""

    assignments: IntArray  # [P, N] distinct; the searches' answers, then the starts, each best first
    best_s: float
    """Simulated seconds of the best placement; positive even where nothing fits."""
    evaluations: int
    """Simulated evaluations."""
    steps: tuple[Step, ...] = ()
    """Steps of the best search."""


def rehearse(search: Search, planner: Planner, rng: np.random.Generator, config: RehearsalConfig) -> Rehearsal:
    """Runs a planner with several seeds, and builds starts, on the simulated twin of a search's problem; executes nothing.

    Raises:
        KeyboardInterrupt: the rehearsal was interrupted.
    """
    twin = _simulated_twin(search.problem)
    seconds = _seconds_each(search, config)
    rows = np.zeros((0, twin.graph.num_ops), dtype=np.int64)  # an interrupt may end the block at any time
    with Search(twin, Budget(None, seconds), search.planner, search.seed) as starts:
        rows = evaluate_starts(starts, config.starts, rng)[0]
    interrupted, evaluations = starts.interrupted, starts.evaluations
    ops = max(1, twin.local_search.ops_per_evaluation)
    count = min(config.evaluations_per_unit * twin.num_units, int(config.max_simulated_ops / ops)) // config.searches
    solutions: list[Solution] = []
    for seed in rng.integers(2**31, size=config.searches).tolist():
        if not interrupted:
            solutions.append(planner(twin, Budget(max(1, count), seconds), seed))
            interrupted, evaluations = solutions[-1].interrupted, evaluations + solutions[-1].evaluations
    if interrupted:
        raise KeyboardInterrupt
    solutions.sort(key=lambda solution: solution.objective_s)
    distinct = {row.tobytes(): row for row in (*(solution.placement.assignment for solution in solutions), *rows)}
    best_s = solutions[0].objective_s
    return Rehearsal(
        np.array(list(distinct.values())), best_s if 0.0 < best_s < np.inf else twin.penalty[0], evaluations,
        solutions[0].steps,
    )  # fmt: skip


def _seconds_each(search: Search, config: RehearsalConfig) -> float | None:
    """Seconds for the starts and for every search; None where the budget has no limit of seconds."""
    if search.budget.seconds is None:
        return None
    left_s = search.budget.seconds - search.wall_s
    return max(_LEAST_S, config.share_of_seconds * left_s / (config.searches + 1))


def _simulated_twin(problem: Problem) -> Problem:
    """The same problem, evaluated by its estimator, which is a simulator, in place of executions."""
    simulator = problem.estimator
    assert isinstance(simulator, Evaluator), "the schedule estimator can also evaluate placements"
    return replace(problem, evaluator=simulator)
