"""Segments, greedy and annealing on instances whose optimum is known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Objective, Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical import annealing, greedy, heft, round_robin, segments, single
from gnnplace.sim.simulator import Simulator


def make_problem(graph: OpGraph, devices: tuple[Device, ...], times: np.ndarray, objective: Objective = "latency",
                 latency_s: float = 1.0) -> Problem:  # fmt: skip
    links = tuple(Link(a.name, b.name, latency_s, 1e3) for a, b in itertools.permutations(devices, 2))
    topology = Topology("connected", devices, links)
    simulator = Simulator(graph, topology, times)
    return Problem(graph, topology, times, simulator, simulator, objective)


def chain(length: int, memory_bytes: int = 0) -> OpGraph:
    ops = [Op(f"o{i}", memory_bytes=memory_bytes) for i in range(length)]
    return OpGraph.build("chain", ops, [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(length - 1)])


def two_towers(length: int) -> OpGraph:
    ops = [Op(f"{side}{i}") for i in range(length) for side in "lr"]
    tensors = [Tensor(f"{side}{i}", 1, (f"{side}{i + 1}",)) for i in range(length - 1) for side in "lr"]
    return OpGraph.build("towers", ops, tensors)


def optimum(problem: Problem) -> float:
    """By trying everything."""
    choices = itertools.product(range(problem.topology.num_devices), repeat=problem.graph.num_ops)
    batch = problem.evaluator.evaluate_batch(np.array(list(choices), dtype=np.int64))
    return float(problem.penalised_batch_s(batch).min())


def test_round_robin_takes_devices_in_turn_and_skips_those_that_are_not_allowed() -> None:
    ops = [Op("a"), Op("b"), Op("c", devices=("d0",)), Op("d")]
    problem = make_problem(OpGraph.build("four", ops), tuple(Device(f"d{i}") for i in range(3)), np.ones((4, 3)))
    assert round_robin.plan(problem, Budget(9), 0).placement.assignment.tolist() == [0, 1, 0, 1]


def test_single_skips_devices_that_cannot_be_told_apart() -> None:
    problem = make_problem(chain(3), tuple(Device(f"d{i}") for i in range(8)), np.ones((3, 8)))
    assert single.plan(problem, Budget(99), 0).evaluations == 1


def test_single_takes_the_slower_device_when_only_that_one_holds_the_graph() -> None:
    devices = Device("fast", memory_bytes=29), Device("slow", memory_bytes=30)
    problem = make_problem(chain(3, memory_bytes=10), devices, np.array([[1.0, 2.0]] * 3))
    assert single.plan(problem, Budget(9), 0).placement.assignment.tolist() == [1, 1, 1]


def test_single_lets_the_others_follow_the_best_device() -> None:
    ops = [Op("a"), Op("b", devices=("cpu",)), Op("c")]
    graph = OpGraph.build("pinned", ops, [Tensor("a", 1, ("b",)), Tensor("b", 1, ("c",))])
    devices = Device("gpu"), Device("cpu")
    problem = make_problem(graph, devices, np.array([[1.0, 9.0]] * 3))
    assert single.plan(problem, Budget(9), 0).placement.assignment.tolist() == [0, 1, 0]


def test_segments_cuts_a_chain_where_the_memory_ends_and_nowhere_else() -> None:
    devices = Device("x", memory_bytes=40), Device("y", memory_bytes=30), Device("z", memory_bytes=30)
    problem = make_problem(chain(6, memory_bytes=10), devices, np.ones((6, 3)))
    solution = segments.plan(problem, Budget(500), 0)
    assert solution.objective_s == 7.0  # six seconds of work and one transfer
    assert solution.objective_s == optimum(problem)


def test_segments_uses_the_host_again_between_devices() -> None:
    ops = [Op(f"o{i}", memory_bytes=10) for i in range(5)]
    graph = OpGraph.build("chain", ops, [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(4)])
    # The host is quick for the first and last op only; the accelerator holds the three between them.
    times = np.array([[9.0, 1.0], [1.0, 9.0], [1.0, 9.0], [1.0, 9.0], [9.0, 1.0]])
    problem = make_problem(graph, (Device("gpu", "gpu"), Device("host", "cpu")), times)
    solution = segments.plan(problem, Budget(500), 0)
    assert solution.placement.assignment.tolist() == [1, 0, 0, 0, 1]
    assert solution.objective_s == optimum(problem) == 7.0


def test_segments_balances_a_pipeline() -> None:
    problem = make_problem(chain(6), (Device("x"), Device("y")), np.ones((6, 2)), "throughput")
    assert segments.plan(problem, Budget(500), 0).objective_s == 3.0


@pytest.mark.parametrize("planner", [heft, greedy, annealing, segments])
def test_two_towers_run_side_by_side(planner: object) -> None:
    problem = make_problem(two_towers(5), (Device("x"), Device("y")), np.ones((10, 2)))
    assert planner.plan(problem, Budget(500), 0).objective_s == 5.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(4))
def test_annealing_finds_the_optimum_of_small_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = [Tensor(f"o{i}", int(rng.integers(0, 3000)), (f"o{rng.integers(i + 1, 8)}",)) for i in range(7)]
    graph = OpGraph.build("small", [Op(f"o{i}") for i in range(8)], tensors)
    problem = make_problem(graph, (Device("x"), Device("y")), rng.uniform(1.0, 9.0, (8, 2)), latency_s=0.5)
    assert annealing.plan(problem, Budget(2000), seed).objective_s == pytest.approx(optimum(problem), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_greedy_ends_where_no_single_move_helps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = [Tensor(f"o{i}", int(rng.integers(0, 3000)), (f"o{rng.integers(i + 1, 20)}",)) for i in range(19)]
    graph = OpGraph.build("small", [Op(f"o{i}") for i in range(20)], tensors)
    problem = make_problem(graph, (Device("x"), Device("y")), rng.uniform(1.0, 9.0, (20, 2)))
    solution = greedy.plan(problem, Budget(None), 0)
    flips = np.tile(solution.placement.assignment, (20, 1))
    flips[np.arange(20), np.arange(20)] ^= 1
    assert (problem.evaluator.evaluate_batch(flips).makespan_s >= solution.objective_s).all()
    assert solution.objective_s <= min(
        single.plan(problem, Budget(9), 0).objective_s, heft.plan(problem, Budget(9), 0).objective_s
    )


def test_annealing_ends_when_the_seconds_are_over() -> None:
    problem = make_problem(two_towers(5), (Device("x"), Device("y")), np.ones((10, 2)))
    solution = annealing.plan(problem, Budget(None, seconds=0.2), 0)
    assert solution.evaluations > 2
    assert not solution.interrupted
