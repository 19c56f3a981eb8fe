"""Candidates of the guided search that estimates choose."""

from typing import Any

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.estimates import estimated_s
from gnnplace.planners.gnn import search as guided_search
from gnnplace.planners.gnn.moves import Candidates, Moves
from gnnplace.planners.gnn.planner import GnnConfig, plan
from gnnplace.planners.gnn.search import RevisitConfig, trace_searches
from gnnplace.planners.solution import Budget
from gnnplace.policy.network import build_policy, policy_inputs
from gnnplace.training.search_ppo import TrainingProblem
from tests.problems import random_layers


def test_of_the_candidates_of_few_evaluations_those_with_the_best_estimates_are_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, drawn, evaluated = random_layers(2, num_ops=60), list[IntArray](), list[IntArray]()
    draw, learn = Moves.draw, Moves.learn

    def noted_draw(moves: Moves, count: int, current_s: float) -> Candidates:
        found = draw(moves, count, current_s)
        drawn.append(found.devices)
        return found

    def noted_learn(moves: Moves, candidates: Candidates, *arguments: Any) -> None:
        evaluated.append(candidates.devices)
        learn(moves, candidates, *arguments)

    monkeypatch.setattr(Moves, "draw", noted_draw)
    monkeypatch.setattr(Moves, "learn", noted_learn)
    assert plan(problem, Budget(40), 0, GnnConfig(revisit=RevisitConfig(screened=20))).evaluations == 40
    assert len(drawn) == len(evaluated) == 5  # half of the evaluations are starts
    for candidates, chosen in zip(drawn, evaluated, strict=True):
        assert (len(candidates), len(chosen)) == (20, 4)
        seconds = [estimated_s(problem, row[problem.unit_of_op]) for row in candidates]
        assert {row.tobytes() for row in chosen} == {candidates[at].tobytes() for at in np.argsort(seconds)[:4]}


@pytest.mark.parametrize(
    ("budget", "config"),
    [
        (501, GnnConfig()),
        (40, GnnConfig(revisit=RevisitConfig(screened=0))),
        (40, GnnConfig(revisit=RevisitConfig(screened=4))),
        (20, GnnConfig(few_evaluations=10)),
    ],
)
def test_many_evaluations_and_traced_searches_screen_nothing(
    budget: int, config: GnnConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guided_search, "estimated_s", None)
    problem = random_layers(2)
    assert plan(problem, Budget(budget), 0, config).evaluations == budget
    start = TrainingProblem("layers", problem, np.zeros(problem.graph.num_ops, dtype=np.int64), 1e3)
    trace_searches(build_policy(0), policy_inputs(problem), start, 30, [0], RevisitConfig(screened=20))


def test_of_large_graphs_fewer_candidates_are_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, counts = random_layers(2), list[int]()
    draw = Moves.draw

    def noted(moves: Moves, count: int, current_s: float) -> Candidates:
        counts.append(count)
        return draw(moves, count, current_s)

    monkeypatch.setattr(Moves, "draw", noted)
    for limit in (10**9, 30 * 5 * problem.graph.num_ops, problem.graph.num_ops):
        monkeypatch.setattr(guided_search, "_OPS_SCREENED", limit)
        monkeypatch.setattr(Problem, "compiled_simulator", lambda problem: None)
        plan(problem, Budget(40), 0)
    assert counts == [*[48] * 5, *[30] * 5, *[4] * 5]


def test_screened_searches_are_better_on_average() -> None:
    ratios = []
    for seed in range(6):
        problem = random_layers(seed, num_ops=60)
        screened, plain = (
            plan(problem, Budget(100), 0, GnnConfig(policy="prior", revisit=RevisitConfig(screened=count))).objective_s
            for count in (48, 0)
        )
        ratios.append(screened / plain)
    assert np.log(ratios).mean() < -0.005
