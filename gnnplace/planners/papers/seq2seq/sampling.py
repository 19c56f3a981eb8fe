"""Placements drawn from a policy, measured within a budget, and what each was worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import BoolArray, FloatArray
from gnnplace.planners.papers.rewards import which_ran
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy, build_policy
from gnnplace.planners.papers.seq2seq.op_groups import OpGroups, op_groups
from gnnplace.planners.search import Search

__all__ = ["Rewards", "Sampled", "Sampler", "SamplingConfig", "sampler_of"]


@dataclass(frozen=True)
class SamplingConfig:
    """What both planners need to draw placements."""

    network: Seq2SeqConfig = Seq2SeqConfig()
    least_groups_per_device: int = 16
    """See `group_units`; 0 joins without limit, as Mirhoseini et al."""
    failing_ratio: float = 10.0
    """Runtime of a failing placement over the mean of the first that ran; the published controller (see `network`) 100 s."""
    unlimited_evaluations_per_unit: int = 1000
    """Where the budget knows no end."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """`K` placements and their rewards."""

    decisions: Tensor  # [G, K]
    rewards: FloatArray  # [K]
    ran: BoolArray  # [K] false for placements that do not fit or cannot run

    @property
    def that_ran(self) -> Sampled:
        """The same without those that failed."""
        return Sampled(self.decisions[:, torch.from_numpy(self.ran)], self.rewards[self.ran], self.ran[self.ran])


@dataclass(eq=False)
class Rewards:
    """Minus the square root of the runtime (Mirhoseini et al. 2017, section 3.1), in units of the first runtimes.

    A placement that fails counts as a large constant runtime. Departure: the unit is the mean runtime of the first batch in
    which a placement ran, so that neither the constant nor the learning rate depends on how long a graph takes.

    >>> rewards = Rewards(failing_ratio=16.0)
    >>> rewards.of(np.array([6.0, np.inf]), np.array([True, False])).tolist()
    [-1.0, -4.0]
    >>> rewards.of(np.array([1.5]), np.array([True])).tolist(), rewards.unit_s
    ([-0.5], 6.0)
    """

    failing_ratio: float
    """Runtime of a failing placement in that unit."""
    unit_s: float | None = None
    """Seconds; None until a placement has run."""

    @property
    def failing(self) -> float:
        """Reward of a placement that fails."""
        return -float(np.sqrt(self.failing_ratio))

    def of(self, seconds: FloatArray, ran: BoolArray) -> FloatArray:
        """Rewards `[K]` of penalised seconds `[K]`, where `ran` `[K]` is false for placements that failed."""
        if self.unit_s is None and ran.any():
            self.unit_s = max(float(seconds[ran].mean()), 1e-300)
        rewards = np.full(len(seconds), self.failing)
        if self.unit_s is not None:
            rewards[ran] = -np.sqrt(np.minimum(seconds[ran] / self.unit_s, self.failing_ratio))
        return rewards


@dataclass(frozen=True, eq=False)
class Sampler:
    """A policy for one problem, and the search that pays for its placements.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> sampler = sampler_of(Search(diamond(), Budget(5), "example", seed=0), SamplingConfig())
    >>> [len(sampler.draw(3).rewards) for _ in range(2)], sampler.search.remaining
    ([3, 2], 0)
    """

    search: Search
    groups: OpGroups
    policy: Seq2SeqPolicy
    rewards: Rewards
    generator: torch.Generator

    def draw(self, count: int) -> Sampled:
        """`count` placements, or what is left of the budget, drawn from the policy and evaluated together.

        Raises:
            BudgetExhausted: nothing is left.
        """
        decisions = self.policy.sample(max(1, min(count, self.search.remaining)), self.generator)
        seconds = self.search.evaluate_batch(self.groups.assignments(decisions.numpy()))
        ran = which_ran(self.search.problem, seconds)
        return Sampled(decisions, self.rewards.of(seconds, ran), ran)


def sampler_of(search: Search, config: SamplingConfig) -> Sampler | None:
    """A fresh policy for the problem of `search`; None where there is nothing to choose, after the only placement.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> sampler = sampler_of(Search(diamond(), Budget(5), "example", seed=0), SamplingConfig())
    >>> sampled = sampler.draw(5)
    >>> sampled.decisions.shape, sampled.ran.tolist()
    (torch.Size([4, 5]), [True, True, True, True, True])
    """
    groups = op_groups(search.problem, config.least_groups_per_device)
    if not groups.has_choice:
        search.evaluate_batch(groups.assignments(groups.action_mask.argmax(axis=1)[:, None]))
        return None
    weights_seed, drawing_seed = np.random.default_rng(search.seed).integers(2**62, size=2).tolist()
    return Sampler(
        search,
        groups,
        build_policy(groups, weights_seed, config.network),
        Rewards(config.failing_ratio),
        torch.Generator().manual_seed(drawing_seed),
    )
