"""Torch on one thread, as for the policy's tests, and a problem to train on."""

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.training.search_ppo import TrainingProblem
from tests.policy.conftest import one_thread

__all__ = ["on_first_device", "one_thread"]


def on_first_device(problem: Problem, name: str = "toy") -> TrainingProblem:
    """A problem whose searches start with all ops on the first device."""
    start = np.zeros(problem.graph.num_ops, dtype=np.int64)
    seconds = float(problem.penalised_batch_s(problem.evaluator.evaluate_batch(start[None]))[0])
    return TrainingProblem(name, problem, start, seconds)
