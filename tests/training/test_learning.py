"""Both loops learn, and the pieces that they are made of are right."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnplace.env.batch import EnvConfig, PlacementBatch
from gnnplace.evaluation import Problem
from gnnplace.policy.network import PolicyConfig, PolicyInputs, PolicyNetwork, build_policy, policy_inputs
from gnnplace.training.ppo import PpoConfig, train_ppo
from gnnplace.training.reinforce import ReinforceConfig, train_reinforce
from gnnplace.training.rollout import Episodes, judge, roll_out
from tests.env.toy_problems import random_layers, two_chains


def ignorant(seed: int) -> PolicyNetwork:
    """A network without the prior: all that it knows in the end it has learned."""
    network = build_policy(seed, PolicyConfig(hidden=16, rounds=1))
    with torch.no_grad():
        network.head.prior.weight.zero_()
    return network


def from_one_device(problem: Problem, num_envs: int) -> tuple[Episodes, PolicyInputs]:
    """Episodes that begin with everything on the first device."""
    inputs = policy_inputs(problem)
    env = PlacementBatch(problem, tables=inputs.tables)
    starts = np.zeros((num_envs, problem.graph.num_ops), dtype=np.int64)
    return lambda _: (env.reset(starts), inputs), inputs


def share_at_optimum(problem: Problem, network: PolicyNetwork, optimum_s: float) -> float:
    """Share of 64 sampled episodes that end at the optimum."""
    episodes, inputs = from_one_device(problem, 64)
    batch, _ = episodes(0)
    roll_out(batch, inputs, network, torch.Generator().manual_seed(9))
    return float((batch.seconds == optimum_s).mean())


def ppo(network: PolicyNetwork, episodes: Episodes, seed: int) -> None:
    """PPO for a few seconds."""
    config = PpoConfig(num_updates=30, learning_rate=1e-2, num_minibatches=4, ent_coef=0.0)
    train_ppo(network, episodes, config, torch.Generator().manual_seed(seed))


def reinforce(network: PolicyNetwork, episodes: Episodes, seed: int) -> None:
    """REINFORCE for a few seconds."""
    config = ReinforceConfig(num_updates=60, learning_rate=5e-2, final_learning_rate=5e-3, ent_coef=0.0)
    train_reinforce(network, episodes, config, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("train", [ppo, reinforce])
def test_training_reaches_the_known_optimum(train: Callable[[PolicyNetwork, Episodes, int], None]) -> None:
    # Two chains of two seconds on two devices: 2 s, which a coin finds in one episode of eight.
    problem = two_chains(length=2)
    network = ignorant(0)
    assert share_at_optimum(problem, network, 2.0) < 0.25
    train(network, from_one_device(problem, 16)[0], 0)
    assert share_at_optimum(problem, network, 2.0) > 0.7


def test_the_same_seed_trains_the_same_network() -> None:
    problem = two_chains()
    trained = []
    for _ in range(2):
        network = ignorant(1)
        train_ppo(network, from_one_device(problem, 4)[0], PpoConfig(num_updates=2), torch.Generator().manual_seed(5))
        trained.append(network)
    assert all(torch.equal(a, b) for a, b in zip(*(n.parameters() for n in trained), strict=True))


def test_the_probability_ratio_is_1_before_the_first_gradient_step() -> None:
    problem = random_layers()
    config = PpoConfig(num_updates=3)
    updates = train_ppo(build_policy(0), from_one_device(problem, 4)[0], config, torch.Generator().manual_seed(0))
    assert [update.first_ratio for update in updates] == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)
    assert all(update.best_s <= update.start_s for update in updates)


def test_judging_a_rollout_again_repeats_its_log_probabilities_and_values() -> None:
    problem = random_layers()
    episodes, inputs = from_one_device(problem, 3)
    network = build_policy(0)
    rollout = roll_out(*episodes(0), network, torch.Generator().manual_seed(0))
    judgement = judge(network, rollout, torch.tensor([2, 0]))
    torch.testing.assert_close(judgement.log_probs, rollout.log_probs[:, [2, 0]], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(judgement.values, rollout.values[:, [2, 0]], rtol=1e-5, atol=1e-5)
    assert rollout.rewards.shape == (problem.num_units, 3)
    assert (judgement.entropy >= 0).all()
    assert inputs is rollout.inputs


def test_a_kl_limit_ends_the_epochs_early() -> None:
    problem = two_chains()
    moved = []
    for target_kl in (None, 1e-12):
        network = ignorant(0)
        config = PpoConfig(num_updates=1, update_epochs=8, learning_rate=1e-2, target_kl=target_kl)
        train_ppo(network, from_one_device(problem, 8)[0], config, torch.Generator().manual_seed(0))
        fresh = ignorant(0).state_dict()
        moved.append(sum(float((tensor - fresh[name]).abs().sum()) for name, tensor in network.state_dict().items()))
    assert moved[1] < 0.7 * moved[0]


def test_an_episode_may_revisit_only_some_units() -> None:
    problem = random_layers()
    inputs = policy_inputs(problem)
    visited = np.array([3, 7, 20])
    batch = PlacementBatch(problem, EnvConfig(num_sweeps=2)).reset(np.zeros((2, 30), dtype=np.int64), visited=visited)
    rollout = roll_out(batch, inputs, build_policy(0), torch.Generator().manual_seed(0))
    assert rollout.units.tolist() == [3, 7, 20, 3, 7, 20]
    assert len(rollout.sweeps) == 2
    untouched = ~np.isin(problem.unit_of_op, visited)
    assert (batch.timing.assignment[:, untouched] == 0).all()
    judgement = judge(build_policy(0), rollout, torch.tensor([0, 1]))
    torch.testing.assert_close(judgement.log_probs, rollout.log_probs, rtol=1e-5, atol=1e-5)
