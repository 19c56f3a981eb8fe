"""Annealing: its temperatures, its moves, and optima that it has to find."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gnnplace.evaluation import Problem
from gnnplace.local_search import Proposals, Walk, WalkRequest
from gnnplace.placement import Placement
from gnnplace.planners.classical import annealing, heft
from gnnplace.planners.classical.annealing import AnnealingConfig, anneal, chains_of, temperature_s, typical_rise_s
from gnnplace.planners.classical.baselines import plan_single
from gnnplace.planners.search import BudgetExhausted, Search
from gnnplace.planners.solution import Budget, Progress
from gnnplace.sim.simulator import Simulator
from tests.problems import MeasuredLike, chain, devices_of, optimum_s, problem_of, random_layers, random_reads


def test_the_typical_rise_is_the_median_of_the_worsening_moves_that_fit() -> None:
    # Better, equal, three that are worse, one that does not fit, one that cannot run.
    after_s = np.array([7.0, 10.0, 11.0, 13.0, 18.0, 1000.0, np.inf])
    assert typical_rise_s(10.0, after_s, limit_s=100.0) == 3.0
    assert typical_rise_s(10.0, after_s[:2], limit_s=100.0) == 0.0
    assert typical_rise_s(10.0, np.array([]), limit_s=100.0) == 0.0


def test_a_typical_rise_is_accepted_as_often_as_stated_and_the_temperature_falls_by_the_ratio_in_every_cycle() -> None:
    config = AnnealingConfig(initial_acceptance=0.01, reheated_acceptance=0.25, final_ratio=1e-4)
    first, halfway, again = (temperature_s(3.0, done, config) for done in (0.0, 0.5, 1.0))
    assert math.exp(-3.0 / first) == pytest.approx(0.01)
    assert halfway == pytest.approx(first * 1e-2)
    assert math.exp(-3.0 / again) == pytest.approx(0.25)
    assert temperature_s(3.0, 2.5, config) == pytest.approx(again * 1e-2)
    assert temperature_s(0.0, 0.3, config) == 0.0


def test_a_cluster_move_crosses_a_barrier_that_single_moves_do_not() -> None:
    # Four seconds on the slow device or three on the fast one; any cut costs another second or more.
    problem = problem_of(chain(4), devices_of("dd"), [1.0, 0.75])
    cold = AnnealingConfig(initial_acceptance=1e-300, reheated_acceptance=1e-300)
    found = {}
    for share in (0.0, 1.0):
        with Search(problem, Budget(300), "annealing", 0) as search:
            start = np.zeros(4, dtype=np.int64)
            config = replace(cold, proposals=replace(cold.proposals, cluster_share=share))
            anneal(search, start, search.evaluate(Placement(start)), np.random.default_rng(0), config)
        found[share] = search.best_s
    assert found == {0.0: 4.0, 1.0: 3.0}


@pytest.fixture
def short_walks(monkeypatch: pytest.MonkeyPatch) -> Problem:
    """A problem on which a compiled walk has 5,000 / (30 + 100) evaluations."""
    monkeypatch.setattr(annealing, "_OPS_PER_WALK", 5_000)
    return problem_of(chain(30), devices_of("ddd"), np.random.default_rng(1).uniform(1.0, 9.0, (30, 3)))


def test_every_walk_calls_proposals_at_once_with_its_start(short_walks: Problem) -> None:
    config, start, calls = AnnealingConfig(), np.zeros(30, dtype=np.int64), list[np.ndarray]()

    def proposals_at(assignment: np.ndarray) -> Proposals:
        calls.append(assignment)
        return config.proposals

    found = []
    for function in (proposals_at, None):
        with Search(short_walks, Budget(500), "annealing", 0) as search:
            anneal(search, start, search.evaluate(Placement(start)), np.random.default_rng(0), config, function)
        found.append(search.solution())
    assert calls[0] is start
    # One evaluation of the start and 50 that set the temperature; the rest in walks of 5,000 / (30 + 100), of which
    # the first begins at the start like those 50.
    assert len(calls) == math.ceil((500 - 1 - 50) / (5_000 // 130))
    # A constant distribution of moves gives the same search as none.
    assert len({tuple((count, best_s) for count, _, best_s in solution.history) for solution in found}) == 1


def test_the_temperature_comes_from_moves_of_the_configuration_and_not_from_guided_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = random_layers(2)
    requests = list[WalkRequest]()

    def walk(search: Search, request: WalkRequest, rng: np.random.Generator) -> Walk:
        requests.append(request)
        raise BudgetExhausted

    monkeypatch.setattr(Search, "walk", walk)
    weights = np.zeros(problem.num_units)
    weights[0] = 1.0
    guided = replace(AnnealingConfig().proposals, unit_weights=weights)
    start = problem.single_device_assignments[0]
    for proposals_at in (None, lambda _: guided):
        with Search(problem, Budget(1_000), "test", 0) as search:
            (value,) = search.evaluate_batch(start[None])
            anneal(search, start, float(value), np.random.default_rng(0), AnnealingConfig(), proposals_at)
    plain, by_policy = requests
    assert by_policy.proposals is guided
    assert by_policy.first_temperature_s == plain.first_temperature_s > 0.0


@pytest.mark.parametrize("seed", range(3))
def test_annealing_finds_the_optimum_of_small_graphs_on_three_devices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(random_reads(rng, 7, (0, 3000), readers=1), devices_of("ddd"), rng.uniform(1.0, 9.0, (7, 3)))
    assert annealing.plan(problem, Budget(2000), seed).objective_s == pytest.approx(optimum_s(problem), rel=1e-12)


def test_annealing_finds_the_only_cut_of_a_chain_that_fits() -> None:
    problem = problem_of(chain(6, memory_bytes=10), devices_of("dd", memory_bytes=30), 1.0)
    assert annealing.plan(problem, Budget(500), 0).objective_s == 7.0  # six seconds of work and one transfer


def test_annealing_is_never_worse_than_where_it_begins() -> None:
    rng = np.random.default_rng(1)
    problem = problem_of(random_reads(rng, 30, (0, 3000), readers=1), devices_of("ddd"), rng.uniform(1.0, 9.0, (30, 3)))
    begun = min(planner(problem, Budget(9), 0).objective_s for planner in (plan_single, heft.plan))
    assert annealing.plan(problem, Budget(25), 0).objective_s <= begun


def test_a_budget_of_many_walks_is_used_up_exactly_and_reports_between_them(short_walks: Problem) -> None:
    seen: list[int] = []
    solution = annealing.plan(
        short_walks, Budget(1_234, on_progress=lambda progress: seen.append(progress.evaluations)), 0
    )
    assert solution.evaluations == seen[-1] == 1_234
    pieces = np.diff([count for count in seen if count > 100])
    assert pieces.max() == 5_000 // (30 + 100)
    counts = [count for count, _, _ in solution.history]
    assert counts == sorted(set(counts))
    assert short_walks.penalised_s(short_walks.evaluator.evaluate(solution.placement)) == solution.objective_s


def test_an_interrupt_between_two_walks_keeps_the_best_of_the_first(short_walks: Problem) -> None:

    def interrupt(progress: Progress) -> None:
        if progress.evaluations > 200:
            raise KeyboardInterrupt

    solution = annealing.plan(short_walks, Budget(100_000, on_progress=interrupt), 0)
    assert solution.interrupted
    assert 200 < solution.evaluations <= 200 + 5_000 // (30 + 100)
    assert solution.objective_s == short_walks.penalised_s(short_walks.evaluator.evaluate(solution.placement))


def on_threads(problem: Problem, num_threads: int) -> Problem:
    simulator = Simulator(problem.graph, problem.topology, problem.op_time_s, num_threads=num_threads)
    return replace(problem, evaluator=simulator, estimator=simulator)


def test_the_same_seed_gives_the_same_answer_on_any_number_of_threads_where_evaluations_are_limited(
    short_walks: Problem,
) -> None:
    found = [annealing.plan(on_threads(short_walks, count), Budget(700), 0) for count in (1, 3)]
    assert found[0].history[-1][::2] == found[1].history[-1][::2]
    assert found[0].placement.assignment.tolist() == found[1].placement.assignment.tolist()


def test_a_chain_on_each_thread_anneals_where_seconds_are_limited(
    short_walks: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[list[WalkRequest]] = []
    side_by_side = Search.walk_side_by_side

    def walk_side_by_side(search: Search, requests: list[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        rounds.append(requests)
        return side_by_side(search, requests, rng)

    monkeypatch.setattr(Search, "walk_side_by_side", walk_side_by_side)
    monkeypatch.setattr(Search, "wall_s", property(lambda search: 1e-4 * search.evaluations))
    problem, start = on_threads(short_walks, 3), np.zeros(30, dtype=np.int64)
    for evaluations_per_move in (10, 10**9):  # eight cycles, and only the first one
        rounds.clear()
        config = replace(AnnealingConfig(), cycle_evaluations_per_move=evaluations_per_move)
        with Search(problem, Budget(None, 0.5), "annealing", 0) as search:
            anneal(search, start, search.evaluate(Placement(start)), np.random.default_rng(0), config)
        assert {len(requests) for requests in rounds} == {3}
        first, *others = [[request.assignment.tolist() for request in requests] for requests in rounds]
        assert first == [start.tolist()] * 3
        apart = [one != two for one, two, _ in others]
        assert not all(apart)  # a cycle begins at the best placement of all chains
        assert any(apart) == (evaluations_per_move == 10)  # in the first cycle each walk does
    solution = search.solution()
    assert solution.objective_s == problem.penalised_s(problem.evaluator.evaluate(solution.placement))
    assert solution.evaluations >= 5_000


@pytest.mark.parametrize(
    ("budget", "chains"), [(Budget(10), 1), (Budget(10, 1.0), 1), (Budget(None), 1), (Budget(None, 1.0), 3)]
)
def test_seconds_alone_let_several_chains_anneal(short_walks: Problem, budget: Budget, chains: int) -> None:
    problem = on_threads(short_walks, 3)
    assert chains_of(Search(problem, budget, "annealing", 0)) == chains
    measured = replace(problem, evaluator=MeasuredLike(problem))
    assert chains_of(Search(measured, budget, "annealing", 0)) == 1


def test_every_measured_evaluation_is_executed_and_few_of_them_set_the_temperature() -> None:
    problem = problem_of(chain(5), devices_of("dd"), 1.0)
    measured = MeasuredLike(problem)
    solution = annealing.plan(replace(problem, evaluator=measured), Budget(30), 0)
    assert len(measured.executed) == solution.evaluations == 30
