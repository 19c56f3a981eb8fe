"""Large graphs, level by level: the results of each level, and that no level is worse than the one before."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.api.workload import Workload
from gnnplace.bench.generalization.devices import held_out_devices
from gnnplace.evaluation import Problem
from gnnplace.graph.coarsen import coarsen
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.classical.expert import expert_assignment
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.gnn import multilevel
from gnnplace.planners.gnn.multilevel import MultilevelConfig, clustered, refine
from gnnplace.planners.gnn.planner import plan
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Change, Step
from models_zoo.networks.generated import fork_join
from models_zoo.networks.generated.layered import Settings, layered
from tests.problems import full_mesh, problem_of

LEVELS = MultilevelConfig(more_ops_than=100, coarsest_groups=32, clusters=(60, 120), whole_units=200)
WHOLE = replace(LEVELS, whole_units=400)


def setting(num_ops: int = 400, seed: int = 0, threads: int = 2) -> ProblemSetup:
    """A layered graph on eight GPUs and their hosts, every op on its own."""
    graph = layered(Settings(num_ops=num_ops), np.random.default_rng(seed))
    whole = ProblemSetup.build(Workload.of(graph), topology_of("v100x4"), options=PlaceOptions(max_groups=num_ops))
    return replace(whole, num_threads=threads)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return setting().problem()


def test_every_level_is_a_stage_no_worse_than_the_one_before_and_the_answer_no_worse_than_heft(
    problem: Problem,
) -> None:
    solution = plan(problem, Budget(600), seed=0, multilevel=LEVELS)
    names, values = zip(*solution.stages, strict=True)
    assert [name for name in names if name not in ("starts", "revisit", "walk")][:2] == ["schedules", "coarsest"]
    assert names[-1] == f"{problem.num_units} units"
    assert list(values) == sorted(values, reverse=True)
    assert solution.objective_s == values[-1] <= load_planner("heft")(problem, Budget(), 0).objective_s
    assert solution.objective_s == problem.penalised_s(problem.evaluator.evaluate(solution.placement))
    assert solution.evaluations <= 600


def test_few_enough_units_are_all_searched_after_the_coarsest_level(problem: Problem) -> None:
    solution = plan(problem, Budget(1500), seed=0, multilevel=WHOLE)
    names = [name for name, _ in solution.stages]
    assert [names[0], *names[names.index("coarsest") :]] == ["schedules", "coarsest", "revisit"]
    groups = plan(problem, Budget(1500), seed=0, multilevel=replace(WHOLE, coarsest_share_of_whole=1.0))
    assert solution.objective_s < groups.objective_s


def test_few_evaluations_are_spent_on_all_units_where_units_are_few(problem: Problem) -> None:
    solution = plan(problem, Budget(60), seed=0, multilevel=WHOLE)
    assert {name for name, _ in solution.stages} <= {"starts", "revisit", "walk"}
    assert solution.evaluations == 60


def test_whole_layers_are_among_the_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = OpGraph.build("layers", [Op(f"op{i}", stage=i // 10) for i in range(40)])
    problem = problem_of(graph, full_mesh(4), np.ones((40, 4)))
    monkeypatch.setattr(
        multilevel, "list_schedule", lambda *_: ListSchedule(np.zeros(40, dtype=np.int64), *[np.zeros(40)] * 2, True)
    )
    monkeypatch.setattr(multilevel, "evaluate_heft", lambda _: None)
    with Search(problem, Budget(50), "schedules", 0) as search:
        multilevel._schedules(search, 1.0)
    assert search.best_s == pytest.approx(10.0)
    assert search.best is not None
    assert search.best.assignment.tolist() == expert_assignment(problem).tolist()


def test_few_evaluations_begin_with_list_schedules(problem: Problem) -> None:
    singles = map(Placement, problem.single_device_assignments)
    best_device_s = min(problem.penalised_s(problem.evaluator.evaluate(single)) for single in singles)
    first = plan(problem, Budget(1), seed=0, multilevel=LEVELS)
    assert first.evaluations == 1
    assert first.objective_s < 1.1 * load_planner("heft")(problem, Budget(), 0).objective_s < best_device_s


def test_one_evaluation_of_a_wide_graph_stays_on_near_devices_where_the_others_are_far() -> None:
    graph = fork_join.fork_join(
        fork_join.Settings(num_ops=400, branches=32, length=3, ccr=0.5), np.random.default_rng(0)
    )
    options = PlaceOptions(max_groups=400)
    problem = ProblemSetup.build(Workload.of(graph), held_out_devices("servers-2x4"), options=options).problem()
    heft_s = load_planner("heft")(problem, Budget(), 0).objective_s
    assert plan(problem, Budget(1), seed=0, multilevel=LEVELS).objective_s < 0.7 * heft_s


def test_the_number_of_threads_does_not_change_the_answer() -> None:
    one, two = (plan(setting(threads=threads).problem(), Budget(500), seed=3, multilevel=LEVELS) for threads in (1, 2))
    assert one.placement.assignment.tolist() == two.placement.assignment.tolist()
    assert one.objective_s == two.objective_s


def test_a_budget_of_seconds_ends_the_search_at_the_last_level(problem: Problem) -> None:
    budget = Budget(evaluations=None, seconds=1.0)
    solution = plan(problem, budget, seed=0, multilevel=LEVELS)
    assert solution.stages[-1][0] == f"{problem.num_units} units"
    assert solution.wall_s < 4


def test_a_share_of_seconds_that_ends_before_the_first_evaluation_still_gives_a_placement(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(0.25, 0.25)  # schedules have the first fifth of a second
    monkeypatch.setattr(Search, "wall_s", property(lambda search: next(clock)))
    solution = plan(problem, Budget(None, seconds=1.0), seed=0, multilevel=LEVELS)
    assert solution.placement.assignment.tolist() == problem.single_device_assignments[0].tolist()


def test_a_cluster_is_on_one_device_and_colocation_groups_stay_whole(problem: Problem) -> None:
    assignment = np.random.default_rng(0).integers(0, 3, problem.num_units)[problem.unit_of_op]
    coarse = clustered(problem, assignment, 50)
    assert coarse.num_units < problem.num_units
    for ops in coarse.unit_ops:
        assert len(set(assignment[ops].tolist())) == 1
    for ops in problem.unit_ops:
        assert len(set(coarse.unit_of_op[ops].tolist())) == 1
    assert clustered(problem, assignment, problem.num_units) is problem


def test_refinement_only_descends_and_reports_the_seconds_of_its_placement(problem: Problem) -> None:
    start = np.random.default_rng(1).integers(0, 4, problem.graph.num_ops)
    start_s = problem.penalised_s(problem.evaluator.evaluate(Placement(start)))
    with Search(problem, Budget(3000), "refinement", 0) as search:
        placed, seconds = refine(
            search, (start, start_s), np.random.default_rng(0), MultilevelConfig(ops_per_round=40_000)
        )
    assert seconds < start_s
    assert seconds == problem.penalised_s(problem.evaluator.evaluate(Placement(placed)))


class TestParts:
    """A search of the same problem in another form."""

    def test_a_part_continues_the_count_and_hands_back_its_best_placement(self, problem: Problem) -> None:
        with Search(problem, Budget(10), "whole", 0) as search:
            search.evaluate_batch(np.zeros((4, problem.graph.num_ops), dtype=np.int64))
            first = search.best_s
            with search.part(problem, 0.7) as part:
                assert (part.evaluations, part.remaining, part.known_s) == (4, 3, first)
                values = part.evaluate_batch(np.tile(np.arange(problem.graph.num_ops) % 2, (5, 1)))
            assert np.isfinite(values).tolist() == [True, True, True, False, False]
            assert search.evaluations == 7
            assert search.best_s == min(first, values.min())

    def test_a_part_that_uses_up_its_share_does_not_end_the_search(self, problem: Problem) -> None:
        nothing = np.zeros((1, problem.graph.num_ops), dtype=np.int64)
        with Search(problem, Budget(10), "whole", 0) as search:
            with search.part(problem, 0.2) as part:
                while True:
                    part.evaluate_batch(nothing)
            search.evaluate_batch(nothing)
        assert search.evaluations == 3

    def test_an_interrupt_keeps_the_best_placement_of_a_part(self, problem: Problem) -> None:
        with Search(problem, Budget(10), "whole", 0) as search, search.part(problem, 0.5) as part:
            part.evaluate_batch(np.zeros((1, problem.graph.num_ops), dtype=np.int64))
            raise KeyboardInterrupt
        assert search.interrupted
        assert search.solution().evaluations == 1

    def test_a_part_that_finds_nothing_better_changes_no_best(self, problem: Problem) -> None:
        good = load_planner("heft")(problem, Budget(), 0).placement
        with Search(problem, Budget(10), "whole", 0) as search:
            best = search.evaluate(good)
            with search.part(problem, 1.0) as part:
                part.evaluate(Placement(np.arange(problem.graph.num_ops) % 4))
        assert search.best is good or search.best_s == best
        assert len(search.history) == 1

    def test_steps_of_a_part_are_recorded_in_units_of_the_whole(self, problem: Problem) -> None:
        coarsening = coarsen(problem.graph, 32)
        groups = np.array([3, 7])
        step = Step(1, "move", 2.0, 1.0, Change(groups, np.zeros(2), np.ones(2)), 0.5, 0.01)
        search = Search(problem, Budget(10), "whole", 0)
        with search.part(problem.over_groups(coarsening), 1.0, coarsening) as part:
            part.steps.append(step)
        [recorded] = search.steps
        assert coarsening.group_of_op[np.isin(problem.unit_of_op, recorded.change.units)].tolist() == sorted(
            groups.tolist()
        )
        assert (recorded.kind, recorded.before_s, recorded.after_s, recorded.probability) == ("move", 2.0, 1.0, 0.5)
