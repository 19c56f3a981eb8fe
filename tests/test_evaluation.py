"""Problems: units of decision, masks, and the order that penalties give."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import EvaluationBatch
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from tests.problems import problem_of
from tests.random_problems import random_graph, random_times, random_topology


def test_units_are_colocation_groups_and_free_ops_in_topological_order() -> None:
    graph = OpGraph.build(
        "g",
        [Op("late", group="q"), Op("a"), Op("b", group="q"), Op("c")],
        [Tensor("c", 1, ("a",)), Tensor("a", 1, ("late",))],
    )
    problem = problem_of(graph, Topology("t", (Device("d"),)), np.ones((4, 1)))
    assert problem.num_units == 3
    assert [problem.unit_of_op[op] for op in (0, 2)] == [problem.unit_of_op[0]] * 2
    assert sorted(op for ops in problem.unit_ops for op in ops.tolist()) == [0, 1, 2, 3]
    assert all((problem.unit_of_op[ops] == unit).all() for unit, ops in enumerate(problem.unit_ops))


def test_a_unit_may_run_where_all_of_its_ops_can_run() -> None:
    graph = OpGraph.build("g", [Op("a", group="q"), Op("b", group="q"), Op("c", devices=("e",))])
    topology = Topology("t", (Device("d"), Device("e")))
    problem = problem_of(graph, topology, np.array([[1.0, np.inf], [1.0, 1.0], [1.0, 1.0]]))
    assert problem.action_mask.tolist() == [[True, False], [False, True]]


def test_moves_are_pairs_of_a_unit_and_another_allowed_device() -> None:
    graph = OpGraph.build("g", [Op("free"), Op("tied", devices=("e",)), Op("a", group="q"), Op("b", group="q")])
    topology = Topology("t", (Device("d"), Device("e"), Device("f")))
    times = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, np.inf, 1.0], [1.0, 1.0, 1.0]])
    assert problem_of(graph, topology, times).num_moves == 2 + 0 + 1
    nowhere = np.array([[np.inf, np.inf, np.inf], *times[1:]])
    assert problem_of(graph, topology, nowhere).num_moves == 1  # an op that can run nowhere does not reduce the number


def test_edges_between_units_are_listed_once_and_neighbours_in_both_directions() -> None:
    ops, tensors = [Op("a", group="q"), Op("b", group="q"), Op("c"), Op("d")], [
        Tensor("a", 1, ("b", "c")), Tensor("b", 1, ("c",)), Tensor("c", 1, ("d",))
    ]  # fmt: skip
    problem = problem_of(OpGraph.build("g", ops, tensors), Topology("t", (Device("d"),)))
    assert problem.unit_edges.tolist() == [[0, 1], [1, 2]]
    assert problem.unit_graph.neighbour_offsets.tolist() == [0, 1, 3, 4]
    assert problem.unit_graph.neighbours.tolist() == [1, 0, 2, 1]


def test_single_device_assignments_begin_with_the_most_promising_and_list_equal_devices_once() -> None:
    graph = OpGraph.build("g", [Op("a"), Op("b", memory_bytes=8)])
    topology = Topology("t", tuple(Device(name, memory_bytes=size) for name, size in (("x", 4), ("y", 8), ("z", 8))))
    times = np.array([[1.0, 2.0, 2.0], [1.0, 2.0, 2.0]])
    assert problem_of(graph, topology, times).single_device_assignments.tolist() == [[1, 1], [0, 0]]
    forbidden = np.array([[np.inf, 2.0, 3.0], [1.0, 2.0, 3.0]])  # devices without links share nothing
    problem = problem_of(graph, topology, forbidden)
    assert problem.single_device_assignments.tolist() == [[1, 1], [2, 2], [1, 0]]
    assert problem.unit_time_s.tolist() == forbidden.tolist()


def test_units_with_one_allowed_device_are_not_movable() -> None:
    graph = OpGraph.build("g", [Op("a"), Op("b", devices=("e",))])
    assert problem_of(graph, Topology("t", (Device("d"), Device("e")))).movable_units.tolist() == [0]


def test_an_empty_graph_has_no_unit() -> None:
    problem = problem_of(OpGraph.build("g", []), Topology("t", (Device("d"),)), np.zeros((0, 1)))
    assert (problem.num_units, problem.unit_ops, problem.action_mask.shape) == (0, (), (0, 1))
    assert (problem.num_moves, problem.single_device_assignments.shape) == (0, (1, 0))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=144)  # one device; another order of additions gives slightly more seconds
def test_feasible_placements_are_better_and_less_shortfall_is_better(seed: int) -> None:
    generator = np.random.default_rng(seed)
    graph, topology = random_graph(generator), random_topology(generator)
    problem = problem_of(graph, topology, random_times(generator, graph, topology))
    assignments = generator.integers(0, topology.num_devices, (12, graph.num_ops))
    batch = problem.evaluator.evaluate_batch(assignments)
    values = problem.penalised_batch_s(batch)
    fits = batch.shortfall_bytes == 0
    assert (batch.makespan_s[fits] <= problem.worst_case_s).all()
    assert values[fits].max(initial=0.0) < values[~fits].min(initial=np.inf)
    assert values.tolist() == [problem.penalised_s(problem.evaluator.evaluate(Placement(row))) for row in assignments]
    more = EvaluationBatch(batch.makespan_s, batch.period_s, batch.shortfall_bytes + 1)
    assert (problem.penalised_batch_s(more) > values).all() or not np.isfinite(values).all()


def test_throughput_minimises_the_period() -> None:
    graph = OpGraph.build("g", [Op("a"), Op("b")], [Tensor("a", 1, ("b",))])
    topology = Topology("t", (Device("d"), Device("e")), (Link("d", "e", 0.0, 1e9),))
    placement = Placement(np.array([0, 1]))
    for objective, expected in (("latency", 5.0), ("throughput", 3.0)):
        problem = problem_of(graph, topology, np.array([[2.0, 2.0], [3.0, 3.0]]), objective)
        assert round(problem.penalised_s(problem.evaluator.evaluate(placement)), 6) == expected
