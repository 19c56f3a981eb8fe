"""Problems and searches as benches time them: compiled beforehand, and on real devices with measured costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnnplace.api.measuring import profiled
from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.api.workload import load_workload
from gnnplace.cost.measured import MeasuredCost
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Evaluation, Problem, Proposals, WalkRequest
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.search import Planner, Solution
from gnnplace.run_record import finite

__all__ = ["DOES_NOT_FIT", "PlannerRun", "compiled_problem", "failure_of", "real_setting", "run_planner"]  # fmt: skip

DOES_NOT_FIT = "does not fit into memory"


@dataclass(frozen=True, eq=False)
class PlannerRun:
    """One run of a planner, evaluated on the whole graph."""

    makespan_s: float | None
    """Seconds of one step; None without a feasible placement."""
    error: str | None
    """Reason for a missing makespan."""
    wall_s: float
    solution: Solution | None = None
    """None where the planner raised an error."""


def run_planner(
    setting: ProblemSetup, problem: Problem, load: Callable[[], Planner], budget: Budget, seed: int
) -> PlannerRun:
    """Runs a planner; its imports and the compilation of `problem` do not count as wall time.

    Args:
        setting: workload and devices of the problem.
        problem: the problem that the planner solves, from `compiled_problem`.
        load: gives the planner.
        budget: budget of the search.
        seed: seed of the search.

    Raises:
        MissingDependency: the planner needs a library that is not installed.
        KeyboardInterrupt: the search was interrupted; its answer is not a result.
    """
    begin_s = time.perf_counter()
    try:
        planner = load()
        begin_s = time.perf_counter()
        solution = planner(problem, budget, seed)
    except MissingDependency:
        raise
    except GnnplaceError as error:
        return PlannerRun(None, str(error), time.perf_counter() - begin_s)
    wall_s = time.perf_counter() - begin_s
    if solution.interrupted:
        raise KeyboardInterrupt
    _, evaluation = setting.evaluate_groups(solution.placement)
    seconds = finite(evaluation.makespan_s) if evaluation.feasible else None
    return PlannerRun(seconds, failure_of(evaluation), wall_s, solution)


def failure_of(evaluation: Evaluation) -> str | None:
    """Reason why a placement is infeasible; None for a feasible one."""
    if evaluation.feasible:
        return None
    return evaluation.failure or (DOES_NOT_FIT if evaluation.shortfall_bytes.any() else "cannot run on its devices")


def compiled_problem(setting: ProblemSetup) -> Problem:
    """The problem of a setting after one call of every compiled function that a planner may use."""
    problem = setting.problem()
    assignment = np.argmax(problem.action_mask, axis=1)[problem.unit_of_op]
    problem.evaluator.evaluate(Placement(assignment))
    problem.evaluator.evaluate_batch(assignment[None])
    problem.estimator.evaluate_moves(assignment, np.zeros(1, dtype=np.int64), assignment[:1])
    request = WalkRequest(assignment, 1, 0.0, 0.0, Proposals(0.0, 0.0, 1.0))
    problem.local_search.walk(request, np.random.default_rng(0))
    return problem


@lru_cache(maxsize=1)
def real_setting(model: str, devices: str) -> ProblemSetup:
    """A zoo model on real devices, with the costs that this machine measures for it."""
    workload, topology = load_workload(f"zoo:{model}", to_run=True), topology_of(devices)
    return ProblemSetup.build(workload, topology, MeasuredCost(profiled(workload, topology, seed=0)))
