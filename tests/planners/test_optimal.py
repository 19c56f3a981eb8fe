"""`optimal`: its proofs are true, and its bounds hold."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.devices.sampled import DeviceRanges, sample_devices
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Objective, Problem
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.placement import Placement
from gnnplace.planners.classical.optimal import planner as optimal
from gnnplace.planners.classical.optimal.model import IntervalModel, in_order, interchangeable_devices
from gnnplace.planners.classical.optimal.planner import OptimalConfig, plan
from gnnplace.planners.classical.optimal.rules import path_ticks
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from models_zoo.networks.generated.sampling import sample_graph
from tests.problems import connected, devices_of, problem_of, random_reads
from tests.random_problems import sharing

SEGMENT_COSTS = {"segment_overhead_s": 0.6, "intake_bandwidth_bytes_per_s": 20.0}


@pytest.fixture(autouse=True)
def _needs_ortools() -> None:
    pytest.importorskip("ortools", reason="the extra 'optimal' is not installed")


def pair(memory_bytes: int | None = None, overhead_s: float = 0.0, latency_s: float = 1.0) -> Topology:
    devices = tuple(Device(name, "gpu", memory_bytes, dispatch_overhead_s=overhead_s) for name in "xy")
    return Topology("pair", devices, (Link("x", "y", latency_s, 10.0), Link("y", "x", latency_s, 10.0)))


def over_a_host(memory_bytes: int | None, overhead_s: float) -> Topology:
    kinds = {"x": "gpu", "y": "gpu", "c": "cpu"}
    devices = tuple(Device(name, kind, memory_bytes, dispatch_overhead_s=overhead_s) for name, kind in kinds.items())
    links = tuple(Link(a, b, 0.5, 20.0) for a, b in (("x", "c"), ("c", "x"), ("y", "c"), ("c", "y")))
    return Topology("over a host", devices, links)


def on_a_bus(memory_bytes: int | None, overhead_s: float) -> Topology:
    devices = tuple(Device(name, "", memory_bytes, dispatch_overhead_s=overhead_s) for name in "xyz")
    links = tuple(Link(a, b, 0.3, 15.0, "bus") for a, b in itertools.permutations("xyz", 2) if a + b != "zx")
    return Topology("on a bus", devices, links)


def random_problem(seed: int) -> Problem:
    """Two to five ops with colocation, memory, shared weights, overheads and forbidden devices."""
    rng = np.random.default_rng(seed)
    memory_bytes = int(rng.integers(50, 120)) if rng.random() < 0.5 else None
    overhead_s = float(rng.choice([0.0, 0.7]))
    build = (pair, over_a_host, on_a_bus)[rng.integers(3)]
    topology = build(memory_bytes, overhead_s)
    num_ops = int(rng.integers(2, 6 if topology.num_devices == 2 else 5))
    names = [f"o{i}" for i in range(num_ops)]
    ops = [
        Op(name, memory_bytes=int(rng.integers(20)), workspace_bytes=int(rng.integers(10)),
           group="g" if rng.random() < 0.25 else None)
        for name in names
    ]  # fmt: skip
    tensors = [
        Tensor(names[i], int(rng.integers(30)), tuple(name for name in names[i + 1 :] if rng.random() < 0.5))
        for i in rng.integers(num_ops, size=num_ops + 1)
    ]
    weights = [SharedWeight(15, (names[0], names[-1]))] if rng.random() < 0.5 else []
    times = rng.uniform(0.5, 5.0, (num_ops, topology.num_devices))
    if rng.random() < 0.3:
        times[:] = times[:, :1]
    if rng.random() < 0.3:
        times[rng.integers(num_ops), 2 % topology.num_devices] = np.inf
    return problem_of(OpGraph.build("random", ops, tensors, weights), topology, times)


def least(problem: Problem) -> float:
    """Penalised seconds of the best placement with the best order of ops, by trying all of them."""
    ranks = [np.array(order, dtype=np.float64) for order in itertools.permutations(range(problem.graph.num_ops))]
    producers, consumers = problem.graph.edges
    # Every schedule has an order in which producers come first.
    ranks = [rank for rank in ranks if (rank[producers] > rank[consumers]).all()]
    placements = (
        Placement(np.array(devices)[problem.unit_of_op], rank)
        for devices in itertools.product(*(np.flatnonzero(row).tolist() for row in problem.action_mask))
        for rank in ranks  # also for the period, as the memory depends on the order
    )
    return min(problem.penalised_s(problem.evaluator.evaluate(placement)) for placement in placements)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_it_proves_the_best_of_all_placements_and_orders(seed: int) -> None:
    problem = random_problem(seed)
    best_s = least(problem)
    assume(best_s <= problem.worst_case_s)  # something fits
    solution = plan(problem, Budget(400), 0)
    assert solution.objective_s == pytest.approx(best_s, rel=1e-6)
    assert solution.lower_bound_s is not None
    assert best_s * (1.0 - 1e-5) <= solution.lower_bound_s <= best_s


@pytest.mark.parametrize(
    ("objective", "costs", "shared"),
    [("latency", SEGMENT_COSTS, False), ("throughput", {}, False), ("latency", {}, True), ("throughput", {}, True)],
)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_its_bound_holds_for_throughput_where_segments_have_costs_and_where_devices_share_resources(
    objective: Objective, costs: dict[str, float], shared: bool, seed: int
) -> None:
    free, rng = random_problem(seed), np.random.default_rng(seed)
    devices = tuple(replace(device, **costs) for device in free.topology.devices)
    if shared:
        devices = tuple(sharing(rng, devices[0].memory_bytes, device) for device in devices)
    problem = problem_of(free.graph, replace(free.topology, devices=devices), free.op_time_s, objective)
    best_s = least(problem)
    assume(best_s <= problem.worst_case_s)
    solution = plan(problem, Budget(400), 0)
    assert solution.lower_bound_s is not None
    assert solution.lower_bound_s <= best_s <= solution.objective_s * (1.0 + 1e-9)


def test_it_proves_twenty_five_ops_on_two_devices_and_beats_its_start() -> None:
    rng = np.random.default_rng(5)
    tensors = [
        Tensor(f"o{i}", int(rng.integers(1, 30)), tuple({f"o{j}" for j in rng.integers(i + 1, min(25, i + 8), 2)}))
        for i in range(24)
    ]
    graph = OpGraph.build("layers", [Op(f"o{i}") for i in range(25)], tensors)
    problem = problem_of(graph, pair(latency_s=0.5), rng.uniform(1, 10, (25, 2)))
    solution = plan(problem, Budget(1000), 0)
    assert solution.lower_bound_s is not None
    assert solution.objective_s <= solution.lower_bound_s * (1.0 + 1e-5)
    assert solution.objective_s <= dict(solution.stages)["annealing"] <= dict(solution.stages)["start"]


def test_its_bound_holds_on_thirty_ops_where_the_solvers_simplifications_broke_it() -> None:
    # With presolve, probing and inprocessing OR-Tools 9.15.6755 "proves" 0.1029 s, and yet a placement takes 0.10253281 s.
    drawn = sample_devices(np.random.default_rng(2), DeviceRanges(num_devices=(3,), hosts_only_share=0.0))
    topology = replace(drawn, devices=tuple(replace(device, dispatch_overhead_s=0.0) for device in drawn.devices))
    graph = sample_graph(np.random.default_rng(106), 30, ("layered",))
    times = RooflineCost().op_time_s(graph, topology)
    times = np.where(np.array([device.kind.startswith("cpu") for device in topology.devices]), np.inf, times)
    solution = plan(problem_of(graph, topology, times), Budget(400), 0)
    assert solution.lower_bound_s is not None
    assert solution.lower_bound_s <= 0.102532807
    assert solution.objective_s <= solution.lower_bound_s * (1.0 + 1e-5)


def test_path_ticks_are_the_least_ticks_before_and_after_an_op() -> None:
    # A tensor of 10 bytes takes 1 s of latency and 1 s on the wire.
    graph = OpGraph.build("chain", [Op("a"), Op("b")], [Tensor("a", 10, ("b",))])
    schedule = IntervalModel(problem_of(graph, pair(), [[1.0, 5.0], [6.0, 1.0]]), 10.0)
    before, after = (ticks * schedule.tick_s for ticks in path_ticks(schedule))
    np.testing.assert_allclose(before, [[0, 0], [1, 3]], atol=1e-5)  # on y: over the wire from x, sooner than from y
    np.testing.assert_allclose(after, [[3, 1], [0, 0]], atol=1e-5)


def test_paths_keep_ops_of_one_unit_on_one_device() -> None:
    graph = OpGraph.build("unit", [Op("a", group="g"), Op("b", group="g")], [Tensor("a", 10, ("b",))])
    schedule = IntervalModel(problem_of(graph, pair(), [[1.0, 5.0], [6.0, 1.0]]), 10.0)
    before, after = (ticks * schedule.tick_s for ticks in path_ticks(schedule))
    np.testing.assert_allclose(before[1], [1, 5], atol=1e-5)
    np.testing.assert_allclose(after[0], [6, 1], atol=1e-5)


def test_a_memory_that_is_exactly_full_is_used_and_one_byte_less_is_not() -> None:
    # Two chains side by side on two devices take 4 s, and each needs 10 + 10 resident bytes and 5 + 5 live ones.
    ops = [Op(name, memory_bytes=10) for name in "abcd"]
    graph = OpGraph.build("chains", ops, [Tensor("a", 5, ("b",)), Tensor("c", 5, ("d",)), Tensor("b", 5), Tensor("d", 5)])  # fmt: skip
    full = plan(problem_of(graph, pair(30), np.full((4, 2), 2.0)), Budget(100), 0)
    short = problem_of(graph, pair(29), np.full((4, 2), 2.0))
    assert full.objective_s == 4.0
    assert least(short) > short.worst_case_s
    assert plan(short, Budget(100), 0).objective_s > short.worst_case_s


def test_an_op_that_waited_pays_the_overhead_and_is_kept_where_that_is_cheaper() -> None:
    # Apart: 2 s, then 1 s on the wire, 0.5 s of overhead and 2 s. On one device: 2 + 2 + 2 s.
    graph = OpGraph.build("fork", [Op("a"), Op("b"), Op("c")], [Tensor("a", 0, ("b", "c"))])
    apart = plan(problem_of(graph, pair(overhead_s=0.5), np.full((3, 2), 2.0)), Budget(100), 0)
    together = plan(problem_of(graph, pair(overhead_s=1.5), np.full((3, 2), 2.0)), Budget(100), 0)
    assert (apart.objective_s, together.objective_s) == (5.5, 6.0)
    assert together.lower_bound_s == pytest.approx(6.0)


def test_beyond_its_limits_it_places_without_a_bound() -> None:
    problem = random_problem(1)
    assert plan(problem, Budget(50), 0, OptimalConfig(max_transfers=0)).lower_bound_s is None
    coarse = plan(problem, Budget(50), 0, OptimalConfig(max_pairs=0))
    assert coarse.lower_bound_s is not None
    assert coarse.lower_bound_s <= least(problem)


def layers(num_ops: int, num_devices: int) -> Problem:
    """Too many ops for a quick proof."""
    rng = np.random.default_rng(0)
    topology = connected(*devices_of("d" * num_devices), latency_s=0.5, bandwidth=10.0)
    return problem_of(random_reads(rng, num_ops, (1, 30)), topology, rng.uniform(1, 10, (num_ops, num_devices)))


def test_where_only_seconds_end_the_search_annealing_and_every_pass_have_a_share_of_them() -> None:
    # Without its share of seconds this annealing would take them all; with this tolerance nothing counts as proven.
    config = OptimalConfig(annealing_evaluations_per_unit=10**9, tolerance=-1.0)
    solution = plan(layers(6, 2), Budget(None, seconds=6.0), 0, config)
    assert [name for name, _ in solution.stages] == [
        "start", "annealing", "relaxed rules", "never idle", "simulator's rules",
    ]  # fmt: skip
    assert solution.lower_bound_s is not None
    assert 0.0 < solution.lower_bound_s <= solution.objective_s


def test_solutions_are_evaluated_though_the_solver_uses_all_of_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(OpGraph.build("two", [Op("a"), Op("b")]), pair(), [[3.0, 4.0], [3.0, 4.0]])
    granted: list[float] = []

    def found_one(search: Search, _: object, work: float, seconds: float) -> float:
        granted.append(seconds)
        assert work == np.inf
        search._begin_s -= seconds  # as if they had passed
        assert search.remaining
        return 1.0

    monkeypatch.setattr(optimal, "_replay", found_one)
    monkeypatch.setattr(optimal, "_begin", lambda search, *_: search.evaluate(Placement(np.array([0, 0]))))
    plan(problem, Budget(None, seconds=1000.0), 0)
    assert granted == pytest.approx([475.0, 237.5, 237.5], rel=0.05)


def test_an_unlimited_budget_ends_by_deterministic_time() -> None:
    solution = plan(layers(12, 3), Budget(None, None), 0, OptimalConfig(unlimited_work=0.05))
    assert solution.evaluations >= 50 * 12


def test_no_pass_begins_without_deterministic_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal, "_replay", lambda *_: 1e9)
    assert [name for name, _ in plan(layers(6, 2), Budget(1000), 0).stages] == ["start", "annealing", "relaxed rules"]


def test_solutions_from_before_an_interrupt_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(OpGraph.build("two", [Op("a"), Op("b")]), pair(), [[3.0, 4.0], [3.0, 4.0]])

    def found_one(_: object, __: object, found: list[Placement]) -> None:
        found.append(Placement(np.array([0, 1])))
        raise KeyboardInterrupt

    monkeypatch.setattr(optimal, "_solve", found_one)
    monkeypatch.setattr(optimal, "_begin", lambda search, *_: search.evaluate(Placement(np.array([0, 0]))))
    solution = plan(problem, Budget(100), 0)
    assert solution.interrupted
    assert solution.objective_s == 4.0


def test_devices_are_interchangeable_only_if_times_memories_and_links_are_equal() -> None:
    graph = OpGraph.build("one", [Op("a")])
    k40x4 = preset("k40x4")
    times = np.array([[1.0, 1.0, 1.0, 1.0, 9.0]])
    assert interchangeable_devices(problem_of(graph, k40x4, times)) == [[0, 1, 2, 3]]
    times[0, 2] = 2.0
    assert interchangeable_devices(problem_of(graph, k40x4, times)) == [[0, 1, 3]]
    one_way = replace(pair(), links=pair().links[:1])
    assert interchangeable_devices(problem_of(graph, one_way, [[1.0, 1.0]])) == []
    uneven = replace(pair(), links=(Link("x", "y", 1.0, 10.0), Link("y", "x", 2.0, 10.0)))
    assert interchangeable_devices(problem_of(graph, uneven, [[1.0, 1.0]])) == []


def test_interchangeable_devices_are_named_in_order_of_first_use() -> None:
    assert in_order(np.array([3, 1, 3, 0, 2]), [[1, 2, 3]]).tolist() == [1, 2, 1, 0, 3]


def test_over_op_groups_it_searches_without_a_bound() -> None:
    problem = replace(random_problem(1), grouped=True)
    solution = plan(problem, Budget(100), 0)
    assert solution.lower_bound_s is None
    assert [name for name, _ in solution.stages] == ["start", "annealing", "relaxed rules"]


def test_what_fits_is_found_on_tiny_graphs_where_neither_annealing_nor_the_solver_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def all_on_one(search: Search) -> tuple[np.ndarray, float, bool]:
        value = float(search.evaluate_batch(np.zeros((1, 5), dtype=np.int64))[0])
        return np.zeros(5, dtype=np.int64), value, True

    monkeypatch.setattr(optimal, "best_start", all_on_one)
    monkeypatch.setattr(optimal, "anneal", lambda *_: None)
    monkeypatch.setattr(optimal, "_solve_in_passes", lambda *_: None)
    ops = [Op(f"o{i}", memory_bytes=size) for i, size in enumerate((6, 5, 4, 3, 2))]
    problem = problem_of(OpGraph.build("tight", ops), (Device("a", "d", 10), Device("b", "d", 10)))
    solution = plan(problem, Budget(200), 0)
    assert solution.placement.assignment.tolist() in ([0, 1, 0, 1, 1], [1, 0, 1, 0, 0])
    assert solution.objective_s == 3.0
    assert plan(problem, Budget(20), 0).objective_s > problem.worst_case_s  # too few for all 32 placements
