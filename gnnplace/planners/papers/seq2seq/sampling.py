"""Placements drawn from a policy and evaluated within a budget, with their rewards."""

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
    """Settings of both planners for drawing placements."""

    network: Seq2SeqConfig = Seq2SeqConfig()
    least_groups_per_device: int = 16
    """Bounds the size of a group, see `group_units`; 0: no limit, as in Mirhoseini et al."""
    failing_ratio: float = 10.0
    """Runtime of a failing placement over the mean of the first ones that ran; the published controller (see `network`) 100 s."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """`K` placements and their rewards."""

    decisions: Tensor  # [G, K]
    rewards: FloatArray  # [K]
    ran: BoolArray  # [K] false for placements that do not fit or cannot run

    @property
    def without_failures(self) -> Sampled:
        """The placements that ran, with their rewards."""
        return Sampled(self.decisions[:, torch.from_numpy(self.ran)], self.rewards[self.ran], self.ran[self.ran])


@dataclass(eq=False)
class Rewards:
    """Minus the square root of the runtime (Mirhoseini et al. 2017, section 3.1), in units of the first runtimes.

    A placement that fails has a large constant runtime. Departure: the unit is the mean runtime of the first batch in
    which a placement ran, so that neither the constant nor the learning rate depends on how long a graph takes.
    """

    failing_ratio: float
    """Runtime of a failing placement in that unit."""
    unit_s: float | None = None
    """Seconds of the unit; None until a placement has run."""

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
    """A policy for one problem, and the search that evaluates its placements."""

    search: Search
    groups: OpGroups
    policy: Seq2SeqPolicy
    rewards: Rewards
    generator: torch.Generator

    def draw(self, count: int) -> Sampled:
        """Draws and evaluates `count` placements together, or as many as the budget still allows.

        Raises:
            BudgetExhausted: no evaluation is left.
        """
        decisions = self.policy.sample(max(1, min(count, self.search.remaining)), self.generator)
        seconds = self.search.evaluate_batch(self.groups.assignments(decisions.numpy()))
        ran = which_ran(self.search.problem, seconds)
        return Sampled(decisions, self.rewards.of(seconds, ran), ran)


def sampler_of(search: Search, config: SamplingConfig) -> Sampler | None:
    """A fresh policy for the problem of `search`; None where there is only one placement, which is then evaluated."""
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
