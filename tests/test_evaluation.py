"""Problems: units of decision, masks, and the order that penalties give."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import EvaluationBatch, Evaluator, Problem, ScheduleEstimator
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.sim.simulator import Simulator
from tests.parity.random_problems import random_graph, random_times, random_topology


def problem_of(graph: OpGraph, topology: Topology, times: np.ndarray, objective: str = "latency") -> Problem:
    simulator = Simulator(graph, topology, times)
    return Problem(graph, topology, times, simulator, simulator, objective)  # type: ignore[arg-type]


def test_the_simulator_is_an_evaluator_and_an_estimator() -> None:
    simulator = Simulator(OpGraph.build("g", [Op("a")]), Topology("t", (Device("d"),)), np.ones((1, 1)))
    assert isinstance(simulator, Evaluator)
    assert isinstance(simulator, ScheduleEstimator)


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


def test_a_unit_may_go_where_all_of_its_ops_can_run() -> None:
    graph = OpGraph.build("g", [Op("a", group="q"), Op("b", group="q"), Op("c", devices=("e",))])
    topology = Topology("t", (Device("d"), Device("e")))
    problem = problem_of(graph, topology, np.array([[1.0, np.inf], [1.0, 1.0], [1.0, 1.0]]))
    assert problem.action_mask.tolist() == [[True, False], [False, True]]


def test_moves_are_the_pairs_of_a_unit_and_another_device_that_it_may_go_to() -> None:
    graph = OpGraph.build("g", [Op("free"), Op("tied", devices=("e",)), Op("a", group="q"), Op("b", group="q")])
    topology = Topology("t", (Device("d"), Device("e"), Device("f")))
    times = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, np.inf, 1.0], [1.0, 1.0, 1.0]])
    assert problem_of(graph, topology, times).num_moves == 2 + 0 + 1
    nowhere = np.array([[np.inf, np.inf, np.inf], *times[1:]])
    assert problem_of(graph, topology, nowhere).num_moves == 1  # and not less for what can run nowhere


def test_an_empty_graph_has_no_unit() -> None:
    problem = problem_of(OpGraph.build("g", []), Topology("t", (Device("d"),)), np.zeros((0, 1)))
    assert (problem.num_units, problem.unit_ops, problem.action_mask.shape) == (0, (), (0, 1))
    assert problem.num_moves == 0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=144)  # one device, whose seconds add up to a little more in another order
def test_what_fits_is_better_than_what_does_not_and_less_shortfall_is_better(seed: int) -> None:
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
