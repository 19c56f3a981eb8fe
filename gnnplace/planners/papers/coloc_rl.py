"""Device placement by REINFORCE on a sequence-to-sequence policy (Mirhoseini et al., ICML 2017).

Read beside section 3.1: `K` placements are drawn from the policy and measured, their rewards are `-sqrt(runtime)`, and

    gradient = 1/K * sum_i (reward_i - B) * grad log p(placement_i)

with a moving average `B` of the rewards; Adam. Placements that fail count as a large constant runtime at first and are left out
of the updates late in training. The policy is `seq2seq/network.py`, the co-location rule `seq2seq/op_groups.py`.

Departure: one process draws, measures and learns in turn; the paper has asynchronous controllers, whose workers measure.
What the docstrings call the published controller is that of the authors' hierarchical planner, of 2018
(TensorFlow, `grappler/hierarchical_controller.py`): the paper itself gives none of these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from gnnplace.arrays import FloatArray
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.papers.rewards import MovingAverage
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.sampling import Sampled, SamplingConfig, sampler_of
from gnnplace.planners.policy_search import one_thread, used_share
from gnnplace.planners.search import Search, Solution

__all__ = ["PAPER", "ColocRlConfig", "plan", "reinforce_loss"]


@dataclass(frozen=True)
class ColocRlConfig:
    """A small preset; `PAPER` has the sizes of the published controller."""

    num_placements: int = 10
    """`K`, placements for each update; as many in `PAPER` and in `spotlight`."""
    learning_rate: float = 3e-3
    """The published controller 0.1, with logits that it keeps between -1 and 1."""
    baseline_decay: float = 0.9
    """Share of the old baseline in the new one; the published controller 0.9."""
    baseline_starts_failing: bool = False
    """The published controller begins the baseline with the failing reward, which explores for long; else it is the
    first batch's mean, as a search of a few hundred placements would end before such a baseline has fallen."""
    failing_share: float = 0.5
    """Share of the budget after which failing placements are left out of the updates; the paper counts updates."""
    max_grad_norm: float = 1.0
    """The published controller 1.0."""
    sampling: SamplingConfig = SamplingConfig()


PAPER = ColocRlConfig(
    learning_rate=1e-3,
    baseline_starts_failing=True,
    sampling=SamplingConfig(Seq2SeqConfig(hidden=512, attention_width=512, type_width=64), least_groups_per_device=0),
)
"""LSTMs and attention as wide as in the published controller, and the paper's co-location rule without a limit. The width of
the type vectors, `K` and the learning rate (the logits are not bounded) are ours."""


def plan(problem: Problem, budget: Budget, seed: int, config: ColocRlConfig = ColocRlConfig()) -> Solution:
    """The best placement of all that were drawn while the policy learned.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.sampling.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "coloc-rl", seed) as search, one_thread():
        _learn(search, config)
    return search.solution()


def _learn(search: Search, config: ColocRlConfig) -> None:
    """Draws and updates until the budget ends."""
    sampler = sampler_of(search, config.sampling)
    if sampler is None:
        return
    optimizer = torch.optim.Adam(sampler.policy.parameters(), lr=config.learning_rate)
    baseline = MovingAverage(config.baseline_decay, sampler.rewards.failing if config.baseline_starts_failing else None)
    while True:
        sampled = sampler.draw(config.num_placements)
        if used_share(search) > config.failing_share:
            sampled = sampled.that_ran
        if not len(sampled.rewards):
            continue
        loss = reinforce_loss(sampler.policy, sampled, baseline.advantages(sampled.rewards))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(sampler.policy.parameters(), config.max_grad_norm)
        optimizer.step()


def reinforce_loss(policy: Seq2SeqPolicy, sampled: Sampled, advantages: FloatArray) -> torch.Tensor:
    """What gradient descent lessens: `-1/K sum advantage * log p`, with advantages `[K]`.

    >>> import numpy as np
    >>> from gnnplace.planners.papers.seq2seq.network import build_policy
    >>> from gnnplace.planners.papers.seq2seq.op_groups import op_groups
    >>> from gnnplace.sim.example import diamond
    >>> policy = build_policy(op_groups(diamond()), seed=0)
    >>> decisions, rewards = policy.sample(2, torch.Generator().manual_seed(0)), np.array([-1.0, -2.0])
    >>> drawn = Sampled(decisions, rewards, np.array([True, True]))
    >>> reinforce_loss(policy, drawn, rewards - rewards).item() == 0.0  # what is as good as the baseline teaches nothing
    True
    >>> reinforce_loss(policy, drawn, np.ones(2)).item() > 0.0
    True
    """
    log_probs = policy.log_probs(sampled.decisions).gather(-1, sampled.decisions[..., None]).squeeze(-1)
    return -(torch.from_numpy(advantages).float() * log_probs.sum(dim=0)).mean()
