"""Single, round-robin and greedy on instances with a known answer."""

import numpy as np
import pytest

from gnnplace.devices.topology import Device
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical import annealing, heft, segments
from gnnplace.planners.classical.baselines import plan_greedy, plan_round_robin, plan_single
from gnnplace.planners.solution import Budget, Planner
from tests.problems import chain, devices_of, problem_of, random_reads, two_chains


def test_round_robin_takes_devices_in_turn_and_skips_those_that_are_not_allowed() -> None:
    ops = [Op("a"), Op("b"), Op("c", devices=("d0",)), Op("d")]
    problem = problem_of(OpGraph.build("four", ops), devices_of("ddd"), 1.0)
    assert plan_round_robin(problem, Budget(9), 0).placement.assignment.tolist() == [0, 1, 0, 1]


def test_single_takes_the_slower_device_when_only_that_one_holds_the_graph() -> None:
    devices = Device("fast", memory_bytes=29), Device("slow", memory_bytes=30)
    problem = problem_of(chain(3, memory_bytes=10), devices, [1.0, 2.0])
    assert plan_single(problem, Budget(9), 0).placement.assignment.tolist() == [1, 1, 1]


def test_single_moves_only_the_ops_that_may_not_run_on_the_best_device() -> None:
    ops = [Op("a"), Op("b", devices=("cpu",)), Op("c")]
    graph = OpGraph.build("pinned", ops, [Tensor("a", 1, ("b",)), Tensor("b", 1, ("c",))])
    devices = Device("gpu"), Device("cpu")
    problem = problem_of(graph, devices, [1.0, 9.0])
    assert plan_single(problem, Budget(9), 0).placement.assignment.tolist() == [0, 1, 0]


@pytest.mark.parametrize("planner", [heft.plan, plan_greedy, annealing.plan, segments.plan])
def test_two_chains_run_side_by_side(planner: Planner) -> None:
    assert planner(two_chains(5), Budget(500), 0).objective_s == 5.0


@pytest.mark.parametrize("seed", range(4))
def test_greedy_ends_where_no_single_move_helps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(random_reads(rng, 20, (0, 3000), readers=1), devices_of("dd"), rng.uniform(1.0, 9.0, (20, 2)))
    solution = plan_greedy(problem, Budget(None), 0)
    flips = np.tile(solution.placement.assignment, (20, 1))
    flips[np.arange(20), np.arange(20)] ^= 1
    assert (problem.evaluator.evaluate_batch(flips).makespan_s >= solution.objective_s).all()
    assert solution.objective_s <= min(
        plan_single(problem, Budget(9), 0).objective_s, heft.plan(problem, Budget(9), 0).objective_s
    )
