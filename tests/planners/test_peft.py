"""PEFT against its paper's example and against a naive scheduler."""

import numpy as np
import pytest

from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical import peft
from gnnplace.planners.classical.list_schedule import list_schedule
from gnnplace.planners.classical.peft import optimistic_cost_table, peft_order, peft_schedule
from gnnplace.planners.solution import Budget
from tests.problems import connected, devices_of, problem_of, task_problem

# Arabnejad and Barbosa 2014, figure 1: seconds of ten tasks on three processors, and of the edges.
PAPER_TIMES = (
    [22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35],
     [26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8], [13, 16, 33],
)  # fmt: skip
PAPER_EDGES = {
    (1, 2): 17, (1, 3): 31, (1, 4): 29, (1, 5): 13, (1, 6): 7, (2, 8): 3, (2, 9): 30, (3, 7): 16,
    (4, 8): 11, (4, 9): 7, (5, 9): 57, (6, 8): 5, (7, 10): 9, (8, 10): 42, (9, 10): 7,
}  # fmt: skip


PAPER = task_problem(PAPER_TIMES, PAPER_EDGES)


def random_problem(seed: int) -> Problem:
    """Every tensor has one reader, as in the paper."""
    rng = np.random.default_rng(seed)
    num_ops, num_devices = int(rng.integers(2, 30)), int(rng.integers(1, 5))
    pairs = {(a, int(b)) for a in range(num_ops - 1) for b in rng.integers(a + 1, num_ops, 2)}
    tensors = [Tensor(f"o{a}", int(rng.integers(1, 60)), (f"o{b}",)) for a, b in sorted(pairs)]
    graph = OpGraph.build("random", [Op(f"o{i}") for i in range(num_ops)], tensors)
    return problem_of(graph, connected(*devices_of("p" * num_devices)), rng.uniform(1.0, 40.0, (num_ops, num_devices)))


def naive_peft(problem: Problem) -> tuple[list[int], list[float]]:
    """Algorithm 1 of the paper, step by step: devices and start times."""
    graph, times = problem.graph, problem.op_time_s.tolist()
    devices = range(len(times[0]) if times else 0)
    bytes_of = {
        (int(a), int(b)): float(graph.tensor_bytes[t])
        for a, b, t in zip(*graph.edges, graph.consumer_tensor, strict=True)
    }
    children = {op: [b for a, b in bytes_of if a == op] for op in range(graph.num_ops)}
    parents = {op: [a for a, b in bytes_of if b == op] for op in range(graph.num_ops)}
    table: dict[tuple[int, int], float] = {}

    def cost(op: int, device: int) -> float:
        if (op, device) not in table:
            table[op, device] = max(
                (
                    min(cost(c, d) + times[c][d] + (bytes_of[op, c] if d != device else 0.0) for d in devices)
                    for c in children[op]
                ),
                default=0.0,
            )
        return table[op, device]

    place: dict[int, int] = {}
    span: dict[int, tuple[float, float]] = {}
    while len(place) < graph.num_ops:
        order = graph.topological_order.tolist()  # which decides between equal ranks, as all ops at the end have
        ready = [op for op in order if op not in place and all(p in place for p in parents[op])]
        op = max(ready, key=lambda op: sum(cost(op, d) for d in devices))
        best: tuple[float, int, float] | None = None
        for device in devices:
            arrival = max(
                (span[p][1] + (bytes_of[p, op] if place[p] != device else 0.0) for p in parents[op]), default=0.0
            )
            busy = sorted(span[other] for other in place if place[other] == device)
            gaps = zip([0.0, *(end for _, end in busy)], [*(start for start, _ in busy), np.inf], strict=True)
            start = next(max(a, arrival) for a, b in gaps if max(a, arrival) + times[op][device] <= b)
            value = start + times[op][device] + cost(op, device)
            if best is None or value < best[0]:
                best = value, device, start
        assert best is not None
        place[op], span[op] = best[1], (best[2], best[2] + times[op][best[1]])
    return [place[op] for op in range(graph.num_ops)], [span[op][0] for op in range(graph.num_ops)]


def test_the_optimistic_cost_table_is_the_papers() -> None:
    table = optimistic_cost_table(PAPER)
    assert table.tolist() == [
        [64, 68, 86], [42, 39, 42], [27, 41, 43], [42, 39, 50], [28, 37, 28],
        [42, 39, 44], [13, 16, 22], [13, 16, 33], [13, 16, 20], [0, 0, 0],
    ]  # fmt: skip
    assert table.mean(axis=1).round(1).tolist() == [72.7, 41.0, 37.0, 43.7, 31.0, 41.7, 17.0, 20.7, 16.3, 0.0]
    assert (peft_order(PAPER, table) + 1).tolist() == [1, 4, 6, 2, 3, 5, 8, 7, 9, 10]


def test_peft_needs_122_where_heft_needs_133_as_in_its_paper() -> None:
    schedule = peft_schedule(PAPER)
    assert schedule.end_s.max() == 122.0
    assert (schedule.assignment + 1).tolist() == [1, 1, 1, 1, 3, 2, 1, 2, 3, 2]
    assert list_schedule(PAPER).end_s.max() == 133.0


def test_the_placement_runs_in_the_order_of_the_schedule() -> None:
    solution = peft.plan(PAPER, Budget(1), 0)
    np.testing.assert_array_equal(solution.placement.assignment, peft_schedule(PAPER).assignment)
    assert PAPER.estimator.schedule(solution.placement).makespan_s == 122.0
    assert solution.objective_s == 122.0


@pytest.mark.parametrize("seed", range(40))
def test_the_schedule_equals_that_of_a_naive_scheduler(seed: int) -> None:
    problem = random_problem(seed)
    schedule = peft_schedule(problem)
    assignment, start_s = naive_peft(problem)
    assert schedule.assignment.tolist() == assignment
    np.testing.assert_allclose(schedule.start_s, start_s, rtol=1e-12)


def test_the_table_ignores_devices_that_may_not_run_a_child() -> None:
    graph = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 5, ("b",))])
    problem = problem_of(graph, connected(*devices_of("pp")), [[1.0, 1.0], [np.inf, 3.0]])
    assert optimistic_cost_table(problem).tolist() == [[8.0, 3.0], [0.0, 0.0]]
    assert peft_schedule(problem).assignment.tolist() == [1, 1]
