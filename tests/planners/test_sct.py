"""m-SCT: the linear program by hand, and what a favourite child changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidInput
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.graph.orders import longest_path
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical import etf, sct
from gnnplace.planners.classical.etf import earliest_task_schedule
from gnnplace.planners.classical.sct import SctConfig, favourite_children
from gnnplace.sim.simulator import Simulator


def problem_of(graph: OpGraph, seconds: list[float], num_devices: int = 2) -> Problem:
    """Devices that are alike, with links between all; a byte takes a second."""
    devices = tuple(Device(f"d{i}") for i in range(num_devices))
    links = tuple(Link(a.name, b.name, 0.0, 1.0) for a, b in itertools.permutations(devices, 2))
    times = np.repeat(np.array(seconds, dtype=np.float64)[:, None], num_devices, axis=1)
    topology = Topology("alike", devices, links)
    simulator = Simulator(graph, topology, times)
    return Problem(graph, topology, times, simulator, simulator)


def fork(seconds: list[float]) -> Problem:
    ops = [Op("root"), Op("left"), Op("right")]
    return problem_of(OpGraph.build("fork", ops, [Tensor("root", 1, ("left", "right"))]), seconds)


def test_equal_children_pay_half_of_the_transfer_each() -> None:
    solved = favourite_children(fork([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(solved.paid_share, [0.5, 0.5])
    assert solved.makespan_s == pytest.approx(2.5)
    assert solved.favourite.tolist() == [-1, -1, -1]


def test_the_child_with_the_longer_way_is_the_favourite() -> None:
    solved = favourite_children(fork([1.0, 1.0, 3.0]))
    np.testing.assert_allclose(solved.paid_share, [1.0, 0.0], atol=1e-9)
    assert solved.makespan_s == pytest.approx(4.0)
    assert solved.favourite.tolist() == [2, -1, -1]


def test_a_child_is_the_favourite_of_the_parent_that_ends_last() -> None:
    ops = [Op("early"), Op("late"), Op("join")]
    graph = OpGraph.build("join", ops, [Tensor("early", 1, ("join",)), Tensor("late", 1, ("join",))])
    solved = favourite_children(problem_of(graph, [1.0, 3.0, 1.0]))
    assert solved.favourite.tolist() == [-1, 2, -1]
    assert solved.makespan_s == pytest.approx(4.0)


def test_several_tensors_between_two_ops_are_one_transfer_of_their_sum() -> None:
    ops = [Op("root"), Op("left"), Op("right")]
    tensors = [Tensor("root", 1, ("left",)), Tensor("root", 1, ("left",)), Tensor("root", 1, ("right",))]
    solved = favourite_children(problem_of(OpGraph.build("fork", ops, tensors), [1.0, 1.0, 1.0]))
    # 2 x = y and x + y = 1.
    np.testing.assert_allclose(solved.paid_share, [1 / 3, 2 / 3])


@pytest.mark.parametrize("seed", range(10))
def test_the_program_is_between_the_longest_path_without_and_with_transfers(seed: int) -> None:
    problem = random_problem(seed)
    graph, seconds = problem.graph, problem.op_time_s[:, 0]
    path = longest_path(graph.topological_order, seconds, graph.successor_offsets, graph.successors)
    solved = favourite_children(problem, threshold=0.5)
    assert path - 1e-9 <= solved.makespan_s <= path + 9.0 * graph.num_ops
    for ends in (solved.producers, solved.consumers):
        paid = np.bincount(ends, solved.paid_share, graph.num_ops)
        assert (paid >= np.bincount(ends, minlength=graph.num_ops) - 1 - 1e-7).all()
    children = solved.favourite[solved.favourite >= 0]
    assert len(set(children.tolist())) == len(children)  # nobody's child twice


def random_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    tensors = [
        Tensor(f"o{a}", int(rng.integers(1, 9)), tuple({f"o{b}" for b in rng.integers(a + 1, 30, 2)}))
        for a in range(29)
    ]
    graph = OpGraph.build("random", [Op(f"o{i}") for i in range(30)], tensors)
    return problem_of(graph, rng.integers(1, 6, 30).tolist(), 3)


def reservation() -> Problem:
    """On d0 `parent` ends at 1; `child` also waits for 2 s for `other`, `sibling` for nothing else."""
    ops = [Op("parent"), Op("other"), Op("child"), Op("sibling")]
    tensors = [Tensor("parent", 10, ("child",)), Tensor("parent", 1, ("sibling",)), Tensor("other", 2, ("child",))]
    return problem_of(OpGraph.build("reservation", ops, tensors), [1.0, 1.0, 4.0, 4.0])


def test_without_favourites_the_sibling_takes_the_device() -> None:
    schedule = earliest_task_schedule(reservation())
    assert schedule.assignment.tolist() == [0, 1, 0, 0]
    assert schedule.start_s.tolist() == [0.0, 0.0, 5.0, 1.0]


def test_a_device_keeps_itself_free_for_the_favourite_child() -> None:
    schedule = earliest_task_schedule(reservation(), favourite=np.array([2, -1, -1, -1]))
    assert schedule.assignment.tolist() == [0, 1, 0, 1]
    assert schedule.start_s.tolist() == [0.0, 0.0, 3.0, 2.0]


def test_an_op_that_could_run_anywhere_by_now_does_not_wait_for_the_favourite_child() -> None:
    ops = [Op("parent"), Op("other"), Op("child"), Op("idler"), Op("busy")]
    tensors = [Tensor("parent", 20, ("child",)), Tensor("other", 9, ("child",)), Tensor("other", 2, ("busy",))]
    # idler has no input, but no device has time for it before d0 waits for child, from 1 to 10.
    problem = problem_of(OpGraph.build("urgent", ops, tensors), [1.0, 1.0, 4.0, 1.0, 9.0])
    schedule = earliest_task_schedule(problem, favourite=np.array([2, -1, -1, -1, -1]))
    assert schedule.assignment.tolist() == [0, 1, 0, 0, 1]
    assert schedule.start_s.tolist() == [0.0, 0.0, 10.0, 1.0, 1.0]


def test_the_linear_program_finds_the_reservation() -> None:
    problem = reservation()
    solved = favourite_children(problem, threshold=0.5)
    # The child starts at 1 + 10 x = 1 + 2 (1 - x), where x is what it pays of the transfer from its parent.
    assert solved.paid_share[solved.producers == 0][0] == pytest.approx(1 / 6)
    assert solved.makespan_s == pytest.approx(1 + 10 / 6 + 4)
    assert solved.favourite.tolist() == [2, -1, -1, -1]
    assert sct.plan(problem, Budget(9), 0, SctConfig(threshold=0.5)).objective_s == 7.0
    assert etf.plan(problem, Budget(1), 0).objective_s == 9.0


def test_without_favourite_children_m_sct_is_m_etf() -> None:
    problem = random_problem(0)
    solution = sct.plan(problem, Budget(9), 0, SctConfig(threshold=0.0))
    np.testing.assert_array_equal(solution.placement.assignment, etf.plan(problem, Budget(9), 0).placement.assignment)


def test_a_program_without_time_to_be_solved_names_no_favourite() -> None:
    assert (favourite_children(random_problem(0), limit_s=0.0).favourite == -1).all()


def test_a_graph_without_tensors_or_without_any_time_has_no_favourites() -> None:
    assert favourite_children(problem_of(OpGraph.build("none", [Op("a"), Op("b")]), [1.0, 1.0])).favourite.tolist() == [
        -1,
        -1,
    ]
    graph = OpGraph.build("zero", [Op("a"), Op("b")], [Tensor("a", 0, ("b",))])
    assert favourite_children(problem_of(graph, [0.0, 0.0])).favourite.tolist() == [-1, -1]


@pytest.mark.parametrize("threshold", [-0.1, 0.6, float("nan")])
def test_a_threshold_with_which_an_op_could_have_two_favourites_is_refused(threshold: float) -> None:
    with pytest.raises(InvalidInput, match=r"expected 0 \(no favourite children\) to 0.5"):
        SctConfig(threshold=threshold)
