"""Placements that are good in the simulator, and different: what is worth an execution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Evaluator, Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.gnn.constructions import evaluate_starts
from gnnplace.planners.search import Planner, Search, Solution, Step

__all__ = ["Rehearsal", "RehearsalConfig", "rehearse"]


_LEAST_S = 0.05  # enough for a planner to evaluate something


@dataclass(frozen=True)
class RehearsalConfig:
    """How much is simulated before anything but a single device is executed."""

    searches: int = 3
    """With other seeds: they end at placements that are about as good and unlike each other. After 40 executions in distorted
    simulators of two networks, 3 led to 1.4 % less time than 2; eight runs each."""
    evaluations_per_unit: int = 30
    """Of all searches together."""
    max_simulated_ops: float = 5e7
    """Evaluations times ops, of all searches together. No limit in seconds, so that seeds repeat."""
    starts: int = 60
    """Placements that are built in one go; those that cross between devices less often than searches do may run faster."""
    share_of_seconds: float = 0.2
    """Of what is left of a budget that names seconds."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What came of it."""

    assignments: IntArray  # [P, N] of the searches and then of the starts, best first in each; distinct
    best_s: float
    """Simulated; a positive number also where nothing runs."""
    evaluations: int
    """Simulated."""
    steps: tuple[Step, ...] = ()
    """Of the best search."""


def rehearse(search: Search, planner: Planner, rng: np.random.Generator, config: RehearsalConfig) -> Rehearsal:
    """What a planner ends at with several seeds, and starts, on the simulated twin of a search's problem; executes nothing.

    >>> from gnnplace.planners.classical.annealing import plan
    >>> from gnnplace.sim.example import diamond
    >>> search = Search(diamond(), Budget(10), "example", seed=0)
    >>> found = rehearse(search, plan, np.random.default_rng(0), RehearsalConfig())
    >>> round(found.best_s, 3), found.evaluations > 100, search.evaluations
    (4.001, True, 0)

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    twin = _simulated_twin(search.problem)
    seconds = _seconds_each(search, config)
    rows = np.zeros((0, twin.graph.num_ops), dtype=np.int64)
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
    """Of the starts and of every search; None where the budget names none."""
    if search.budget.seconds is None:
        return None
    left_s = search.budget.seconds - search.wall_s
    return max(_LEAST_S, config.share_of_seconds * left_s / (config.searches + 1))


def _simulated_twin(problem: Problem) -> Problem:
    """The same problem with the estimator, which is a simulator, in place of executions."""
    simulator = problem.estimator
    assert isinstance(simulator, Evaluator), "what estimates schedules can evaluate placements"
    return replace(problem, evaluator=simulator)
