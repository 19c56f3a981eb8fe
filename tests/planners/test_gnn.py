"""The GNN improver as a planner."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnplace.env.process import PlacementProcess
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.planners.classical import heft
from gnnplace.planners.classical.baselines import plan_single
from gnnplace.planners.classical.constructions import Starts, evaluate_starts
from gnnplace.planners.classical.list_schedule import list_schedule
from gnnplace.planners.gnn import compiled_revisit, planner
from gnnplace.planners.gnn.compiled_loop import Loop, loop_of
from gnnplace.planners.gnn.moves import Candidates, Moves, placement_hash, unit_hashes
from gnnplace.planners.gnn.multilevel import MultilevelConfig
from gnnplace.planners.gnn.odds import MoveOdds, OddsConfig, OddsTable, PolicySearch, draw_pair
from gnnplace.planners.gnn.planner import GnnConfig, _revisit_limit, plan
from gnnplace.planners.gnn.search import FineTuningConfig, RevisitConfig, _temperature_s, _warmth, fine_tune, revisit
from gnnplace.planners.gnn.stretch import Rebuilds, rebuild, stretch_tables
from gnnplace.planners.metropolis import SearchClock
from gnnplace.planners.search import Search, ShareUsed
from gnnplace.planners.solution import Budget
from gnnplace.policy.checkpoint import InvalidPolicy, save_policy
from gnnplace.policy.linear import PRIOR, LinearPolicy
from gnnplace.policy.network import PolicyConfig, build_policy, policy_inputs
from gnnplace.training.search_trace import SearchTrace
from tests.problems import full_mesh, problem_of, random_layers, two_chains


@pytest.mark.parametrize(
    ("seed", "evaluations", "tuning"), [(0, 300, 0.0), (1, 300, 0.0), (2, 300, 0.0), (2, 1500, 0.1)]
)
def test_no_stage_is_worse_than_the_one_before_and_the_answer_no_worse_than_single_and_heft(
    seed: int, evaluations: int, tuning: float
) -> None:
    problem, config = random_layers(seed), GnnConfig(revisit_evaluations_per_unit=3)
    solution = plan(problem, Budget(evaluations), seed, replace(config, fine_tuning_share=tuning) if tuning else config)
    others = [planner(problem, Budget(300), seed).objective_s for planner in (plan_single, heft.plan)]
    assert solution.objective_s <= min(others)
    names, values = zip(*solution.stages, strict=True)
    assert names == ("starts", *(["fine-tuning"] if tuning else []), "revisit", "walk")
    assert list(values) == sorted(values, reverse=True)
    assert solution.evaluations == evaluations
    assert solution.objective_s == values[-1] == problem.penalised_s(problem.evaluator.evaluate(solution.placement))


def test_it_finds_the_optimum_of_two_chains() -> None:
    assert plan(two_chains(length=4), Budget(200), 0).objective_s == 4.0


@pytest.mark.parametrize("budget", [1, 3, 10, 40])
def test_a_small_budget_is_kept_and_the_single_device_comes_first(budget: int) -> None:
    problem = random_layers(1)
    solution = plan(problem, Budget(budget), 0)
    assert solution.evaluations <= budget
    assert solution.objective_s <= plan_single(problem, Budget(budget), 0).objective_s


def test_seconds_that_end_the_guided_search_while_it_draws_leave_the_walk_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(Search, "wall_s", property(lambda search: clock[0]))
    draw = Moves.draw

    def slow_draw(moves: Moves, count: int, current_s: float) -> Candidates:
        clock[0] = 0.9
        return draw(moves, count, current_s)

    def slow_loop(*arguments: Any) -> Loop:
        clock[0] = 0.9
        return loop_of(*arguments)

    monkeypatch.setattr(Moves, "draw", slow_draw)
    monkeypatch.setattr(compiled_revisit, "loop_of", slow_loop)
    for _ in range(2):
        clock[0] = 0.0
        solution = plan(random_layers(), Budget(evaluations=400, seconds=1.0), 0)
        assert [name for name, _ in solution.stages] == ["starts", "revisit", "walk"]
        assert clock[0] == 0.9
        monkeypatch.setattr(Problem, "compiled_simulator", lambda problem: None)


@pytest.mark.parametrize(
    ("seconds", "stages", "searches"),
    [(1.0, ["starts", "revisit", "walk"], 1), (0.4, ["starts", "walk"], 1), (0.1, ["starts", "walk"], 0)],
)
def test_few_seconds_leave_out_the_guided_search_and_fewer_the_policy(
    seconds: float, stages: list[str], searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guided = list[Search]()

    def noted(search: Search, *arguments: Any) -> PolicySearch:
        guided.append(search)
        return PolicySearch(search, *arguments)

    monkeypatch.setattr(Search, "wall_s", 0.0)
    monkeypatch.setattr(planner, "PolicySearch", noted)
    solution = plan(random_layers(), Budget(evaluations=400, seconds=seconds), 0)
    assert [name for name, _ in solution.stages] == stages
    assert len(guided) == searches


@pytest.mark.parametrize("num_devices", [1, 2])
def test_where_nothing_can_move_it_ends_even_without_a_budget(num_devices: int) -> None:
    graph = OpGraph.build("bound", [Op("a", devices=("d0",)), Op("b", devices=("d0",))])
    problem = problem_of(graph, full_mesh(num_devices))
    assert plan(problem, Budget(None), 0).objective_s == 2.0


def test_on_a_tiny_graph_it_ends_when_every_placement_is_known() -> None:
    problem = two_chains(length=1)
    solution = plan(problem, Budget(None), 0)
    assert solution.objective_s == 1.0
    assert solution.evaluations < 2000


def test_larger_graphs_reach_the_walk_sooner() -> None:
    problem, config = random_layers(2), GnnConfig(revisit_evaluations_per_unit=20, least_evaluations_per_unit=2)
    units, devices = problem.num_units, problem.topology.num_devices
    limits = [
        _revisit_limit(problem, replace(config, revisit_pairs=evaluations * units * devices))
        for evaluations in (10**6, 7 * units, 1)
    ]
    assert limits == [20 * units, 7 * units, 2 * units]


def test_a_stage_ends_at_its_share_of_the_budget() -> None:
    search = Search(two_chains(), Budget(10), "test", 0)
    search.evaluate_to_learn(np.zeros((5, 6), dtype=np.int64), end_share=0.5)
    with pytest.raises(ShareUsed):
        search.evaluate_to_learn(np.zeros((1, 6), dtype=np.int64), end_share=0.5)
    assert search.evaluations == 5


def test_where_seconds_are_limited_a_single_device_is_evaluated_before_anything_is_built() -> None:
    problem = random_layers(4)
    for budget, evaluations in ((Budget(50), 1), (Budget(50, 600.0), 2)):
        search = Search(problem, budget, "test", 0)
        evaluate_starts(search, 1, np.random.default_rng(0))
        assert search.evaluations == evaluations
    single_s = problem.penalised_batch_s(problem.evaluator.evaluate_batch(problem.single_device_assignments[:1]))
    assert search.history[0][-1] == single_s[0]


def test_a_policy_without_weights_cannot_be_fine_tuned() -> None:
    with pytest.raises(GnnplaceError, match="'prior' has no weights to train"):
        plan(random_layers(4), Budget(50), 0, GnnConfig(policy="prior", fine_tuning_share=0.5))


def test_the_planner_loads_the_policy_file_and_refuses_a_broken_one(tmp_path: Path) -> None:
    problem, path = random_layers(4), tmp_path / "policy.safetensors"
    save_policy(path, build_policy(0, PolicyConfig(hidden=8, rounds=1)), {})
    first = plan(problem, Budget(120), 0, GnnConfig(policy=path))
    second = plan(problem, Budget(120), 0)
    assert first.history[-1] != second.history[-1]
    path.write_bytes(b"")
    with pytest.raises(InvalidPolicy):
        plan(problem, Budget(120), 0, GnnConfig(policy=path))


def test_a_policy_can_be_given_by_itself_by_its_name_or_by_its_file(tmp_path: Path) -> None:
    problem, path, network = random_layers(4), tmp_path / "policy.safetensors", build_policy(0)
    save_policy(path, network, {})
    by_file, by_itself = (plan(problem, Budget(30), 0, GnnConfig(policy=policy)) for policy in (path, network))
    assert np.array_equal(by_file.placement.assignment, by_itself.placement.assignment)
    by_name, by_itself = (
        plan(problem, Budget(30), 0, GnnConfig(policy=policy)) for policy in ("prior", LinearPolicy(PRIOR))
    )
    assert np.array_equal(by_name.placement.assignment, by_itself.placement.assignment)


def test_starts_come_best_first_and_hold_the_single_devices() -> None:
    problem = random_layers(3)
    search = Search(problem, Budget(60), "test", 0)
    assignments, seconds, is_tight = evaluate_starts(search, 40, np.random.default_rng(0))
    assert not is_tight
    assert seconds.tolist() == sorted(seconds)
    assert seconds[0] == search.best_s
    assert {row[0] for row in assignments if len(set(row.tolist())) == 1} >= {0, 1, 2}
    assert seconds[0] <= plan_single(problem, Budget(60), 0).objective_s
    assert search.evaluations <= 40


def test_a_rebuilt_placement_keeps_to_the_old_one_outside_of_the_stretch() -> None:
    problem = random_layers(3, num_ops=60)
    old = np.random.default_rng(0).integers(0, 3, problem.num_units)[problem.unit_of_op]
    rng, tables = np.random.default_rng(1), stretch_tables(problem)
    strongly, weakly = (
        np.mean([np.mean(rebuild(tables, old, 3, pull, rng) == old) for _ in range(10)]) for pull in (1e6, 1.0)
    )
    assert strongly > 0.85
    assert weakly < 0.6


def test_rebuilds_differ_from_a_placement_more_or_less_and_keep_units_together() -> None:
    problem = random_layers(3, num_ops=60)
    old = list_schedule(problem).assignment
    rebuilt = list(Rebuilds(problem, np.random.default_rng(1), 6).revisions(old))
    again = list(Rebuilds(problem, np.random.default_rng(1), 6).revisions(old))
    assert np.array(rebuilt).tolist() == np.array(again).tolist()
    changed = [float(np.mean(row != old)) for row in rebuilt]
    assert min(changed) < 0.5 * max(changed) < 0.4, changed
    for row in rebuilt:
        assert (problem.unit_devices(row)[problem.unit_of_op] == row).all()


@pytest.mark.parametrize("policy", ["shipped", "prior", "uniform"])
def test_starts_are_revised_where_evaluations_are_few_and_equally_often_with_every_policy(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, made = random_layers(2), list[int]()
    placed = list_schedule(problem).assignment

    def noted(*arguments: Any) -> Starts:
        made.append(sum(len(list(revise(placed))) for revise in arguments[-1]))
        return evaluate_starts(*arguments)

    monkeypatch.setattr(planner, "evaluate_starts", noted)
    config = GnnConfig(policy=policy, revised_evaluations=50, few_evaluations=40)
    for budget in (Budget(50), Budget(51), Budget(None, seconds=0.3)):
        plan(problem, budget, 0, config)
    assert made == [14, 0, 0]
    made.clear()
    for evaluations in (40, 50):  # op groups of a graph that is searched level by level are not revised
        plan(problem, Budget(evaluations), 0, config, MultilevelConfig(more_ops_than=20, coarsest_groups=10))
    assert made == [14, 0]


def test_revised_starts_are_better_on_average() -> None:
    ratios = []
    for seed in range(6):
        problem = random_layers(seed, num_ops=60)
        revised, plain = (
            plan(problem, Budget(1), 0, GnnConfig(policy="prior", revised_evaluations=most)).objective_s
            for most in (1, 0)
        )
        ratios.append(revised / plain)
    assert np.log(ratios).mean() < -0.01


def test_a_critical_op_is_likelier_to_move_than_one_with_slack_and_a_draw_lowers_its_odds() -> None:
    # Two independent ops of 5 s and 1 s on two devices: the second could end 4 s later.
    problem = problem_of(
        OpGraph.build("two", [Op("long"), Op("short")]), full_mesh(2), np.array([[5.0, 5.0], [1.0, 1.0]])
    )
    search, rng = Search(problem, Budget(10), "test", 0), np.random.default_rng(0)
    move_odds = MoveOdds(PolicySearch(search, policy_inputs(problem), LinearPolicy(PRIOR), rng), OddsConfig())
    process = PlacementProcess(problem).reset(np.array([[0, 1]]))
    move_odds.update(process.devices[0], process.schedules())
    likely, by_unit = (values.copy() for values in move_odds.odds.table)
    assert (likely == 0.0).tolist() == [[True, False], [False, True]]
    assert likely[0, 1] == 1.0 > likely[1, 0] > 0.0
    assert by_unit.tolist() == likely.sum(axis=1).tolist()
    unit, device, log_prob = draw_pair(move_odds.odds.table, 0.25, rng)
    assert log_prob == pytest.approx(np.log(likely[unit, device] / likely.sum()))
    likely[unit, device] *= 0.25
    assert move_odds.odds.table.likely.tolist() == likely.tolist()
    assert move_odds.odds.table.by_unit.tolist() == likely.sum(axis=1).tolist()


def test_moves_that_were_drawn_very_often_can_be_drawn_again() -> None:
    table = OddsTable(np.array([[0.0, 1.0]]), np.array([1.0]))
    rng = np.random.default_rng(0)
    assert [draw_pair(table, 1e-150, rng)[:2] for _ in range(9)] == [(0, 1)] * 9
    assert draw_pair(OddsTable(np.zeros((2, 2)), np.zeros(2)), 0.5, rng)[0] == -1


def test_different_placements_have_different_hashes() -> None:
    placements = np.unique(np.random.default_rng(0).integers(0, 3, (4000, 12)), axis=0)
    hashes = unit_hashes(12, 3)
    assert len({int(placement_hash(hashes, row)) for row in placements}) == len(placements)


def full_devices() -> Problem:
    """Ops of 4 s and 1 s, each fast on the device that the other is on, where there is room for one alone."""
    graph = OpGraph.build("full", [Op("a", memory_bytes=10), Op("b", memory_bytes=10)])
    return problem_of(graph, full_mesh(2, memory_bytes=15), np.array([[4.0, 1.0], [1.0, 4.0]]))


def test_where_memories_are_full_two_units_change_places() -> None:
    problem = full_devices()
    search, rng = Search(problem, Budget(100), "test", 0), np.random.default_rng(0)
    start = np.array([0, 1])
    value = float(search.evaluate_batch(start[None])[0])
    assert value == 4.0
    revisit(
        PolicySearch(search, policy_inputs(problem), LinearPolicy(PRIOR), rng), (start, value), 1.0, RevisitConfig()
    )
    assert search.best is not None
    assert search.best.assignment.tolist() == [1, 0]
    assert search.best_s == 1.0


def test_the_search_is_cold_for_few_evaluations_and_hot_for_many() -> None:
    config = RevisitConfig(cold=(1e-3, 1e-5), hot=(1.0, 0.01))
    cold = [_temperature_s(10.0, 2.0, done, 0.0, config) for done in (0.0, 0.5, 1.0)]
    hot = [_temperature_s(10.0, 2.0, done, 1.0, config) for done in (0.0, 0.5, 1.0)]
    assert cold == pytest.approx([1e-2, 1e-3, 1e-4])
    assert hot == pytest.approx([2.0, 0.2, 0.02])
    assert _temperature_s(10.0, 2.0, 0.0, 0.5, config) == pytest.approx(np.sqrt(1e-2 * 2.0))
    assert _temperature_s(10.0, 0.0, 0.0, 1.0, config) == pytest.approx(1e-2)  # nothing has risen yet
    problem = random_layers(num_ops=30, num_devices=3)  # 29 units with 2 moves each
    search = Search(problem, Budget(None), "test", 0)
    warmth = [_warmth(search, SearchClock(search, 1.0, limit), config) for limit in (17, 10, 174, 1000)]
    assert warmth == pytest.approx([0.0, 0.0, 1.0, 1.0])
    assert 0.0 < _warmth(search, SearchClock(search, 1.0, 58), config) < 1.0


def test_fine_tuning_changes_the_policy_and_the_search_keeps_its_best_placement() -> None:
    problem, network = random_layers(), build_policy(0)
    before = [parameter.clone() for parameter in network.parameters()]
    search, rng = Search(problem, Budget(200), "test", 0), np.random.default_rng(0)
    search.evaluate_batch(np.zeros((1, 30), dtype=np.int64))
    start_s = search.best_s
    policy_search = PolicySearch(search, policy_inputs(problem), network, rng)
    config = FineTuningConfig(searches=3, evaluations=10)
    updates = fine_tune(policy_search, 0.5, config, RevisitConfig())
    assert search.evaluations == 100
    assert len(updates) == 4  # the last one of what was left
    assert any(update.learned for update in updates)
    assert all(update.first_ratio == pytest.approx(1.0, abs=1e-4) for update in updates)
    assert not all(torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True))
    assert search.best_s < start_s


def test_fine_tuning_ends_where_there_is_nothing_new_to_find() -> None:
    problem = two_chains(length=1)  # two ops on two devices: four placements
    search = Search(problem, Budget(100_000), "test", 0)
    search.evaluate_batch(np.zeros((1, 2), dtype=np.int64))
    policy_search = PolicySearch(search, policy_inputs(problem), build_policy(0), np.random.default_rng(0))
    fine_tune(policy_search, 1.0, FineTuningConfig(searches=2, evaluations=5), RevisitConfig())
    assert search.evaluations < 100


def test_the_search_takes_the_best_of_several_draws_and_counts_each() -> None:
    problem = random_layers()
    for lookahead in (1, 4, 7):
        search = Search(problem, Budget(100), "test", 0)
        start = np.zeros(30, dtype=np.int64)
        value = float(search.evaluate_batch(start[None])[0])
        trace = SearchTrace()
        policy_search = PolicySearch(search, policy_inputs(problem), build_policy(0), np.random.default_rng(0), trace)
        revisit(policy_search, (start, value), 1.0, RevisitConfig(lookahead=lookahead), 50)
        assert search.evaluations == 51  # the last batch is smaller where there is less left
        assert len(trace.seconds) == len(trace.was_drawn) == 50
        assert 50 / lookahead > len(trace.states) - 1  # the policy scores placements only after a batch
        assert min(trace.seconds) == search.best_s < value
