"""Placeto on one graph: episodes that revisit every unit once, and REINFORCE after each batch of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.arrays import IntArray
from gnnplace.env.batch import PlacementBatch
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.papers.placeto.episodes import (
    Episodes,
    PlacetoModel,
    StepBaseline,
    action_probabilities,
    roll_out,
)
from gnnplace.planners.papers.placeto.network import PlacetoNetwork
from gnnplace.planners.papers.rewards import single_device_s
from gnnplace.planners.policy_search import CountedRuntime, ShareUsed, used_share
from gnnplace.planners.search import Search, Solution
from gnnplace.policy.network import one_thread
from gnnplace.training.search_ppo import returns_to_go

__all__ = ["PAPER", "Learner", "PlacetoConfig", "build_network", "learn", "plan"]


@dataclass(frozen=True)
class PlacetoConfig:
    """A smaller network, fewer episodes per update and longer steps than in the paper, for budgets of a few dozen episodes."""

    layers: int = 1
    """Layers of each message function; 2 in the authors' code."""
    rounds: int = 8
    """Rounds of messages in each direction; paper 8."""
    num_envs: int = 2
    """Episodes between two updates, stepped together; the authors' code has 4 to 8 workers."""
    learning_rate: float = 1e-2
    """Initial rate of Adam, falling linearly; paper 1e-3, with which a hundred episodes change little."""
    final_learning_rate: float = 1e-3
    """Rate of Adam at the end; paper 1e-4."""
    gamma: float = 1.0
    """Discount per step; paper 1."""
    baseline_episodes: int = 10
    """Episodes in the baseline; paper 10."""
    ent_coef: float = 0.1
    """Weight of the entropy of a step, falling linearly to 0; the authors' code begins with 1 and has no limit of evaluations. With
    0.03 and less one seed in three stops moving its 16 ops and leaves two thirds of 300 evaluations unused."""
    max_grad_norm: float = 1.25
    """Largest norm of the gradient summed over the steps of an episode; 1.25 in the authors' code."""
    steps_per_evaluation: int = 5
    """Most steps per evaluation of the budget. A step that leaves its unit in place costs no evaluation, so without this limit a
    policy that moves nothing would never end; training may leave evaluations unused."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


PAPER = PlacetoConfig(layers=2, num_envs=8, learning_rate=1e-3, final_learning_rate=1e-4, ent_coef=1.0)
"""The sizes and rates of Addanki et al. 2019 and of their published code; 32,495 weights for five devices."""


def plan(problem: Problem, budget: Budget, seed: int, config: PlacetoConfig = PlacetoConfig()) -> Solution:
    """The best placement seen at any step while a policy learns from scratch, on this graph alone.

    Addanki et al. 2019. Every episode begins at the best single device, or at HEFT's placement where no single device runs; where
    that fails too, the planner does not learn. Departures, besides those of the other files: runtimes are multiples of the best single
    device's, compressed above ten of them and bounded where a placement does not fit (the authors add a penalty per missing
    gigabyte and cut the sum off at ten); devices that no route connects with a unit's neighbours are masked; a step that moves
    nothing is not evaluated again.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "placeto", seed) as search, one_thread():
        search.evaluate_batch(problem.single_device_assignments)
        search.stage("single")
        if not np.isfinite(search.best_s):
            evaluate_heft(search)
            search.stage("heft")
        if search.best is not None and np.isfinite(search.best_s) and (problem.action_mask.sum(axis=1) > 1).any():
            with suppress(ShareUsed):
                learn(search, (search.best.assignment, search.best_s), config)
    return search.solution()


def build_network(devices: int, config: PlacetoConfig, seed: int) -> PlacetoNetwork:
    """A fresh network whose weights follow from the seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PlacetoNetwork(devices, config.layers, config.rounds)


def learn(search: Search, start: tuple[IntArray, float], config: PlacetoConfig) -> None:
    """Runs episodes from `start` (an assignment `[N]` and its penalised seconds) and updates, until the budget ends.

    Rewards are differences of relative runtimes, so they have no unit: 1 is the time of the best single device.

    Raises:
        ShareUsed: the budget has ended.
    """
    problem, reference_s = search.problem, single_device_s(search.problem)
    model = PlacetoModel.of(problem, build_network(problem.topology.num_devices, config, search.seed))
    batch = PlacementBatch(problem, runtime=CountedRuntime(search), reference=reference_s)
    starts, start_s = np.tile(start[0], (config.num_envs, 1)), np.full(config.num_envs, start[1])
    generator = torch.Generator().manual_seed(search.seed)
    learner = Learner(model, config)
    decisions = 0
    while (done := max(used_share(search), _share_of_steps(search, decisions, config))) < 1.0:
        batch.reset(starts, start_s, model.visited)
        episodes = roll_out(batch, model, reference_s, generator)
        decisions += episodes.actions.numel()
        learner.update(episodes, done)


class Learner:
    """REINFORCE with a baseline per step (Addanki et al. 2019, training details)."""

    def __init__(self, model: PlacetoModel, config: PlacetoConfig) -> None:
        self._model, self._config = model, config
        self._optimizer = torch.optim.Adam(model.network.parameters(), lr=config.learning_rate)
        self._baseline = StepBaseline(config.baseline_episodes)

    def update(self, episodes: Episodes, done: float) -> None:
        """One gradient step; `done` is the share of the budget used before these episodes."""
        config, network = self._config, self._model.network
        returns = returns_to_go(episodes.rewards, config.gamma)
        advantages: Tensor = returns - self._baseline.update(returns)[:, None]
        rate = config.learning_rate + done * (config.final_learning_rate - config.learning_rate)
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.zero_grad()
        for part in action_probabilities(self._model, episodes):
            objective = advantages[part.steps] * part.log_probs + config.ent_coef * (1.0 - done) * part.entropy
            (-objective.sum() / returns.shape[1]).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
        self._optimizer.step()


def _share_of_steps(search: Search, decisions: int, config: PlacetoConfig) -> float:
    """Share of the allowed steps that is used."""
    if search.budget.evaluations is None:
        return 0.0
    return decisions / max(1, config.steps_per_evaluation * search.budget.evaluations)
