"""The hierarchical planner: a grouper and a placer that learn together which placements of one graph are fast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.hierarchical.networks import (
    Chooser,
    Placer,
    group_embeddings,
    unit_embeddings,
    unit_traits,
)
from gnnplace.planners.papers.learning import (
    MovingAverage,
    gradient_step,
    landing_devices,
    relative_runtime,
    single_device_s,
)
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution
from gnnplace.policy.network import one_thread, seeded

Grouping = Literal["learned", "random", "none"]

_NAMES = {
    "learned": "hierarchical", "random": "hierarchical-random-grouping", "none": "hierarchical-no-grouping",
}  # fmt: skip


@dataclass(frozen=True)
class HierarchicalConfig:
    """Small networks that learn within a few thousand evaluations; `PAPER` has the paper's sizes."""

    grouping: Grouping = "learned"
    """Grouping of ops; "random" and "none" are the paper's ablations."""
    num_groups: int = 16
    """Groups, at most one per unit; paper 256. 16 take a third of the time of 48, and place 500 units within 2 % of its result."""
    grouper_hidden: int = 64
    """Width of the grouper; paper 64."""
    placer_hidden: int = 64
    """Width of the placer; paper 512."""
    groupings_per_update: int = 4
    """`m` of equation (4); paper 1."""
    placements_per_grouping: int = 4
    """`k` of equation (6); paper 4."""
    temperature: float = 10.0
    """`T` of equation (1); paper 10."""
    tanh_constant: float = 5.0
    """`C` of equation (1); paper 5."""
    learning_rate: float = 1e-2
    """Constant rate of Adam; paper 0.1. With 0.03 the placements of the small networks get worse at first."""
    ent_coef: float = 0.01
    """Weight of the placer's entropy, falling linearly to 0; the paper adds noise to logits instead. With 0 all groups are on one
    device after 200 evaluations; with 0.03 and more the placer stays almost random. "No grouping" has no such term."""
    baseline_decay: float = 0.9
    """Weight of the old baseline in the new one; 0.9 in the authors' code."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradient; paper 1."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


PAPER = HierarchicalConfig(num_groups=256, placer_hidden=512, groupings_per_update=1, learning_rate=0.1, ent_coef=0.0)
"""The sizes and rates of Mirhoseini et al. 2018; about a hundred times the computation per evaluation."""


def plan(problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig = HierarchicalConfig()) -> Solution:
    """The best placement drawn while grouper and placer learn from scratch, on this graph alone, by policy gradient.

    Mirhoseini et al. 2018. The reward is `-sqrt(runtime)`, minus a moving average of the batches before. Departures:

    - Runtimes are multiples of the best single device's, compressed above ten of them. Placements that do not fit have a bounded
      multiple that falls with the missing bytes (see `relative_runtime`). The paper has seconds and a large constant.
    - The average begins at the first batch's mean, and failing placements stay in the updates.
    - The search evaluates the single devices first, and one of them may be the answer.
    - A group may go where only some of its units may run; the others go to the fastest devices that may run them.
    - One process draws, evaluates and learns; the paper has many. A falling bonus for entropy replaces its noise on logits.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, _NAMES[config.grouping], seed) as search, one_thread():
        search.evaluate_batch(problem.single_device_assignments)
        search.stage("single")
        if len(problem.movable_units):
            _learn(search, build_policy(problem, config, seed), config)
    return search.solution()


plan_no_grouping = partial(plan, config=HierarchicalConfig(grouping="none"))
"""The ablation "no grouping" of Mirhoseini et al. 2018: a feed-forward network places every op on its own."""
plan_random_grouping = partial(plan, config=HierarchicalConfig(grouping="random"))
"""The ablation "random grouping" of Mirhoseini et al. 2018: groups are drawn once, and only the placer learns."""


def build_policy(problem: Problem, config: HierarchicalConfig, seed: int) -> GroupedPolicy | DirectPolicy:
    """Fresh networks whose weights follow from the seed."""
    with seeded(seed):
        return DirectPolicy(problem, config) if config.grouping == "none" else GroupedPolicy(problem, config)


