"""The hierarchical planner: a grouper and a placer that learn together which placements of one graph are fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from gnnplace.arrays import FloatArray
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.papers.hierarchical.networks import MAX_OUTPUTS, Chooser, Placer, unit_embeddings, unit_traits
from gnnplace.planners.papers.hierarchical.policies import DirectPolicy, DrawSizes, GroupedPolicy, PlacementPolicy
from gnnplace.planners.papers.rewards import MovingAverage, relative_runtime, single_device_s
from gnnplace.planners.policy_search import used_share
from gnnplace.planners.search import Search, Solution
from gnnplace.policy.network import one_thread

__all__ = [
    "PAPER",
    "Grouping",
    "HierarchicalConfig",
    "build_policy",
    "learn",
    "plan",
    "plan_no_grouping",
    "plan_random_grouping",
    "rewards",
]


Grouping = Literal["learned", "random", "none"]


@dataclass(frozen=True)
class HierarchicalConfig:
    """Small networks that learn within a few thousand evaluations; `PAPER` has the paper's sizes."""

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
    """Weight of the placer's entropy, falling linearly to 0; none in the paper, which adds noise to logits. With 0 all groups are on
    one device after 200 evaluations; with 0.03 and more the placer stays almost random. "No grouping" has no such term."""
    baseline_decay: float = 0.9
    """Weight of the old baseline in the new one; 0.9 in the authors' code."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradient; paper 1."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


PAPER = HierarchicalConfig(
    num_groups=256,
    placer_hidden=512,
    groupings_per_update=1,
    placements_per_grouping=4,
    learning_rate=0.1,
    ent_coef=0.0,
)
"""The sizes and rates of Mirhoseini et al. 2018; about a hundred times the computation per evaluation."""


def plan(problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig = HierarchicalConfig()) -> Solution:
    """The best placement drawn while grouper and placer learn from scratch, on this graph alone, by policy gradient.

    Mirhoseini et al. 2018. The reward is `-sqrt(runtime)`, minus a moving average of the batches before. Departures: runtimes are
    multiples of the best single device's, compressed above ten of them, and placements that do not fit have a bounded multiple
    that falls with the missing bytes, where the paper has seconds and a large constant (see `relative_runtime`); the average
    begins at the first batch's mean; the single devices are evaluated first and count as answers; a group may go where
    only some of its units may run, and the others go to the fastest devices that may run them; one process where the paper has
    many; a falling bonus for the placer's entropy where the paper has noise on logits; failing placements stay in the updates.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return _plan("hierarchical", "learned", problem, budget, seed, config)


def plan_no_grouping(
    problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig = HierarchicalConfig()
) -> Solution:
    """The ablation "no grouping" of Mirhoseini et al. 2018: a feed-forward network places every op on its own.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_no_grouping(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return _plan("hierarchical-no-grouping", "none", problem, budget, seed, config)


def plan_random_grouping(
    problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig = HierarchicalConfig()
) -> Solution:
    """The ablation "random grouping" of Mirhoseini et al. 2018: groups are drawn once, and only the placer learns.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan_random_grouping(diamond(), Budget(50), seed=0).objective_s, 3)
    4.002
    """
    return _plan("hierarchical-random-grouping", "random", problem, budget, seed, config)


def _plan(
    name: str, grouping: Grouping, problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig
) -> Solution:
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, name, seed) as search, one_thread():
        search.evaluate_batch(problem.single_device_assignments)
        search.stage("single")
        if (problem.action_mask.sum(axis=1) > 1).any():
            learn(search, build_policy(problem, grouping, config, seed), config)
    return search.solution()


def build_policy(problem: Problem, grouping: Grouping, config: HierarchicalConfig, seed: int) -> PlacementPolicy:
    """Fresh networks whose weights follow from the seed; torch's own generator is left as it was."""
    traits, num_devices = unit_traits(problem), problem.topology.num_devices
    features, num_types = unit_embeddings(traits).shape[1], traits.type_counts.shape[1]
    groupings, copies = config.groupings_per_update, config.placements_per_grouping
    num_groups = min(config.num_groups, problem.num_units)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if grouping == "none":
            chooser = Chooser(features, config.grouper_hidden, num_devices)
            return DirectPolicy(problem, traits, chooser, groupings * copies)
        grouper = Chooser(features, config.grouper_hidden, num_groups) if grouping == "learned" else None
        placer = Placer(
            num_types + MAX_OUTPUTS + 1 + num_groups, num_devices, config.placer_hidden,
            config.temperature, config.tanh_constant,
        )  # fmt: skip
    return GroupedPolicy(problem, traits, grouper, placer, DrawSizes(num_groups, groupings, copies))


def learn(search: Search, policy: PlacementPolicy, config: HierarchicalConfig) -> None:
    """Draws, evaluates and learns until the search ends at its budget.

    The gradient is that of equations (4) and (6): of the log probabilities of groupings and of devices, times reward minus
    baseline; and of the placer's entropy.
    """
    problem, reference_s = search.problem, single_device_s(search.problem)
    generator = torch.Generator().manual_seed(search.seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate)
    baseline = MovingAverage(config.baseline_decay)
    while True:
        ent_coef = config.ent_coef * max(0.0, 1.0 - used_share(search))
        devices, log_probs, entropy = policy.draw(generator)
        seconds = search.evaluate_batch(devices[:, problem.unit_of_op])
        if not search.remaining:
            return
        reward = rewards(problem, seconds, reference_s)
        advantages = torch.from_numpy(baseline.advantages(reward)).float()
        loss = -(advantages * log_probs + ent_coef * entropy).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
        optimizer.step()


def rewards(problem: Problem, seconds: FloatArray, reference_s: float) -> FloatArray:
    """`[B]` minus the square root of the relative runtime, from penalised seconds; the best single device has -1."""
    return np.asarray(-np.sqrt(relative_runtime(problem, seconds, reference_s)))
