"""m-SCT: the linear program by hand, and the effect of favourite children."""

import time

import numpy as np
import pytest

from gnnplace.errors import InvalidInput
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical import etf, sct
from gnnplace.planners.classical.etf import earliest_task_schedule
from gnnplace.planners.classical.sct import FavouriteChildren, SctConfig, favourite_children
from gnnplace.planners.solution import Budget
from tests.problems import connected, devices_of, problem_of, random_reads


def alike(graph: OpGraph, seconds: list[float], num_devices: int = 2) -> Problem:
    """Devices that are alike, with links between all; a byte takes a second."""
    return problem_of(graph, connected(*devices_of("d" * num_devices)), np.array(seconds, dtype=np.float64)[:, None])


def fork(seconds: list[float]) -> Problem:
    ops = [Op("root"), Op("left"), Op("right")]
    return alike(OpGraph.build("fork", ops, [Tensor("root", 1, ("left", "right"))]), seconds)


def test_equal_children_pay_half_of_the_transfer_each() -> None:
    program = favourite_children(fork([1.0, 1.0, 1.0]))
    np.testing.assert_allclose(program.paid_share, [0.5, 0.5])
    assert program.makespan_s == pytest.approx(2.5)
    assert program.favourite.tolist() == [-1, -1, -1]


def test_the_child_with_the_longer_way_is_the_favourite() -> None:
    program = favourite_children(fork([1.0, 1.0, 3.0]))
    np.testing.assert_allclose(program.paid_share, [1.0, 0.0], atol=1e-9)
    assert program.makespan_s == pytest.approx(4.0)
    assert program.favourite.tolist() == [2, -1, -1]


def test_a_child_is_the_favourite_of_the_parent_that_ends_last() -> None:
    ops = [Op("early"), Op("late"), Op("join")]
    graph = OpGraph.build("join", ops, [Tensor("early", 1, ("join",)), Tensor("late", 1, ("join",))])
    program = favourite_children(alike(graph, [1.0, 3.0, 1.0]))
    assert program.favourite.tolist() == [-1, 2, -1]
    assert program.makespan_s == pytest.approx(4.0)


def test_several_tensors_between_two_ops_are_one_transfer_of_their_sum() -> None:
    ops = [Op("root"), Op("left"), Op("right")]
    tensors = [Tensor("root", 1, ("left",)), Tensor("root", 1, ("left",)), Tensor("root", 1, ("right",))]
    program = favourite_children(alike(OpGraph.build("fork", ops, tensors), [1.0, 1.0, 1.0]))
    # 2 x = y and x + y = 1.
    np.testing.assert_allclose(program.paid_share, [1 / 3, 2 / 3])


@pytest.mark.parametrize("seed", range(10))
def test_the_program_is_between_the_longest_path_without_and_with_transfers(seed: int) -> None:
    problem = random_problem(seed)
    graph, seconds = problem.graph, problem.op_time_s[:, 0]
    path = float(graph.upward_rank(seconds).max())
    program = favourite_children(problem, threshold=0.5)
    assert path - 1e-9 <= program.makespan_s <= path + 9.0 * graph.num_ops
    for ends in (program.producers, program.consumers):
        paid = np.bincount(ends, program.paid_share, graph.num_ops)
        assert (paid >= np.bincount(ends, minlength=graph.num_ops) - 1 - 1e-7).all()
    children = program.favourite[program.favourite >= 0]
    assert len(set(children.tolist())) == len(children)  # no op is the child of two


def random_problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    graph = random_reads(rng, 30, (1, 9))
    return alike(graph, rng.integers(1, 6, 30).tolist(), 3)


def reservation() -> Problem:
    """On d0 `parent` ends at 1; `child` also waits for 2 s for `other`, `sibling` for nothing else."""
    ops = [Op("parent"), Op("other"), Op("child"), Op("sibling")]
    tensors = [Tensor("parent", 10, ("child",)), Tensor("parent", 1, ("sibling",)), Tensor("other", 2, ("child",))]
    return alike(OpGraph.build("reservation", ops, tensors), [1.0, 1.0, 4.0, 4.0])


def test_without_favourites_the_sibling_takes_the_device() -> None:
    schedule = earliest_task_schedule(reservation())
    assert schedule.assignment.tolist() == [0, 1, 0, 0]
    assert schedule.start_s.tolist() == [0.0, 0.0, 5.0, 1.0]


