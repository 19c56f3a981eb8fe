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
from gnnplace.planners.classical.single import single_device_assignments
from gnnplace.planners.papers.placeto.episodes import Episodes, PlacetoModel, StepBaseline, judge, roll_out
from gnnplace.planners.papers.placeto.network import PlacetoNetwork
from gnnplace.planners.papers.rewards import single_device_s
from gnnplace.planners.policy_search import CountedRuntime, ShareUsed, one_thread, used_share
from gnnplace.planners.search import Search, Solution
from gnnplace.training.advantage import returns_to_go

__all__ = ["PAPER", "Learner", "PlacetoConfig", "build_network", "learn", "plan"]


@dataclass(frozen=True)
class PlacetoConfig:
    """A smaller network, fewer episodes per update and longer steps than in the paper, for budgets of a few dozen episodes."""

    layers: int = 1
    """Of each message function; 2 in the authors' code."""
    rounds: int = 8
    """Of messages in each direction; paper 8."""
    num_envs: int = 2
    """Episodes between two updates, stepped together; the authors' code has 4 to 8 workers."""
    learning_rate: float = 1e-2
    """Of Adam, falling linearly; paper 1e-3, with which a hundred episodes change little."""
    final_learning_rate: float = 1e-3
    """Paper 1e-4."""
    gamma: float = 1.0
    """Paper 1."""
    baseline_episodes: int = 10
    """Paper 10."""
    ent_coef: float = 0.1
    """Weight of the entropy of a step, falling linearly to 0; the authors' code begins with 1 and has no limit of evaluations. With
    0.03 and less one seed in three stays put on 16 ops and leaves two thirds of 300 evaluations unused."""
    max_grad_norm: float = 1.25
    """Of the gradient summed over the steps of an episode; 1.25 in the authors' code."""
    steps_per_evaluation: int = 5
    """A step that leaves its unit where it is costs no evaluation, so a policy that stays put would never end: training ends
    after this many steps per evaluation of the budget, and may then leave evaluations unused."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


PAPER = PlacetoConfig(layers=2, num_envs=8, learning_rate=1e-3, final_learning_rate=1e-4, ent_coef=1.0)
"""The sizes and rates of Addanki et al. 2019 and of their published code; 32,495 weights for five devices."""


def plan(problem: Problem, budget: Budget, seed: int, config: PlacetoConfig = PlacetoConfig()) -> Solution:
    """The best placement seen at any step while a policy learns from scratch, on this graph alone.

    Addanki et al. 2019. Every episode begins at the best single device, or at HEFT's placement where no single device runs; where
    that fails too, nothing is learned. Departures, beside those of the other files: runtimes are multiples of the best single
    device's, compressed above ten of them and bounded where a placement does not fit (the authors add a penalty per missing
    gigabyte and cut the sum off at ten); devices that no route connects with a unit's neighbours are masked; a step that moves
    nothing is not evaluated again.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "placeto", seed) as search, one_thread():
        search.evaluate_batch(single_device_assignments(problem))
        search.stage("single")
        if not np.isfinite(search.best_s):
            evaluate_heft(search)
            search.stage("heft")
        if search.best is not None and np.isfinite(search.best_s) and (problem.action_mask.sum(axis=1) > 1).any():
            with suppress(ShareUsed):
                learn(search, (search.best.assignment, search.best_s), config)
    return search.solution()


def build_network(devices: int, config: PlacetoConfig, seed: int) -> PlacetoNetwork:
    """A fresh network whose weights follow from the seed; torch's own generator is left as it was.

    >>> sum(weights.numel() for weights in build_network(5, PAPER, seed=0).parameters())
    32495
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PlacetoNetwork(devices, config.layers, config.rounds)


def learn(search: Search, start: tuple[IntArray, float], config: PlacetoConfig) -> None:
    """Episodes from `start` (an assignment `[N]` and its penalised seconds) and updates, until the budget ends.

    Rewards are differences of relative runtimes, so they have no unit: 1 is the time of the best single device.

    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(30), "example", seed=0) as search, suppress(ShareUsed):
    ...     learn(search, (np.array([0, 0, 0, 0]), 6.0), PlacetoConfig())
    >>> round(search.best_s, 3)
    4.001

    Raises:
        ShareUsed: it has.
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
    """REINFORCE with a baseline per step (Addanki et al. 2019, training details).

    >>> from gnnplace.sim.example import diamond
    >>> model = PlacetoModel.of(diamond(), build_network(2, PlacetoConfig(), seed=0))
    >>> batch = PlacementBatch(diamond()).reset(np.zeros((2, 4), dtype=np.int64), visited=model.visited)
    >>> episodes = roll_out(batch, model, 6.0, torch.Generator().manual_seed(0))
    >>> before = nn.utils.parameters_to_vector(model.network.parameters()).detach()
    >>> Learner(model, PlacetoConfig()).update(episodes, done=0.0)
    >>> bool((nn.utils.parameters_to_vector(model.network.parameters()) != before).any())
    True
    """

    def __init__(self, model: PlacetoModel, config: PlacetoConfig) -> None:
        self._model, self._config = model, config
        self._optimizer = torch.optim.Adam(model.network.parameters(), lr=config.learning_rate)
        self._baseline = StepBaseline(config.baseline_episodes)

    def update(self, episodes: Episodes, done: float) -> None:
        """One step along the gradient, when the share `done` of the budget was gone before these episodes."""
        config, network = self._config, self._model.network
        returns = returns_to_go(episodes.rewards, config.gamma)
        advantages: Tensor = returns - self._baseline.take_in(returns)[:, None]
        rate = config.learning_rate + done * (config.final_learning_rate - config.learning_rate)
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.zero_grad()
        for part in judge(self._model, episodes):
            worth = advantages[part.steps] * part.log_probs + config.ent_coef * (1.0 - done) * part.entropy
            (-worth.sum() / returns.shape[1]).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
        self._optimizer.step()


def _share_of_steps(search: Search, decisions: int, config: PlacetoConfig) -> float:
    """Which share of the steps that the budget allows has been made."""
    if search.budget.evaluations is None:
        return 0.0
    return decisions / max(1, config.steps_per_evaluation * search.budget.evaluations)
