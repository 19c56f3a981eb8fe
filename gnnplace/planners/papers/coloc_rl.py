"""Device placement by REINFORCE on a sequence-to-sequence policy (Mirhoseini et al., ICML 2017).

Read beside section 3.1: `K` placements are drawn from the policy and measured, their rewards are `-sqrt(runtime)`, and

    gradient = 1/K * sum_i (reward_i - B) * grad log p(placement_i)

with a moving average `B` of the rewards; Adam. Placements that fail have a large constant runtime at first, and late in training
updates leave them out. The policy is `seq2seq/network.py`, the colocation rule `seq2seq/op_groups.py`.

Departure: one process draws, measures and learns in turn; the paper has asynchronous controllers, whose workers measure.
"The published controller" is that of the authors' hierarchical planner of 2018 (TensorFlow,
`grappler/hierarchical_controller.py`): the paper itself gives none of these numbers.
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
from gnnplace.planners.policy_search import used_share
from gnnplace.planners.search import Search, Solution
from gnnplace.policy.network import one_thread

__all__ = ["PAPER", "ColocRlConfig", "plan", "reinforce_loss"]


@dataclass(frozen=True)
class ColocRlConfig:
    """A small preset; `PAPER` has the sizes of the published controller."""

    num_placements: int = 10
    """`K`, placements per update; the same in `PAPER` and in `spotlight`."""
    learning_rate: float = 3e-3
    """Rate of Adam; the published controller 0.1, with logits between -1 and 1."""
    baseline_decay: float = 0.9
    """Weight of the old baseline in the new one; the published controller 0.9."""
    baseline_starts_failing: bool = False
    """True: the first baseline is the failing reward, as in the published controller, which explores for long. False: it is the first
    batch's mean, since a search of a few hundred placements would end before the other baseline has fallen."""
    failing_share: float = 0.5
    """Share of the budget after which updates leave out failing placements; the paper counts updates."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradient; the published controller 1.0."""
    sampling: SamplingConfig = SamplingConfig()


PAPER = ColocRlConfig(
    learning_rate=1e-3,
    baseline_starts_failing=True,
    sampling=SamplingConfig(Seq2SeqConfig(hidden=512, attention_width=512, type_width=64), least_groups_per_device=0),
)
"""Widths of LSTMs and attention from the published controller, and the paper's colocation rule without a limit. The width of
the type vectors, `K` and the learning rate (logits are not bounded) are our own."""


def plan(problem: Problem, budget: Budget, seed: int, config: ColocRlConfig = ColocRlConfig()) -> Solution:
    """The best of all placements that were drawn while the policy learned.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.sampling.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "coloc-rl", seed) as search, one_thread():
        _learn(search, config)
    return search.solution()


def _learn(search: Search, config: ColocRlConfig) -> None:
    """Draws placements and updates the policy until the budget ends."""
    sampler = sampler_of(search, config.sampling)
    if sampler is None:
        return
    optimizer = torch.optim.Adam(sampler.policy.parameters(), lr=config.learning_rate)
    baseline = MovingAverage(config.baseline_decay, sampler.rewards.failing if config.baseline_starts_failing else None)
    while True:
        sampled = sampler.draw(config.num_placements)
        if used_share(search) > config.failing_share:
            sampled = sampled.without_failures
        if not len(sampled.rewards):
            continue
        loss = reinforce_loss(sampler.policy, sampled, baseline.advantages(sampled.rewards))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(sampler.policy.parameters(), config.max_grad_norm)
        optimizer.step()


def reinforce_loss(policy: Seq2SeqPolicy, sampled: Sampled, advantages: FloatArray) -> torch.Tensor:
    """Loss of REINFORCE: `-1/K sum advantage * log p`, with advantages `[K]`."""
    log_probs = policy.log_probs(sampled.decisions).gather(-1, sampled.decisions[..., None]).squeeze(-1)
    return -(torch.from_numpy(advantages).float() * log_probs.sum(dim=0)).mean()
