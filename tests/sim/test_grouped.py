"""Op groups are simulated op by op."""

import numpy as np
import pytest

from gnnplace.api import set_up
from gnnplace.devices.presets import preset
from gnnplace.evaluation import Evaluator, ScheduleEstimator
from gnnplace.graph import Op, OpGraph, Tensor
from gnnplace.graph.coarsen import coarsen
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.sim.simulator import GroupedSimulator, Simulator


def grouped() -> GroupedSimulator:
    simulator = set_up("zoo:layered_200", "k40x2", max_groups=12).problem().evaluator
    assert isinstance(simulator, GroupedSimulator)
    return simulator


def test_a_group_does_not_wait_for_inputs_that_only_its_later_ops_need() -> None:
    ops = [Op(name, time_s={"gpu": 1.0}) for name in ("a", "b", "c")]
    graph = OpGraph.build("late", ops, [Tensor("a", 1, ("c",)), Tensor("b", 1, ("c",))])
    assert graph.num_ops == 3
    topology = preset("k40x2")
    times = np.ones((3, topology.num_devices))
    # b and c are one group, which as one op would begin after a.
    coarsening = coarsen(graph, 2)
    assert coarsening.graph.num_ops == 2
    simulator = Simulator(graph, topology, times).over_groups(coarsening)
    apart = np.arange(2)
    assert simulator.groups.evaluate(Placement(apart)).makespan_s > 3.0
    assert 2.0 < simulator.evaluate(Placement(apart)).makespan_s < 2.1


def test_a_placement_of_groups_costs_as_much_as_that_of_their_ops() -> None:
    simulator = grouped()
    rng = np.random.default_rng(0)
    assignments = rng.integers(0, 3, (6, simulator.coarsening.graph.num_ops))
    whole = [simulator.whole.evaluate(Placement(simulator.coarsening.expand(row))) for row in assignments]
    batch = simulator.evaluate_batch(assignments)
    assert batch.makespan_s.tolist() == [evaluation.makespan_s for evaluation in whole]
    assert [simulator.evaluate(Placement(row)).makespan_s for row in assignments] == batch.makespan_s.tolist()
    assert isinstance(simulator, Evaluator)
    assert isinstance(simulator, ScheduleEstimator)


def test_a_move_of_a_group_costs_what_the_moved_placement_costs() -> None:
    simulator = grouped()
    rng = np.random.default_rng(1)
    count = simulator.coarsening.graph.num_ops
    assignment, units, devices = rng.integers(0, 3, count), rng.integers(0, count, 8), rng.integers(0, 3, 8)
    moved = np.where(np.arange(count)[None, :] == units[:, None], devices[:, None], assignment)
    expected = simulator.evaluate_batch(moved).makespan_s.tolist()
    assert simulator.evaluate_moves(assignment, units, devices).makespan_s.tolist() == expected
    masks = np.arange(count)[None, :] == units[:, None]
    assert simulator.evaluate_moves(assignment, masks, devices).makespan_s.tolist() == expected


def test_the_ops_of_a_group_have_its_priority() -> None:
    simulator = grouped()
    count = simulator.coarsening.graph.num_ops
    assignment, priorities = np.zeros(count, dtype=np.int64), np.arange(count, dtype=np.float64)
    spread = Placement(simulator.coarsening.expand(assignment), simulator.coarsening.expand(priorities))
    found = simulator.evaluate(Placement(assignment, priorities)).makespan_s
    assert found == simulator.whole.evaluate(spread).makespan_s


@pytest.mark.parametrize("planner", ["heft", "annealing", "gnn"])
def test_a_planners_result_on_groups_equals_the_seconds_of_the_whole_graph(planner: str) -> None:
    setup = set_up("zoo:layered_200", "k40x2", max_groups=20)
    solution = load_planner(planner)(setup.problem(), Budget(60), 0)
    placement = solution.placement.expanded(setup.coarsening.group_of_op)
    assert setup.simulator.evaluate(placement).makespan_s == solution.objective_s
