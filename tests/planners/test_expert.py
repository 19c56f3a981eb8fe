"""The expert: stages whole and in order, equal loads, no hosts beside accelerators."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical.expert import balanced_cuts, expert_assignment
from tests.problems import devices_of, problem_of


def chain(stages: list[int | None], **allowed: tuple[str, ...]) -> OpGraph:
    ops = [Op(f"o{i}", stage=stage, devices=allowed.get(f"o{i}")) for i, stage in enumerate(stages)]
    return OpGraph.build("chain", ops, [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(len(ops) - 1)])


def test_a_stage_stays_whole_and_stages_keep_their_order_whatever_the_order_of_ops() -> None:
    graph = chain([0, 1, 2, 3, 3, 2, 1, 0])  # forward and backward
    assignment = expert_assignment(problem_of(graph, devices_of(("gpu", "gpu")), 1.0))
    assert assignment.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


def test_without_stages_ops_are_cut_in_topological_order() -> None:
    times = np.array([3.0, 1.0, 1.0, 1.0])[:, None] * np.ones(2)
    assert expert_assignment(problem_of(chain([None] * 4), devices_of(("gpu", "gpu")), times)).tolist() == [0, 1, 1, 1]


def test_an_op_without_a_stage_goes_with_the_op_before_it() -> None:
    graph = chain([None, 0, None, 1, None])
    assert expert_assignment(problem_of(graph, devices_of(("gpu", "gpu")), 1.0)).tolist() == [0, 0, 0, 1, 1]


def test_a_host_takes_part_only_where_it_must() -> None:
    graph = chain([0, 1, 1], o2=("cpu",))
    assert expert_assignment(problem_of(graph, devices_of(("gpu", "cpu", "gpu")), 1.0)).tolist() == [0, 2, 1]


def test_a_faster_device_gets_more_stages() -> None:
    times = np.ones((6, 1)) * np.array([2.0, 1.0])
    assignment = expert_assignment(problem_of(chain([None] * 6), devices_of(("gpu", "gpu")), times))
    assert np.bincount(assignment).tolist() == [2, 4]


def test_a_device_that_may_run_few_ops_comes_after_one_that_may_run_all() -> None:
    graph = chain([None] * 4, o0=("gpu",), o1=("gpu",), o2=("gpu",))
    assignment = expert_assignment(problem_of(graph, devices_of(("npu", "gpu")), 1.0))
    assert assignment.tolist() == [1, 1, 1, 0]


def test_an_op_that_no_accelerator_may_run_loads_none_of_them() -> None:
    graph = chain([None] * 5, o0=("cpu",))
    times = np.array([100.0, 1.0, 1.0, 1.0, 1.0])[:, None] * np.ones(3)
    assignment = expert_assignment(problem_of(graph, devices_of(("gpu", "cpu", "gpu")), times))
    assert assignment.tolist() == [1, 0, 0, 2, 2]


def test_an_accelerator_that_may_run_nothing_takes_no_part() -> None:
    graph = chain([None] * 4, **{f"o{i}": ("gpu", "cpu") for i in range(4)})
    assignment = expert_assignment(problem_of(graph, devices_of(("npu", "gpu", "cpu", "gpu")), 1.0))
    assert assignment.tolist() == [1, 1, 3, 3]


def test_accelerators_that_cannot_reach_the_fastest_one_take_no_part() -> None:
    problem = problem_of(
        chain([None] * 4), devices_of(("gpu", "gpu", "gpu")), np.ones((4, 3)) * np.array([1.0, 1.0, 2.0])
    )
    links = tuple(link for link in problem.topology.links if "gpu1" not in (link.source, link.target))
    topology = Topology("apart", problem.topology.devices, links)
    assignment = expert_assignment(replace(problem, topology=topology))
    assert assignment.tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize("num_devices", [1, 3])
def test_an_empty_graph_has_an_empty_placement(num_devices: int) -> None:
    problem = problem_of(chain([]), devices_of(("gpu",) * num_devices), np.ones((0, num_devices)))
    assert expert_assignment(problem).shape == (0,)


@given(st.lists(st.tuples(*[st.floats(0.1, 9.0)] * 3), min_size=1, max_size=7))
def test_cuts_are_the_best_of_all_consecutive_cuts(rows: list[tuple[float, ...]]) -> None:
    seconds = np.array(rows)

    def busiest(cuts: np.ndarray) -> float:
        return max(seconds[cuts == device, device].sum() for device in range(3))

    every = [np.array(c) for c in itertools.combinations_with_replacement(range(3), len(rows))]
    found = balanced_cuts(seconds)
    assert (np.diff(found) >= 0).all()
    assert busiest(found) == pytest.approx(min(map(busiest, every)))
