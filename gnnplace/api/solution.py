"""A planner's solution on op groups, seen on the whole graph."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Evaluation
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.search import Planner, Solution
from gnnplace.run_record import PlannerRow
from gnnplace.sim.bounds import LowerBound
from gnnplace.sim.simulator import expanded

__all__ = ["LEARNED", "bound_of", "chosen_planner", "failed_row", "finite", "planned", "planner_row"]


LEARNED = "gnn"
"""The planner that can start from a trained policy."""


def chosen_planner(name: str, policy: str | Path | None = None) -> Planner:
    """The planner of this name, starting from another policy than the shipped one if that is given.

    Raises:
        GnnplaceError: no planner has this name, or it takes no policy.
        InvalidPolicy: the policy file cannot be used.
    """
    if policy is None:
        return load_planner(name)
    if name != LEARNED:
        raise GnnplaceError(f"planner {name!r} takes no policy; leave --policy out or choose {LEARNED!r}")
    from gnnplace.planners.gnn.planner import GnnConfig, plan

    return partial(plan, config=GnnConfig(policy=Path(policy)))


def finite(seconds: float) -> float | None:
    """JSON has no infinity: None stands for it."""
    return float(seconds) if np.isfinite(seconds) else None


def planned(setting: ProblemSetup, solution: Solution) -> tuple[Solution, Placement, Evaluation]:
    """A solution on the setting's op groups as a placement of every op, evaluated by the simulator of the whole graph."""
    placement = expanded(setting.coarsening, solution.placement)
    return solution, placement, setting.evaluator.evaluate(placement)


def bound_of(setting: ProblemSetup, solution: Solution) -> LowerBound:
    """Seconds that no placement of the whole graph can beat: the planner's proof where it says more than the setting."""
    # What a planner proves is about the first shape; it bounds the longest time of all shapes, and not their mean.
    proves = not setting.others or setting.dims_objective == "worst"
    proven_s = (solution.lower_bound_s or 0.0) if proves else 0.0
    return LowerBound(proven_s, f"proof by {solution.planner}") if proven_s > setting.bound.value_s else setting.bound


def planner_row(setting: ProblemSetup, solution: Solution, _: Placement, evaluation: Evaluation) -> PlannerRow:
    """One line of a comparison: simulated seconds of the whole graph."""
    seconds = evaluation.makespan_s if setting.objective == "latency" else evaluation.period_s
    bound = bound_of(setting, solution).value_s
    return {
        "planner": solution.planner,
        "makespan_s": finite(evaluation.makespan_s),
        "gap": finite(seconds / bound - 1.0) if bound > 0 else None,
        "evaluations": solution.evaluations,
        "wall_s": solution.wall_s,
        "feasible": evaluation.feasible,
        "error": None,
    }


def failed_row(planner: str, error: str, wall_s: float) -> PlannerRow:
    """The line of a planner that gave no placement."""
    return {
        "planner": planner, "makespan_s": None, "gap": None, "evaluations": 0, "wall_s": wall_s, "feasible": False, "error": error,
    }  # fmt: skip
