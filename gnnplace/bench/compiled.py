"""A problem whose compiled code is there, so that the seconds of a planner are the planner's alone."""

from __future__ import annotations

import numpy as np

from gnnplace.api.problem_setup import Setting
from gnnplace.evaluation import Problem, Proposals, WalkRequest
from gnnplace.placement import Placement

__all__ = ["compiled_problem"]


def compiled_problem(setting: Setting) -> Problem:
    """The setting's problem, whose evaluator and estimator have been asked once for each kind of answer."""
    problem = setting.problem()
    somewhere = np.argmax(problem.action_mask, axis=1)[problem.unit_of_op]
    problem.evaluator.evaluate(Placement(somewhere))
    problem.evaluator.evaluate_batch(somewhere[None])
    problem.estimator.evaluate_moves(somewhere, np.zeros(1, dtype=np.int64), somewhere[:1])
    request = WalkRequest(somewhere, 1, 0.0, 0.0, Proposals(0.0, 0.0, 1.0))
    problem.local_search.walk(request, np.random.default_rng(0))
    return problem