def test_a_device_keeps_itself_free_for_the_favourite_child() -> None:
    schedule = earliest_task_schedule(reservation(), favourite=np.array([2, -1, -1, -1]))
    assert schedule.assignment.tolist() == [0, 1, 0, 1]
    assert schedule.start_s.tolist() == [0.0, 0.0, 3.0, 2.0]


def test_an_op_that_could_already_run_anywhere_does_not_wait_for_the_favourite_child() -> None:
    ops = [Op("parent"), Op("other"), Op("child"), Op("idler"), Op("busy")]
    tensors = [Tensor("parent", 20, ("child",)), Tensor("other", 9, ("child",)), Tensor("other", 2, ("busy",))]
    # idler has no input, but no device has time for it before d0 waits for child, from 1 to 10.
    problem = alike(OpGraph.build("urgent", ops, tensors), [1.0, 1.0, 4.0, 1.0, 9.0])
    schedule = earliest_task_schedule(problem, favourite=np.array([2, -1, -1, -1, -1]))
    assert schedule.assignment.tolist() == [0, 1, 0, 0, 1]
    assert schedule.start_s.tolist() == [0.0, 0.0, 10.0, 1.0, 1.0]


def test_the_linear_program_finds_the_reservation() -> None:
    problem = reservation()
    program = favourite_children(problem, threshold=0.5)
    # The child starts at 1 + 10 x = 1 + 2 (1 - x), where x is its paid share of the transfer from its parent.
    assert program.paid_share[program.producers == 0][0] == pytest.approx(1 / 6)
    assert program.makespan_s == pytest.approx(1 + 10 / 6 + 4)
    assert program.favourite.tolist() == [2, -1, -1, -1]
    assert sct.plan(problem, Budget(9), 0, SctConfig(threshold=0.5)).objective_s == 7.0
    assert etf.plan(problem, Budget(1), 0).objective_s == 9.0


def test_without_favourite_children_m_sct_is_m_etf() -> None:
    problem = random_problem(0)
    solution = sct.plan(problem, Budget(9), 0, SctConfig(threshold=0.0))
    np.testing.assert_array_equal(solution.placement.assignment, etf.plan(problem, Budget(9), 0).placement.assignment)


def test_without_time_for_the_program_no_op_has_a_favourite() -> None:
    assert (favourite_children(random_problem(0), limit_s=0.0).favourite == -1).all()


def test_a_graph_without_tensors_or_without_any_time_has_no_favourites() -> None:
    alone = OpGraph.build("none", [Op("a"), Op("b")])
    timeless = OpGraph.build("zero", [Op("a"), Op("b")], [Tensor("a", 0, ("b",))])
    for problem in (alike(alone, [1.0, 1.0]), alike(timeless, [0.0, 0.0])):
        assert favourite_children(problem).favourite.tolist() == [-1, -1]


@pytest.mark.parametrize("threshold", [-0.1, 0.6, float("nan")])
def test_a_threshold_with_which_an_op_could_have_two_favourites_is_refused(threshold: float) -> None:
    with pytest.raises(InvalidInput, match=r"expected 0 \(no favourite children\) to 0.5"):
        SctConfig(threshold=threshold)


def test_a_schedule_in_a_hurry_places_the_ops_that_are_left_where_they_end_first() -> None:
    problem = reservation()
    schedule = earliest_task_schedule(problem, favourite=np.array([2, -1, -1, -1]), stop=np.ones(1, dtype=np.bool_))
    assert schedule.assignment.tolist() == [0, 1, 0, 0]
    assert schedule.start_s.tolist() == [0.0, 0.0, 5.0, 1.0]


def test_where_the_program_takes_all_its_time_there_is_still_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(problem: Problem, threshold: float, limit_s: float | None) -> FavouriteChildren:
        assert limit_s is not None
        time.sleep(limit_s)
        return favourite_children(problem, 0.0)

    monkeypatch.setattr(sct, "favourite_children", slow)
    problem = random_problem(1)
    solution = sct.plan(problem, Budget(evaluations=None, seconds=2.0), 0)
    np.testing.assert_array_equal(solution.placement.assignment, etf.plan(problem, Budget(9), 0).placement.assignment)
