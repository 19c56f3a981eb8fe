"""The methods of the ladder and their budgets."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from gnnplace.evaluation import Problem
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.classical.constructions import evaluate_starts
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Planner, Solution
from gnnplace.policy import SHIPPED_POLICY

LEARNED, PRIOR, UNIFORM, UNTRAINED = "gnn", "gnn-prior", "gnn-uniform", "gnn-untrained"
_POLICIES: Mapping[str, str] = {UNIFORM: "uniform", PRIOR: "prior"}
METHODS = ("constructions", "annealing", "annealing-portfolio", UNTRAINED, UNIFORM, PRIOR, LEARNED)
"""Constructions alone, annealing from a simple start and from the best construction, and one search under four policies.

The untrained one is the network of the learned one with random weights, drawn by the seed of the run. It builds and revises as many
placements, so that what it lacks is due to weights alone.
"""
_FIRST_BATCH, _GROWTH = 10, 2


@dataclass(frozen=True)
class Limit:
    """A budget of evaluations or of seconds."""

    name: str
    evaluations: int | None = None
    seconds: float | None = None

    @property
    def budget(self) -> Budget:
        """The budget of a search."""
        return Budget(self.evaluations, self.seconds)


LIMITS: Mapping[str, Limit] = {
    limit.name: limit
    for limit in (
        *(Limit(str(number), evaluations=number) for number in (1, 5, 20, 50, 200, 1000, 2000)),
        *(Limit(f"{seconds:g}s", seconds=seconds) for seconds in (0.1, 1.0, 10.0)),
    )
}
"""Budgets by name: a number of evaluations, or of seconds with an `s`."""


def planner_of(method: str, policy: Path | None = None) -> Planner:
    """The planner of a method; `policy` replaces the shipped one of the learned row."""
    if method == "constructions":
        return plan_constructions
    if method == UNTRAINED:
        return plan_untrained
    if method not in (LEARNED, *_POLICIES):
        return load_planner(method)
    from gnnplace.planners.gnn.planner import GnnConfig, plan

    return partial(plan, config=GnnConfig(policy=_POLICIES.get(method, policy or SHIPPED_POLICY)))


def plan_untrained(problem: Problem, budget: Budget, seed: int) -> Solution:
    """`gnn` with random weights."""
    from gnnplace.planners.gnn.planner import GnnConfig, plan
    from gnnplace.policy.network import build_policy

    return plan(problem, budget, seed, GnnConfig(policy=build_policy(seed)))


def plan_constructions(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best of the constructions from which searches start; with seconds, more and more of them.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_constructions(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "constructions", seed) as search:
        if budget.seconds is None:
            evaluate_starts(search, search.remaining, rng)
        for turn in count() if budget.seconds is not None else ():
            evaluate_starts(search, _FIRST_BATCH * _GROWTH**turn, rng)
    return search.solution()
