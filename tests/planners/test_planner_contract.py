"""Promises of every planner in the catalog."""

import copy
import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import GnnplaceError, InfeasiblePlacement, MissingDependency
from gnnplace.evaluation import Objective, Problem
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.placement import check_legal
from gnnplace.planners.catalog import PLANNERS, load_planner
from gnnplace.planners.solution import Budget, Progress
from tests.problems import problem_of

BLIND_TO_MEMORY = ("single", "round-robin", "expert", "scotch", "metis", "metis-cpu")
"""These baselines balance computation alone, as in their papers."""

NEEDS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "scotch": (shutil.which, "scotch_gmap"),
    "metis": (importlib.util.find_spec, "pymetis"),
    "metis-cpu": (importlib.util.find_spec, "pymetis"),
    "mtkahypar": (importlib.util.find_spec, "mtkahypar"),
    "optimal": (importlib.util.find_spec, "ortools"),
}
"""Function that finds the optional library or program of a planner, and its name."""


@pytest.fixture(autouse=True)
def _skip_planners_that_are_not_installed(request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    if name in NEEDS and NEEDS[name][0](NEEDS[name][1]) is None:
        pytest.skip(f"the planner {name!r} needs {NEEDS[name][1]}, which is not installed")


def make_problem(
    seed: int = 0, num_ops: int = 24, memory_bytes: int | None = None, objective: Objective = "latency"
) -> Problem:
    """A random layered graph on two accelerators and a host; two colocation groups, two ops only for the host."""
    rng = np.random.default_rng(seed)
    groups, hosted = {5: "g", 9: "g", 14: "h", 15: "h"}, {3: ("cpu",), 17: ("cpu",)}
    ops = [Op(f"o{i}", memory_bytes=10, group=groups.get(i), devices=hosted.get(i)) for i in range(num_ops)]
    tensors = [
        Tensor(
            f"o{i}", int(rng.integers(1, 100)), tuple({f"o{j}" for j in rng.integers(i + 1, min(num_ops, i + 7), 2)})
        )
        for i in range(num_ops - 1)
    ]
    weights = [SharedWeight(20, ("o1", "o2", "o20"))] if num_ops > 20 else []
    graph = OpGraph.build("random", ops, tensors, weights)
    devices = (Device("g0", "gpu", memory_bytes), Device("g1", "gpu", memory_bytes), Device("c0", "cpu"))
    links = tuple(
        Link(a.name, b.name, 1e-3, 1e5) for a in devices for b in devices if a is not b and "cpu" in (a.kind, b.kind)
    )
    topology = Topology("two and a host", devices, links)
    times = rng.uniform(1e-3, 1e-2, (num_ops, 1)) * np.array([1.0, 1.0, 4.0])
    return problem_of(graph, topology, times, objective)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_returns_a_legal_placement_whose_value_is_the_evaluators(name: str, objective: Objective) -> None:
    problem = make_problem(objective=objective)
    solution = load_planner(name)(problem, Budget(200), 3)
    check_legal(problem.graph, problem.topology, solution.placement)  # colocation and allowed devices too
    evaluation = problem.evaluator.evaluate(solution.placement)
    assert evaluation.feasible
    assert solution.objective_s == pytest.approx(problem.penalised_s(evaluation), rel=1e-12)
    assert solution.planner == name
    assert solution.seed == 3
    assert solution.history[-1][2] == solution.objective_s
    assert [value for _, _, value in solution.history] == sorted((v for _, _, v in solution.history), reverse=True)


def apart() -> Problem:
    """Two ops on two devices without a link, of which neither holds both."""
    graph = OpGraph.build("apart", [Op("a"), Op("b", memory_bytes=24)], [Tensor("b", 25, ("a",)), Tensor("a", 92, ())])
    topology = Topology("apart", (Device("d0", "gpu", 136), Device("d1", "gpu", 45)))
    return problem_of(graph, topology, np.array([[0.058, 0.058], [2.918, 2.918]]))


def one_way() -> Problem:
    """Three ops on two devices with a link in one direction; the throughput counts."""
    graph = OpGraph.build("one way", [Op("a"), Op("b"), Op("c")], [Tensor("c", 0, ("b",))])
    topology = Topology("one way", (Device("d0", "cpu"), Device("d1", "gpu")), (Link("d0", "d1", 1.0, 2.0),))
    return problem_of(graph, topology, np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), "throughput")


