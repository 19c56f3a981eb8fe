"""The decision process: rewards, undecided units, steps that are kept or taken back."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.env.process import UNDECIDED, PlacementProcess
from gnnplace.errors import InvalidAction
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from tests.problems import MeasuredLike, problem_of, random_layers, two_chains

ZERO = np.zeros((1, 6), dtype=np.int64)


def test_a_step_may_move_a_set_of_units() -> None:
    process = PlacementProcess(two_chains()).reset(np.repeat(ZERO, 2, axis=0))
    rewards = process.step(np.array([[0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 0, 0]]))
    assert rewards.tolist() == [0.5, pytest.approx(1 / 3)]  # 6 s -> 3 s and 4 s
    assert process.step(np.array([[0, 0, 0, 0, 0, 0]])).tolist() == [-0.5]  # the second placement stays
    assert process.seconds.tolist() == [6.0, 4.0]
    assert process.best_seconds.tolist() == [3.0, 4.0]
    assert process.best_devices[0].tolist() == [0, 1, 0, 1, 0, 1]


def test_a_step_taken_back_leaves_placement_seconds_and_schedule_as_they_were() -> None:
    problem = random_layers(4)
    rng = np.random.default_rng(0)
    process = PlacementProcess(problem).reset(rng.integers(0, 3, (3, problem.num_units)))
    for _ in range(5):
        devices, seconds, start_s = process.devices, process.seconds, process.schedules().start_s.copy()
        process.step(rng.integers(0, 3, (3, problem.num_units)))
        process.schedules(1)
        process.take_back()
        assert process.devices.tolist() == devices.tolist()
        assert process.seconds.tolist() == seconds.tolist()
        np.testing.assert_array_equal(process.schedules().start_s, start_s)
        process.step(rng.integers(0, 3, (3, problem.num_units)))
    found = problem.penalised_batch_s(problem.evaluator.evaluate_batch(process.devices[:, problem.unit_of_op]))
    np.testing.assert_array_equal(process.seconds, found)
    np.testing.assert_allclose(process.schedules().makespan_s, found)


def test_one_of_several_alternatives_is_kept_for_all() -> None:
    problem = two_chains()
    counted = MeasuredLike(problem)
    process = PlacementProcess(replace(problem, evaluator=counted), reference_s=6.0)
    process.reset(np.repeat(ZERO, 3, axis=0), np.full(3, 6.0))
    process.step(np.array([[0, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0]]))
    process.keep(1)
    assert process.devices.tolist() == [[0, 1, 0, 1, 0, 0]] * 3
    assert process.seconds.tolist() == [4.0] * 3
    assert process.schedules(0).makespan_s[0] == 4.0
    process.take_back()  # there is no step to take back
    assert process.seconds.tolist() == [4.0] * 3
    assert len(counted.executed) == 2


def test_only_changed_placements_of_unknown_seconds_are_evaluated() -> None:
    problem = two_chains()
    counted = MeasuredLike(problem)
    process = PlacementProcess(replace(problem, evaluator=counted), reference_s=6.0)
    process.reset(np.repeat(ZERO, 3, axis=0), np.full(3, 6.0))
    moved = [0, 1, 0, 0, 0, 0]
    rewards = process.step(np.array([ZERO[0], moved, moved]), np.array([np.nan, 4.5, np.nan]))
    assert [row.tolist() for row in counted.executed] == [moved]
    assert rewards.tolist() == [0.0, 0.25, pytest.approx(1 / 6)]


def test_rewards_while_building_add_up_to_the_reference_less_the_result() -> None:
    process = PlacementProcess(two_chains(), reference_s=6.0).reset(np.full((1, 6), UNDECIDED))
    rewards = []
    for unit in range(6):
        devices = process.devices.copy()
        devices[0, unit] = unit % 2
        rewards.append(float(process.step(devices)[0]))
    assert rewards == [0.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert process.seconds.tolist() == [3.0]


def test_undone_units_keep_the_seconds_until_they_are_decided_again() -> None:
    problem = two_chains()
    counted = MeasuredLike(problem)
    process = PlacementProcess(replace(problem, evaluator=counted), reference_s=6.0).reset(ZERO, np.array([6.0]))
    assert process.step(np.array([[0, UNDECIDED, 0, UNDECIDED, 0, 0]])).tolist() == [0.0]
    assert process.seconds.tolist() == [6.0]
    assert process.schedules().makespan_s.tolist() == [6.0]
    assert process.step(ZERO).tolist() == [0.0]  # as before, so nothing is executed
    assert counted.executed == []
    process.step(np.array([[0, UNDECIDED, 0, UNDECIDED, 0, 0]]))
    assert process.step(np.array([[0, 1, 0, 1, 0, 0]])).tolist() == [pytest.approx(1 / 3)]
    assert len(counted.executed) == 1


def test_undecided_neighbours_leave_every_route_open() -> None:
    devices = (Device("a"), Device("b"), Device("c"))
    topology = Topology("line", devices, (Link("a", "b", 1.0, 1.0), Link("b", "a", 1.0, 1.0)))
    graph = OpGraph.build("pair", [Op("x"), Op("y")], [Tensor("x", 1, ("y",))])
    process = PlacementProcess(problem_of(graph, topology), reference_s=1.0)
    process.reset(np.array([[0, UNDECIDED], [UNDECIDED, 0], [UNDECIDED, UNDECIDED]]))
    assert process.action_mask(0).tolist() == [[True] * 3, [True, True, False], [True] * 3]
    assert process.action_mask(1).tolist() == [[True, True, False], [True] * 3, [True] * 3]


def test_a_forbidden_device_and_an_evaluation_that_fails_change_nothing() -> None:
    def interrupted(assignments: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    process = PlacementProcess(two_chains(), interrupted, 6.0).reset(ZERO, np.array([6.0]))
    for device in (2, -2):
        with pytest.raises(InvalidAction, match=rf"action {device} for op .*\[True, True\]"):
            process.step(np.array([[0, 0, device, 0, 0, 0]]))
    with pytest.raises(KeyboardInterrupt):
        process.step(np.array([[0, 1, 0, 0, 0, 0]]))
    assert process.devices.tolist() == ZERO.tolist()
    assert process.seconds.tolist() == [6.0]
    assert process.best_devices.tolist() == ZERO.tolist()


def test_a_measured_difference_gives_the_seconds_after_a_step() -> None:
    def slower_by_a_half(before: np.ndarray, before_s: np.ndarray, after: np.ndarray) -> np.ndarray:
        assert (before.tolist(), after.tolist()) == (ZERO.tolist(), [[0, 1, 0, 0, 0, 0]])
        return before_s * 1.5

    process = PlacementProcess(two_chains(), reference_s=6.0, steps=slower_by_a_half).reset(ZERO)
    assert process.step(np.array([[0, 1, 0, 0, 0, 0]])).tolist() == [-0.5]
    assert process.seconds.tolist() == [9.0]
    process.take_back()
    assert process.seconds.tolist() == [6.0]
