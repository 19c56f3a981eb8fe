"""The search keeps to its budget and returns the best placement it evaluated."""

import signal
import time

import numpy as np
import pytest
from numba.core import event

from gnnplace import compiled_code
from gnnplace.devices.topology import Device
from gnnplace.errors import InfeasiblePlacement
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.local_search import Proposals, WalkRequest
from gnnplace.placement import Placement
from gnnplace.planners.search import Search, deadline
from gnnplace.planners.solution import Budget, Progress
from tests.problems import connected, problem_of


@pytest.fixture
def problem() -> Problem:
    graph = OpGraph.build("g", [Op("a"), Op("b", group="q"), Op("c", group="q")])
    return problem_of(graph, connected(Device("d"), Device("e")), [[2.0, 5.0], [1.0, 1.0], [1.0, 1.0]])


def test_a_search_keeps_the_best_placement_of_all_evaluations(problem: Problem) -> None:
    with Search(problem, Budget(10), "test", 7) as search:
        assert search.evaluate(Placement(np.array([0, 0, 0]))) == 4.0
        assert search.evaluate_batch(np.array([[1, 1, 1], [1, 0, 0]])).tolist() == [7.0, 5.0]
        units = np.array([problem.unit_of_op[1], problem.unit_of_op[0]])
        assert search.evaluate_moves(np.array([0, 0, 0]), units, np.array([1, 1])).tolist() == [2.0, 5.0]
    solution = search.solution()
    assert solution.placement.assignment.tolist() == [0, 1, 1]
    assert (solution.objective_s, solution.evaluations, solution.seed) == (2.0, 5, 7)
    assert [best for _, _, best in solution.history] == [4.0, 2.0]


def test_compilation_takes_nothing_from_the_seconds_of_a_search(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(compiled_code, "perf_counter", lambda: now[0])
    search = Search(problem, Budget(None, seconds=5.0), "test", 0)
    event.start_event("numba:compiler_lock")  # numba does this where it compiles, and where it loads compiled functions
    now[0] += 50.0
    assert search.wall_s == 0.0  # another thread may look at the clock meanwhile
    event.start_event("numba:compiler_lock")  # compiling one function can need another one
    now[0] += 10.0
    event.end_event("numba:compiler_lock")
    event.end_event("numba:compiler_lock")
    assert search.wall_s == 0.0
    now[0] += 4.0
    with search.part(problem, 1.0) as part:
        assert (search.wall_s, part.wall_s) == (4.0, 4.0)
        assert search.remaining > 0
    now[0] += 1.0
    assert search.remaining == 0


def test_the_history_has_the_evaluation_of_each_improvement_in_a_batch(problem: Problem) -> None:
    with Search(problem, Budget(10), "test", 7) as search:
        search.evaluate_batch(np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]]))
        search.evaluate_batch(np.array([[1, 1, 1], [0, 1, 1], [0, 0, 0]]))
    assert [(count, best) for count, _, best in search.solution().history] == [(1, 7.0), (2, 5.0), (4, 4.0), (7, 2.0)]


def test_a_batch_beyond_the_budget_is_cut_and_then_the_search_ends(problem: Problem) -> None:
    reached = []
    with Search(problem, Budget(3), "test", 0) as search:
        reached.append(search.evaluate_batch(np.zeros((5, 3), dtype=np.int64)).tolist())
        search.evaluate(Placement(np.array([0, 0, 0])))
        reached.append("beyond")
    assert reached == [[4.0, 4.0, 4.0, np.inf, np.inf]]
    assert search.evaluations == 3


def test_each_move_of_a_walk_counts_and_the_history_has_its_improvements(problem: Problem) -> None:
    request = WalkRequest(np.array([1, 1, 1]), 50, 0.0, 0.0, Proposals(0.0, 0.0, 1.0))
    with Search(problem, Budget(30), "test", 0) as search:
        assert search.evaluate(Placement(request.assignment)) == 7.0
        walk = search.walk(request, np.random.default_rng(0))
        search.walk(request, np.random.default_rng(0))
    alone = problem.local_search.walk(request, np.random.default_rng(0))
    assert (walk.evaluations, search.evaluations) == (29, 30)
    solution = search.solution()
    assert (solution.objective_s, solution.placement.assignment.tolist()) == (2.0, [0, 1, 1])
    found = [(count, best) for count, _, best in solution.history]
    assert found == [(1, 7.0), *((1 + move, seconds) for move, seconds in alone.improvements)]


def test_a_walk_that_finds_nothing_better_than_the_best_changes_nothing(problem: Problem) -> None:
    request = WalkRequest(np.array([1, 0, 0]), 9, 0.0, 0.0, Proposals(0.0, 0.0, 1.0))
    with Search(problem, Budget(30), "test", 0) as search:
        search.evaluate_batch(np.array([[0, 1, 1], [1, 0, 0]]))
        assert search.walk(request, np.random.default_rng(0)).best_s < 5.0
    assert [(count, best) for count, _, best in search.history] == [(1, 2.0)]


def test_a_search_ends_when_its_seconds_are_used(problem: Problem) -> None:
    with Search(problem, Budget(None, seconds=0.0), "test", 0) as search:
        search.evaluate(Placement(np.array([0, 0, 0])))
    with pytest.raises(InfeasiblePlacement, match="before one placement was evaluated"):
        search.solution()


def test_an_interrupt_keeps_the_best_so_far(problem: Problem) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.evaluations >= 2:
            raise KeyboardInterrupt

    with Search(problem, Budget(10, None, interrupt), "test", 0) as search:
        search.evaluate(Placement(np.array([0, 0, 0])))
        search.evaluate(Placement(np.array([0, 1, 1])))
    assert search.solution().interrupted
    assert search.solution().objective_s == 2.0


def test_an_interrupt_before_the_first_evaluation_is_raised(problem: Problem) -> None:
    with pytest.raises(KeyboardInterrupt), Search(problem, Budget(10), "test", 0):
        raise KeyboardInterrupt


def converted_badly() -> None:
    """Stands for compiled code that is interrupted while it converts its arguments."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise TypeError("can't unbox") from None


def test_an_interrupt_that_appears_as_another_error_keeps_the_best_so_far(problem: Problem) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Search(problem, Budget(10), "test", 7) as search:
        search.evaluate(Placement(np.array([0, 0, 0])))
        converted_badly()
    assert search.solution().interrupted
    assert search.solution().objective_s == 4.0
    with pytest.raises(KeyboardInterrupt), Search(problem, Budget(10), "test", 7):
        converted_badly()
    with pytest.raises(TypeError, match="unbox"), Search(problem, Budget(10), "test", 7):
        raise TypeError("can't unbox")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_deadline_passes_once_and_never_without_a_limit() -> None:
    with deadline(None) as stop:
        assert stop.tolist() == [False]
    with deadline(3600.0) as stop:
        assert stop.tolist() == [False]
    with deadline(0.01) as stop:
        for _ in range(1000):
            if stop[0]:
                break
            time.sleep(0.01)
        assert stop.tolist() == [True]
