"""The guided search in compiled code makes the same steps as the one that steps the decision process."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnplace.api import set_up
from gnnplace.evaluation import Problem
from gnnplace.planners.gnn import compiled_revisit
from gnnplace.planners.gnn.compiled_loop import Loop, kind_of, loop_of
from gnnplace.planners.gnn.planner import GnnConfig, plan
from gnnplace.planners.gnn.search import RevisitConfig
from gnnplace.planners.search import BudgetExhausted, CompiledPart, Search
from gnnplace.planners.solution import Budget, Solution
from gnnplace.sim.example import diamond

PROBLEMS = {
    "plain": ("zoo:layered_200", "k40x2", {}),
    "groups": ("zoo:inception_v3", "k40x4", {"max_groups": 40}),
    "shared cores": ("zoo:layered_200", "epyc-corex4", {"max_groups": 60}),
    "tight memory": ("zoo:nmt_2", "k40x2@150MiB", {"max_groups": 60}),
    "throughput": ("zoo:series_parallel_200", "k40x2+p100", {"objective": "throughput"}),
}


def problem_named(name: str) -> Problem:
    model, devices, options = PROBLEMS[name]
    setup = set_up(model, devices, **options)  # type: ignore[arg-type]
    return replace(setup, num_threads=1).problem()


def step_by_step(problem: Problem, budget: Budget, seed: int, config: GnnConfig = GnnConfig()) -> Solution:
    """The search without compiled steps: its evaluator is no longer the one that gives schedules."""
    apart = replace(problem, evaluator=OtherEvaluator(problem))
    assert apart.compiled_simulator() is None
    return plan(apart, budget, seed, config)


class OtherEvaluator:
    """The same evaluations from another object."""

    kind = "simulated"

    def __init__(self, problem: Problem) -> None:
        self.evaluate, self.evaluate_batch = problem.evaluator.evaluate, problem.evaluator.evaluate_batch


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("evaluations", [60, 700])
def test_compiled_steps_are_those_of_the_decision_process(name: str, evaluations: int) -> None:
    problem = problem_named(name)
    assert problem.compiled_simulator() is not None
    config = GnnConfig(revisit=RevisitConfig(screened=0))  # screened searches have no compiled steps
    compiled, stepped = (run(problem, Budget(evaluations), 3, config) for run in (plan, step_by_step))
    assert [(at, value) for at, _, value in compiled.history] == [(at, value) for at, _, value in stepped.history]
    assert compiled.placement.assignment.tolist() == stepped.placement.assignment.tolist()
    assert compiled.evaluations == stepped.evaluations == evaluations
    assert len(compiled.steps) == len(stepped.steps)
    for one, other in zip(compiled.steps, stepped.steps, strict=True):
        assert (one.evaluations, one.kind, one.before_s, one.after_s) == (
            other.evaluations,
            other.kind,
            other.before_s,
            other.after_s,
        )
        assert one.probability == pytest.approx(other.probability)
        assert all(np.array_equal(*pair) for pair in zip(one.change, other.change, strict=True))


def test_some_search_improves_by_steps_of_the_policy() -> None:
    found = plan(problem_named("plain"), Budget(700), 3)
    assert any(step.probability is not None for step in found.steps)


def test_small_problems_end_when_no_move_is_new() -> None:
    compiled, stepped = (run(diamond(), Budget(5000), 0) for run in (plan, step_by_step))
    assert compiled.evaluations == stepped.evaluations < 100
    assert compiled.objective_s == stepped.objective_s


def test_seconds_end_the_compiled_search_and_leave_some_to_the_walk() -> None:
    problem = problem_named("plain")
    plan(problem, Budget(5000), 0)  # compiles everything, also the walk, which would take the seconds
    for seconds in (2.0, 10.0, 40.0):  # longer where the machine stood still for the walk's share
        found = plan(problem, Budget(None, seconds), 0)
        assert found.wall_s >= seconds
        if (stages := [name for name, _ in found.stages]) == ["starts", "revisit", "walk"]:
            break
    assert stages == ["starts", "revisit", "walk"]


def test_progress_comes_while_compiled_code_searches() -> None:
    seen: list[int] = []
    plan(problem_named("plain"), Budget(3000, on_progress=lambda progress: seen.append(progress.evaluations)), 0)
    assert len(seen) >= 5
    assert seen == sorted(seen)


def test_large_graphs_on_several_threads_are_evaluated_in_batches() -> None:
    setup = set_up("zoo:nmt_2:training", "k40x2", max_groups=50)
    assert replace(setup, num_threads=2).problem().compiled_simulator() is not None
    wide = set_up("zoo:nmt_8:training", "k40x2", max_groups=50)
    assert replace(wide, num_threads=2).problem().compiled_simulator() is None
    assert replace(wide, num_threads=1).problem().compiled_simulator() is not None


def test_compiled_evaluations_count_against_the_budget_and_what_is_not_used_is_given_back() -> None:
    start, better = np.array([0, 0, 0, 0]), np.array([0, 0, 1, 1])
    with Search(diamond(), Budget(10), "test", 0) as search:
        search.evaluate_batch(start[None])
        search.evaluate_compiled(6, lambda count: CompiledPart(count - 2, [(2, 5.0, better), (3, 4.5, start)]))
        assert (search.evaluations, search.remaining) == (5, 5)
        assert [(at, value) for at, _, value in search.history] == [(1, 6.0), (3, 5.0), (4, 4.5)]
        search.evaluate_compiled(99, lambda count: CompiledPart(count, []))
        assert search.evaluations == 10
        with pytest.raises(BudgetExhausted):
            search.evaluate_compiled(1, lambda count: pytest.fail("no evaluation is left"))


def test_a_setup_that_crossed_to_another_host_needs_no_other_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives there lies in read-only buffers; to compile the loop for other kinds of arrays would take minutes."""
    setup = replace(set_up("zoo:layered_200", "k40x4"), num_threads=1)
    buffers: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(setup, protocol=5, buffer_callback=buffers.append)
    arrived = pickle.loads(sent, buffers=[bytes(buffer.raw()) for buffer in buffers])
    kinds = []

    def noted(simulator: Any, *changed: Any) -> Loop:
        kinds.append(kind_of((simulator.whole, simulator.groups, *changed)))
        return loop_of(simulator, *changed)

    monkeypatch.setattr(compiled_revisit, "loop_of", noted)
    for each in (setup, arrived):
        plan(each.problem(), Budget(60), 0, GnnConfig(revisit=RevisitConfig(screened=0)))
    assert len(kinds) == 2
    assert kinds[0] == kinds[1]