def timeless() -> Problem:
    """One op that takes no time where it does not fit."""
    graph = OpGraph.build("timeless", [Op("a", memory_bytes=24)])
    topology = Topology("timeless", (Device("d0", "tpu", 17), Device("d1", "cpu")))
    return problem_of(graph, topology, np.array([[0.0, 1.0]]))


@pytest.mark.parametrize("make", [apart, one_way, timeless])
@pytest.mark.parametrize("name", PLANNERS)
def test_missing_links_and_ops_without_time_end_no_planner(name: str, make: Callable[[], Problem]) -> None:
    problem = make()
    try:
        solution = load_planner(name)(problem, Budget(60), 0)
    except GnnplaceError:
        return  # the planner says that it found nothing
    assert problem.action_mask[problem.unit_of_op, solution.placement.assignment].all()
    if solution.objective_s <= problem.worst_case_s:
        check_legal(problem.graph, problem.topology, solution.placement)


def core_sets(seed: int = 0) -> Problem:
    """Two branches on two cores and on both together, which is faster for half of the ops."""
    rng, names = np.random.default_rng(seed), [f"o{i}" for i in range(20)]
    tensors = [Tensor(name, 10, (follower,)) for name, follower in zip(names, names[2:], strict=False)]
    cores = (("cpu:0", ("core:0",)), ("cpu:1", ("core:1",)), ("cpu:0-1", ("core:0", "core:1")))
    devices = tuple(Device(name, "cpu", resources=used, memory_pool="host") for name, used in cores)
    links = tuple(Link(a.name, b.name, 1e-5, 1e9) for a in devices for b in devices if a is not b)
    times = rng.uniform(1e-3, 1e-2, (20, 1)) * np.where(rng.random((20, 1)) < 0.5, [[1, 1, 0.5]], [[1, 1, 0.95]])
    graph = OpGraph.build("branches", [Op(name, memory_bytes=10) for name in names], tensors)
    return problem_of(graph, Topology("sets", devices, links), times)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_places_on_cores_and_on_sets_of_them(name: str) -> None:
    problem = core_sets()
    solution = load_planner(name)(problem, Budget(200), 3)
    check_legal(problem.graph, problem.topology, solution.placement)
    assert solution.objective_s == pytest.approx(problem.penalised_s(problem.evaluator.evaluate(solution.placement)))
    alone_s = load_planner("single")(problem, Budget(3), 0).objective_s
    if name in ("annealing", "gnn", "optimal", "genetic", "heft-portfolio"):
        assert solution.objective_s < 0.95 * alone_s  # some ops side by side, others together
    if name in ("round-robin", "expert", "scotch", "metis-cpu", "mtkahypar"):
        assert 2 not in solution.placement.assignment  # parts that can compute at a time


@pytest.mark.parametrize("name", PLANNERS)
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    first, second = (load_planner(name)(make_problem(), Budget(150), 7) for _ in range(2))
    np.testing.assert_array_equal(first.placement.assignment, second.placement.assignment)
    assert first.evaluations == second.evaluations
    assert first.objective_s == second.objective_s


@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_leaves_its_inputs_alone(name: str) -> None:
    problem = make_problem()
    times, graph, budget = problem.op_time_s.copy(), copy.deepcopy(problem.graph.__dict__), Budget(100)
    load_planner(name)(problem, budget, 0)
    np.testing.assert_array_equal(problem.op_time_s, times)
    for key, value in graph.items():
        np.testing.assert_equal(problem.graph.__dict__[key], value)
    assert budget == Budget(100)


@pytest.mark.parametrize("evaluations", [1, 2, 37])
@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_evaluates_no_more_than_its_budget(name: str, evaluations: int) -> None:
    problem = make_problem()
    solution = load_planner(name)(problem, Budget(evaluations), 0)
    assert 1 <= solution.evaluations <= evaluations
    check_legal(problem.graph, problem.topology, solution.placement)


