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
from gnnplace.planners.classical.single import single_device_assignments
from gnnplace.planners.papers.hierarchical.networks import MAX_OUTPUTS, Chooser, Placer, unit_embeddings, unit_traits
from gnnplace.planners.papers.hierarchical.policies import DirectPolicy, GroupedPolicy, PlacementPolicy
from gnnplace.planners.papers.rewards import MovingAverage, relative_runtime, single_device_s
from gnnplace.planners.policy_search import one_thread, used_share
from gnnplace.planners.search import Search, Solution

__all__ = ["PAPER", "Grouping", "HierarchicalConfig", "build_policy", "learn", "plan", "plan_with", "rewards"]


Grouping = Literal["learned", "random", "none"]


@dataclass(frozen=True)
class HierarchicalConfig:
    """Small networks that learn within a few thousand evaluations; `PAPER` has the paper's sizes."""

    num_groups: int = 16
    """Paper 256; never more than there are units. A third of the time of 48, and placements of 500 units within 2 % of its."""
    grouper_hidden: int = 64
    """Paper 64."""
    placer_hidden: int = 64
    """Paper 512."""
    groupings_per_update: int = 4
    """`m` of equation (4); paper 1."""
    placements_per_grouping: int = 4
    """`k` of equation (6); paper 4."""
    temperature: float = 10.0
    """`T` of equation (1); paper 10."""
    tanh_constant: float = 5.0
    """`C` of equation (1); paper 5."""
    learning_rate: float = 1e-2
    """Of Adam, fixed; paper 0.1. With 0.03 what the small networks draw gets worse at first."""
    ent_coef: float = 0.01
    """Of the placer's entropy, falling linearly to 0; none in the paper, which adds noise to logits. Without it all groups are on one
    device after 200 evaluations; 0.03 and more leave it next to random. "No grouping" has none: with it, it finds nothing."""
    baseline_decay: float = 0.9
    """Share of the old baseline in the new one; 0.9 in the authors' code."""
    max_grad_norm: float = 1.0
    """Paper 1."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


PAPER = HierarchicalConfig(
    num_groups=256,
    placer_hidden=512,
    groupings_per_update=1,
    placements_per_grouping=4,
    learning_rate=0.1,
    ent_coef=0.0,
)
"""The sizes and rates of Mirhoseini et al. 2018; about a hundred times the work per evaluation."""


def plan(problem: Problem, budget: Budget, seed: int, config: HierarchicalConfig = HierarchicalConfig()) -> Solution:
    """The best placement drawn while grouper and placer learn from scratch, on this graph alone, by policy gradient.

    Mirhoseini et al. 2018. Reward is `-sqrt(runtime)`, less a moving average of the batches before. Departures: runtimes are
    multiples of the best single device's, compressed above ten of them, and placements that do not fit cost a bounded multiple
    that falls with the missing bytes, where the paper has seconds and a large constant (see `relative_runtime`); the average
    begins at the first batch's mean; the single devices are evaluated first and count as answers; a group may be sent where
    only some of its units may run, and the rest land on the fastest devices that may run them; one process where the paper has
    many; a falling bonus for the placer's entropy where the paper has noise on logits; failing placements stay in the updates.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return plan_with("hierarchical", "learned", (problem, budget, seed), config)


def plan_with(name: str, grouping: Grouping, task: tuple[Problem, Budget, int], config: HierarchicalConfig) -> Solution:
    """The planner `name`, for the grouping or one of the ablations.

    >>> from gnnplace.sim.example import diamond
    >>> solution = plan_with("mine", "random", (diamond(), Budget(50), 0), HierarchicalConfig(num_groups=2))
    >>> solution.planner, solution.evaluations, solution.objective_s <= 6.0
    ('mine', 50, True)
    """
    problem, budget, seed = task
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, name, seed) as search, one_thread():
        search.evaluate_batch(single_device_assignments(problem))
        search.stage("single")
        if (problem.action_mask.sum(axis=1) > 1).any():
            learn(search, build_policy(problem, grouping, config, seed), config)
    return search.solution()


def build_policy(problem: Problem, grouping: Grouping, config: HierarchicalConfig, seed: int) -> PlacementPolicy:
    """Fresh networks whose weights follow from the seed; torch's own generator is left as it was.

    >>> from gnnplace.sim.example import diamond
    >>> policy = build_policy(diamond(), "learned", HierarchicalConfig(groupings_per_update=2), seed=0)
    >>> devices, log_probs, _ = policy.draw(torch.Generator().manual_seed(0))
    >>> devices.shape, log_probs.shape  # two groupings, four placements of each
    ((8, 4), torch.Size([8]))
    """
    traits, devices = unit_traits(problem), problem.topology.num_devices
    embeddings, kinds = unit_embeddings(traits), traits.type_counts.shape[1]
    features = embeddings.shape[1]
    num_groups = min(config.num_groups, problem.num_units)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if grouping == "none":
            chooser = Chooser(features, config.grouper_hidden, devices)
            return DirectPolicy(
                problem, embeddings, chooser, config.groupings_per_update * config.placements_per_grouping
            )
        grouper = Chooser(features, config.grouper_hidden, num_groups) if grouping == "learned" else None
        placer = Placer(
            kinds + MAX_OUTPUTS + 1 + num_groups,
            devices,
            config.placer_hidden,
            config.temperature,
            config.tanh_constant,
        )
    sizes = num_groups, config.groupings_per_update, config.placements_per_grouping
    return GroupedPolicy(problem, (traits, embeddings), (grouper, placer), sizes)


def learn(search: Search, policy: PlacementPolicy, config: HierarchicalConfig) -> None:
    """Draws, evaluates and learns until the budget ends, which the search notices.

    The gradient is that of equations (4) and (6): of the log probabilities of groupings and of devices, times reward less
    baseline; and of the placer's entropy.

    >>> from gnnplace.sim.example import diamond
    >>> config = HierarchicalConfig()
    >>> with Search(diamond(), Budget(48), "example", seed=0) as search:
    ...     learn(search, build_policy(search.problem, "none", config, seed=0), config)
    >>> search.evaluations, round(search.best_s, 3)
    (48, 4.001)
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
    """`[B]` minus the square root of the relative runtime, from penalised seconds; no unit: -1 is the best single device.

    >>> from gnnplace.sim.example import diamond
    >>> rewards(diamond(), np.array([6.0, 1.5]), reference_s=6.0).tolist()
    [-1.0, -0.5]
    """
    return np.asarray(-np.sqrt(relative_runtime(problem, seconds, reference_s)))