class GroupedPolicy(nn.Module):
    """Draws groups of units, then a device for each group.

    A unit that may not run on its group's device goes to the fastest one that may run it; a group may go wherever one of
    its units may. Without a grouper, units fall into groups at random, once for all draws: the ablation "random grouping".
    """

    def __init__(self, problem: Problem, config: HierarchicalConfig) -> None:
        super().__init__()
        self._problem, self._config, self._landing = problem, config, landing_devices(problem)
        self._traits = unit_traits(problem)
        self._units = torch.from_numpy(unit_embeddings(self._traits)).float()
        self._num_groups = min(config.num_groups, problem.num_units)
        self._fixed: Tensor | None = None
        self.grouper = None
        if config.grouping == "learned":
            self.grouper = Chooser(self._units.shape[1], config.grouper_hidden, self._num_groups)
        self.placer = Placer(
            self._traits.amounts.shape[1] + self._num_groups, problem.topology.num_devices, config.placer_hidden,
            config.temperature, config.tanh_constant,
        )  # fmt: skip

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """Devices `[B, U]`, the log probability `[B]` of each placement, and the placer's entropy `[B]`, with gradients.

        The placements of one grouping are consecutive.
        """
        copies = self._config.placements_per_grouping
        groups, log_prob = self.draw_groups(generator)
        embeddings = torch.from_numpy(group_embeddings(self._traits, groups, self._num_groups)).float()
        mask = torch.from_numpy(group_mask(groups, self._problem.action_mask, self._num_groups))
        devices, placer_log_prob, entropy = self.placer.draw(embeddings, mask, copies, generator)
        wanted = np.take_along_axis(devices.numpy(), np.repeat(groups, copies, axis=0), axis=1)
        landed = self._landing[np.arange(self._problem.num_units), wanted]
        return landed, log_prob.repeat_interleave(copies) + placer_log_prob, entropy

    def draw_groups(self, generator: Generator) -> tuple[IntArray, Tensor]:
        """Groups `[M, U]` and the log probability `[M]` of each grouping; 0 when the grouping is not learned."""
        count = self._config.groupings_per_update
        if self.grouper is not None:
            everywhere = torch.ones(len(self._units), self._num_groups, dtype=torch.bool)
            drawn, log_prob = self.grouper.draw(self._units, everywhere, count, generator)
            return drawn.numpy(), log_prob
        if self._fixed is None:
            self._fixed = torch.randint(self._num_groups, (1, len(self._units)), generator=generator)
        return self._fixed.expand(count, -1).numpy(), torch.zeros(count)


class DirectPolicy(nn.Module):
    """Draws a device for every unit on its own, by a feed-forward network: the paper's ablation "no grouping"."""

    def __init__(self, problem: Problem, config: HierarchicalConfig) -> None:
        super().__init__()
        self._count = config.groupings_per_update * config.placements_per_grouping
        self._units = torch.from_numpy(unit_embeddings(unit_traits(problem))).float()
        self._mask = torch.from_numpy(problem.action_mask)
        self.chooser = Chooser(self._units.shape[1], config.grouper_hidden, problem.topology.num_devices)

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """As `GroupedPolicy.draw`, without a placer: entropies are 0."""
        devices, log_prob = self.chooser.draw(self._units, self._mask, self._count, generator)
        return devices.numpy(), log_prob, torch.zeros(self._count)


def group_mask(groups: IntArray, allowed: BoolArray, num_groups: int) -> BoolArray:
    """`[M, G, D]` true where a unit of the group may go, from groups `[M, U]` and `allowed` `[U, D]`; all true for empty groups."""
    mask = np.zeros((len(groups), num_groups, allowed.shape[1]), dtype=np.bool_)
    np.logical_or.at(mask, (np.arange(len(groups))[:, None], groups), allowed[None])
    mask[~mask.any(axis=2)] = True
    return mask


def _learn(search: Search, policy: GroupedPolicy | DirectPolicy, config: HierarchicalConfig) -> None:
    """Draws, evaluates and learns until the search ends at its budget.

    The gradient is that of equations (4) and (6), the gradient of the log probabilities of groupings and of devices times reward
    minus baseline, plus that of the placer's entropy.
    """
    problem, reference_s = search.problem, single_device_s(search.problem)
    generator = torch.Generator().manual_seed(search.seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate)
    baseline = MovingAverage(config.baseline_decay)
    while True:
        ent_coef = config.ent_coef * max(0.0, 1.0 - search.used_share)
        devices, log_probs, entropy = policy.draw(generator)
        seconds = search.evaluate_batch(devices[:, problem.unit_of_op])
        if not search.remaining:
            return
        rewards = -np.sqrt(relative_runtime(problem, seconds, reference_s))
        advantages = torch.from_numpy(baseline.advantages(rewards)).float()
        loss = -(advantages * log_probs + ent_coef * entropy).mean()
        gradient_step(policy, optimizer, loss, config.max_grad_norm)
