"""Episodes of many placements: rewards, masks and evaluations."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.env.episodes import EnvConfig, SweepEpisodes
from gnnplace.env.placement_env import PlacementEnv
from gnnplace.errors import InvalidAction, InvalidGraph, InvalidPlacement
from gnnplace.evaluation import EvaluationBatch
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from tests.problems import MeasuredLike, problem_of, random_layers, two_chains

ZERO = np.zeros(6, dtype=np.int64)


def test_an_episode_computed_by_hand_gives_these_rewards() -> None:
    # Ops a0 b0 a1 b1 a2 b2, one second each. Moving b0 away costs a transfer of 0.5 + 5 / 10 = 1 s that d0's work
    # hides: b0 ends at 1, arrives at 2, and d0 has a0 a1 a2 b1 b2 to do.
    env = SweepEpisodes(two_chains()).reset(ZERO[None])
    rewards = [float(env.step(np.array([action]))[0]) for action in (0, 1, 0, 1, 0, 1)]
    # 6 s -> 5 s (b0 moved) -> 4 s (b1 moved; d1 is done at 2, b1 arrives at 3, b2 runs from 3 to 4) -> 3 s.
    assert rewards == pytest.approx([0, 1 / 6, 0, 1 / 6, 0, 1 / 6])
    assert env.is_done
    assert env.process.best_seconds.tolist() == [3.0]
    assert env.process.reference_s == 6.0


def test_rewards_of_an_episode_add_up_to_the_difference_of_its_ends() -> None:
    problem = random_layers()
    rng = np.random.default_rng(1)
    starts = rng.integers(0, 3, (5, problem.num_units))[:, problem.unit_of_op]
    env = SweepEpisodes(problem, EnvConfig(num_sweeps=2)).reset(starts)
    first, total = env.process.seconds.copy(), np.zeros(5)
    while not env.is_done:
        total += env.step(rng.integers(0, 3, 5))
    np.testing.assert_allclose(total, (first - env.process.seconds) / env.process.reference_s, atol=1e-12)
    np.testing.assert_allclose(
        env.process.seconds, problem.evaluator.evaluate_batch(env.process.devices[:, problem.unit_of_op]).makespan_s
    )
    assert env.step_index == 2 * problem.num_units


def test_lookahead_gives_the_seconds_of_each_move() -> None:
    problem = random_layers(3)
    env = SweepEpisodes(problem, EnvConfig(lookahead=True)).reset(np.zeros((1, 30), dtype=np.int64))
    plain = SweepEpisodes(problem).reset(np.zeros((1, 30), dtype=np.int64))
    for step in range(problem.num_units):
        assert env.candidate_s is not None
        promised = env.candidate_s[0, step % 3]
        env.step(np.array([step % 3]))
        plain.step(np.array([step % 3]))
        assert env.process.seconds[0] == pytest.approx(promised, rel=1e-12)
        assert plain.process.seconds[0] == pytest.approx(promised, rel=1e-12)
    assert env.candidate_s is None


def test_units_of_a_colocation_group_move_together() -> None:
    problem = random_layers()
    env = SweepEpisodes(problem).reset(np.zeros((1, 30), dtype=np.int64))
    while env.unit != problem.unit_of_op[4]:
        env.step(np.array([0]))
    env.step(np.array([2]))
    assert set(np.flatnonzero(env.process.devices[0, problem.unit_of_op] == 2)) == {4, 9}


def test_staying_costs_no_evaluation_and_moving_one() -> None:
    problem = two_chains()
    counted = MeasuredLike(problem)
    problem = replace(problem, evaluator=counted)
    env = SweepEpisodes(problem, reference_s=6.0).reset(np.stack([ZERO, ZERO]), np.array([6.0, 6.0]))
    env.step(np.array([0, 0]))
    assert counted.executed == []
    env.step(np.array([0, 1]))
    assert [row.tolist() for row in counted.executed] == [[0, 1, 0, 0, 0, 0]]


def test_lookahead_of_a_measured_problem_executes_nothing() -> None:
    problem = two_chains()
    counted = MeasuredLike(problem)
    problem = replace(problem, evaluator=counted)
    env = SweepEpisodes(problem, EnvConfig(lookahead=True), reference_s=6.0).reset(ZERO[None], np.array([6.0]))
    assert env.candidate_s is not None
    assert env.candidate_s.tolist() == [[6.0, 5.0]]
    assert counted.executed == []
    env.step(np.array([1]))
    assert len(counted.executed) == 1


def test_a_placement_that_does_not_fit_is_penalised_and_its_shortfall_still_guides() -> None:
    # 60 bytes of weights on devices of 40: the more is moved away, the less is missing.
    env = SweepEpisodes(two_chains(memory_bytes=40)).reset(ZERO[None])
    assert env.process.seconds[0] > env.process.problem.worst_case_s
    rewards = [float(env.step(np.array([step % 2]))[0]) for step in range(6)]
    assert all(reward >= 0 for reward in rewards)
    assert env.process.seconds.tolist() == [3.0]
    # No single device can take it all, so the start is the reference.
    assert env.process.reference_s > env.process.problem.worst_case_s


class FailingEvaluator:
    """Crashes on everything that is not on device 0."""

    kind = "measured"

    def evaluate_batch(self, assignments: np.ndarray) -> EvaluationBatch:
        """1 s on device 0, else a failure."""
        seconds = np.where((assignments == 0).all(axis=1), 1.0, np.inf)
        return EvaluationBatch(seconds, seconds, np.zeros(len(assignments)))


def test_a_failed_measurement_is_a_finite_loss() -> None:
    problem = replace(two_chains(), evaluator=FailingEvaluator())
    env = SweepEpisodes(problem).reset(ZERO[None])
    reward = env.step(np.array([1]))
    assert np.isfinite(reward).all()
    assert reward[0] < -1


def test_the_mask_forbids_devices_that_data_cannot_reach() -> None:
    devices = (Device("a"), Device("b"), Device("c"))
    topology = Topology("line", devices, (Link("a", "b", 1.0, 1.0), Link("b", "a", 1.0, 1.0)))
    graph = OpGraph.build("pair", [Op("x"), Op("y")], [Tensor("x", 1, ("y",))])
    env = SweepEpisodes(problem_of(graph, topology)).reset(np.zeros((1, 2), dtype=np.int64))
    assert env.action_mask.tolist() == [[True, True, False]]
    with pytest.raises(InvalidAction, match=r"action 2 for op 'x'.*\[True, True, False\]"):
        env.step(np.array([2]))
    with pytest.raises(InvalidAction, match="action 3"):
        env.step(np.array([3]))


def test_an_illegal_start_an_empty_graph_and_a_step_too_many_are_refused() -> None:
    with pytest.raises(InvalidPlacement):
        SweepEpisodes(two_chains()).reset(np.full((1, 6), 7))
    empty = OpGraph.build("empty", [])
    with pytest.raises(InvalidGraph, match="nothing to place"):
        SweepEpisodes(problem_of(empty, two_chains().topology))
    env = SweepEpisodes(two_chains(length=1)).reset(np.zeros((1, 2), dtype=np.int64))
    env.step(np.array([0]))
    env.step(np.array([0]))
    with pytest.raises(InvalidAction, match="after the end"):
        env.step(np.array([0]))


def test_the_environment_of_one_equals_the_batch() -> None:
    problem = random_layers(5)
    starts = np.random.default_rng(2).integers(0, 3, (3, problem.num_units))[:, problem.unit_of_op]
    actions = np.random.default_rng(3).integers(0, 3, (problem.num_units, 3))
    batch = SweepEpisodes(problem).reset(starts)
    rewards = np.array([batch.step(row) for row in actions])
    for column, start in enumerate(starts):
        env = PlacementEnv(problem, start)
        env.reset()
        alone = [env.step(action)[1] for action in actions[:, column]]
        np.testing.assert_allclose(
            np.array(alone) * env.episodes.process.reference_s, rewards[:, column] * batch.process.reference_s
        )
