"""The expert: stages whole and in order, equal loads, no hosts beside accelerators."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical.expert import balanced_cuts, expert_assignment
from tests.problems import devices_of, problem_of


def chain(stages: list[int | None], **allowed: tuple[str, ...]) -> OpGraph:
    ops = [Op(f"o{i}", stage=stage, devices=allowed.get(f"o{i}")) for i, stage in enumerate(stages)]
    return OpGraph.build("chain", ops, [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(len(ops) - 1)])


def placed(
    stages: list[int | None], kinds: tuple[str, ...], times: ArrayLike = 1.0, **allowed: tuple[str, ...]
) -> list[int]:
    """Devices of the ops of a chain, in order."""
    assignment: list[int] = expert_assignment(problem_of(chain(stages, **allowed), devices_of(kinds), times)).tolist()
    return assignment


def test_a_stage_stays_whole_and_stages_keep_their_order_for_any_order_of_ops() -> None:
    assert placed([0, 1, 2, 3, 3, 2, 1, 0], ("gpu", "gpu")) == [0, 0, 1, 1, 1, 1, 0, 0]  # forward and backward


def test_without_stages_ops_are_cut_in_topological_order() -> None:
    assert placed([None] * 4, ("gpu", "gpu"), [[3.0], [1.0], [1.0], [1.0]]) == [0, 1, 1, 1]


def test_an_op_without_a_stage_goes_with_the_op_before_it() -> None:
    assert placed([None, 0, None, 1, None], ("gpu", "gpu")) == [0, 0, 0, 1, 1]


def test_a_host_takes_part_only_where_it_must() -> None:
    assert placed([0, 1, 1], ("gpu", "cpu", "gpu"), o2=("cpu",)) == [0, 2, 1]


def test_a_faster_device_gets_more_stages() -> None:
    assert np.bincount(placed([None] * 6, ("gpu", "gpu"), [2.0, 1.0])).tolist() == [2, 4]


def test_a_device_that_may_run_few_ops_comes_after_one_that_may_run_all() -> None:
    allowed = {f"o{i}": ("gpu",) for i in range(3)}
    assert placed([None] * 4, ("npu", "gpu"), **allowed) == [1, 1, 1, 0]


def test_an_op_that_no_accelerator_may_run_loads_none_of_them() -> None:
    times = [[100.0], [1.0], [1.0], [1.0], [1.0]]
    assert placed([None] * 5, ("gpu", "cpu", "gpu"), times, o0=("cpu",)) == [1, 0, 0, 2, 2]


def test_an_accelerator_that_may_run_nothing_takes_no_part() -> None:
    allowed = {f"o{i}": ("gpu", "cpu") for i in range(4)}
    assert placed([None] * 4, ("npu", "gpu", "cpu", "gpu"), **allowed) == [1, 1, 3, 3]


def test_accelerators_that_cannot_reach_the_fastest_one_take_no_part() -> None:
    problem = problem_of(chain([None] * 4), devices_of(("gpu", "gpu", "gpu")), [1.0, 1.0, 2.0])
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
