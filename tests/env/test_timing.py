"""Slack and arrivals, read off schedules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.env.timing import empty_timing, refresh, tail_s, unit_tables
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from tests.problems import full_mesh, problem_of, random_layers


def test_slack_and_arrivals_of_a_diamond_are_those_computed_by_hand() -> None:
    # s feeds l (1 s, on d1) and r (5 s, on d0), both feed t on d0. A transfer of 5 bytes takes 1 s.
    graph = OpGraph.build(
        "diamond", [Op(n) for n in "slrt"], [Tensor("s", 5, ("l", "r")), Tensor("l", 5, ("t",)), Tensor("r", 5, ("t",))]
    )
    problem = problem_of(graph, full_mesh(2), np.array([[1.0, 1], [1, 1], [5, 5], [1, 1]]))
    timing = empty_timing(problem, 1)
    refresh(problem, unit_tables(problem), timing, 0, np.array([0, 1, 0, 0]))
    assert timing.start_s[0].tolist() == [0, 2, 1, 6]
    assert timing.end_s[0].tolist() == [1, 3, 6, 7]
    # l's result is there at 4 and needed at 6.
    assert timing.slack_s[0].tolist() == [0, 2, 0, 0]
    assert timing.arrival_s[0].tolist() == [[1, 2], [4, 3], [6, np.inf]]
    assert timing.busy_s[0].tolist() == [7, 1]
    assert tail_s(timing)[0].tolist() == [7, 3, 6, 1]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000))
def test_some_op_has_no_slack_and_no_slack_reaches_beyond_the_makespan(seed: int) -> None:
    problem = random_layers(seed)
    assignment = np.random.default_rng(seed).integers(0, 3, problem.num_units)[problem.unit_of_op]
    timing = empty_timing(problem, 1)
    refresh(problem, unit_tables(problem), timing, 0, assignment)
    assert timing.slack_s.min() == pytest.approx(0.0, abs=1e-9)
    assert (timing.end_s + timing.slack_s <= timing.makespan_s[0] + 1e-9).all()