@pytest.mark.parametrize("name", PLANNERS)
def test_an_exhausted_budget_without_any_placement_is_an_error(name: str) -> None:
    with pytest.raises(InfeasiblePlacement, match="budget ended before one placement"):
        load_planner(name)(make_problem(), Budget(0), 0)


@pytest.mark.parametrize("name", PLANNERS)
def test_an_interrupt_gives_the_best_placement_so_far(name: str) -> None:
    problem = make_problem()
    seen: list[float] = []

    def interrupt(progress: Progress) -> None:
        seen.append(progress.best_s)
        raise KeyboardInterrupt

    solution = load_planner(name)(problem, Budget(200, on_progress=interrupt), 0)
    assert solution.interrupted
    assert solution.objective_s == seen[0]
    check_legal(problem.graph, problem.topology, solution.placement)


@pytest.mark.parametrize("name", [n for n in PLANNERS if n not in BLIND_TO_MEMORY])
def test_a_planner_fits_a_graph_into_memories_none_of_which_holds_it(name: str) -> None:
    problem = make_problem(memory_bytes=600)
    solution = load_planner(name)(problem, Budget(400), 1)
    evaluation = problem.evaluator.evaluate(solution.placement)
    assert evaluation.feasible, evaluation.shortfall_bytes


@pytest.mark.parametrize("name", PLANNERS)
def test_a_placement_that_fits_nowhere_is_returned_with_its_penalty(name: str) -> None:
    graph = OpGraph.build("big", [Op("a", memory_bytes=100), Op("b", memory_bytes=100)], [Tensor("a", 1, ("b",))])
    problem = problem_of(graph, (Device("x", memory_bytes=50), Device("y", memory_bytes=60)), 1.0)
    solution = load_planner(name)(problem, Budget(30), 0)
    assert not problem.evaluator.evaluate(solution.placement).feasible
    assert solution.objective_s > problem.worst_case_s


@pytest.mark.parametrize("num_ops", [0, 1])
@pytest.mark.parametrize("name", PLANNERS)
def test_graphs_of_no_op_and_of_one_op_are_placed(name: str, num_ops: int) -> None:
    graph = OpGraph.build("tiny", [Op(f"o{i}") for i in range(num_ops)])
    topology = Topology("pair", (Device("slow"), Device("fast")), (Link("slow", "fast", 0.0, 1.0),))
    solution = load_planner(name)(problem_of(graph, topology, [3.0, 2.0]), Budget(20), 0)
    assert solution.placement.assignment.shape == (num_ops,)
    if name != "round-robin":
        assert solution.objective_s == 2.0 * num_ops


@pytest.mark.parametrize("name", PLANNERS)
def test_one_device_takes_everything(name: str) -> None:
    graph = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 8, ("b",))])
    solution = load_planner(name)(problem_of(graph, (Device("d"),), [[1.0], [2.0]]), Budget(20), 0)
    assert solution.placement.assignment.tolist() == [0, 0]
    assert solution.objective_s == 3.0


@pytest.mark.parametrize(
    ("planner", "module", "message"),
    [
        ("metis", "pymetis", r"need pymetis; pip install 'gnnplace\[partition\]'"),
        ("metis-cpu", "pymetis", r"need pymetis; pip install 'gnnplace\[partition\]'"),
        ("mtkahypar", "mtkahypar", r"needs mtkahypar; pip install 'gnnplace\[partition\]'"),
        ("optimal", "ortools.sat.python.cp_model", r"needs OR-Tools.*gnnplace\[optimal\]"),
        ("scotch", None, r"needs the program scotch_gmap; install Debian's scotch"),
    ],
)
def test_a_missing_library_is_an_error_with_the_command_that_installs_it(
    planner: str, module: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module, module and module.partition(".")[0]):
        if name is not None:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingDependency, match=message):
        load_planner(planner)(make_problem(), Budget(10), 0)


def test_an_unknown_planner_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(GnnplaceError, match=r"no planner 'anealing'; did you mean 'annealing'\?"):
        load_planner("anealing")
