"""Spotlight: device placement by proximal policy optimisation (Gao, Chen and Li, ICML 2018).

Placing is a Markov decision process of as many stages as there are op groups: the state of a stage is what has been placed so
far, its action the device of one more group, and only the last stage has a reward. Each batch of placements is learned from for
several epochs of stochastic gradient ascent on

    mean over stages of  ratio * advantage - beta * KL(policy that drew || policy)

where `ratio` is the probability of the action under the changed policy over that under the one that drew it. The reward,
`-sqrt(runtime)`, less a moving average, is the advantage of every stage of its placement. The policy is recurrent with attention: that
of `coloc-rl`, so that the two planners differ in how they learn alone.

Departures: the paper bounds the largest KL divergence of any state, which samples cannot give; as in practice, the mean over
the states visited stands for it, and `beta` follows it (Schulman et al. 2017, section 4). Advantages are divided by their root
mean square, so that `beta` means the same on every graph; failing placements keep their large constant runtime throughout; a
batch of placements that are all worth the same is not learned from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.papers.rewards import MovingAverage
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.sampling import SamplingConfig, sampler_of
from gnnplace.planners.policy_search import one_thread
from gnnplace.planners.search import Search, Solution

__all__ = ["PAPER", "SpotlightConfig", "SpotlightUpdate", "compare", "next_kl_coef", "plan", "proximal_update"]


_ALIKE = 1e-9
"""Rewards, about 1 in size, that differ by less are the same."""


@dataclass(frozen=True)
class SpotlightConfig:
    """A small preset; `PAPER` is as large as that of `coloc-rl`. Names are CleanRL's where it has them."""

    num_placements: int = 10
    """Placements in a batch; as many as `coloc-rl` has."""
    update_epochs: int = 4
    """Gradient steps on every batch; Gao et al. several, CleanRL 4."""
    learning_rate: float = 3e-3
    """As for `coloc-rl`."""
    baseline_decay: float = 0.9
    """Share of the old baseline in the new one; as for `coloc-rl`."""
    kl_coef: float = 1.0
    """`beta` at the start; Schulman et al. 2017: 1."""
    target_kl: float = 0.01
    """Mean KL divergence of a stage that an update aims at; Schulman et al. 2017: 0.003 to 0.03."""
    max_grad_norm: float = 1.0
    """Longer gradients are shortened to this; as for `coloc-rl`."""
    sampling: SamplingConfig = SamplingConfig()


PAPER = SpotlightConfig(
    learning_rate=1e-3,
    sampling=SamplingConfig(Seq2SeqConfig(hidden=512, attention_width=512, type_width=64), least_groups_per_device=0),
)
"""The network of `coloc-rl`'s `PAPER`, so that the two compare; none of its sizes is from Gao et al."""


@dataclass(frozen=True)
class SpotlightUpdate:
    """What one update did."""

    first_ratio: float
    """Mean probability ratio before the first gradient step: 1 when nothing is wrong."""
    kl: float
    """Mean KL divergence of a stage, from the policy that drew, before the last gradient step."""


def plan(problem: Problem, budget: Budget, seed: int, config: SpotlightConfig = SpotlightConfig()) -> Solution:
    """The best placement of all that were drawn while the policy learned.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.sampling.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "spotlight", seed) as search, one_thread():
        _learn(search, config)
    return search.solution()


def _learn(search: Search, config: SpotlightConfig) -> None:
    """Draws and updates until the budget ends."""
    sampler = sampler_of(search, config.sampling)
    if sampler is None:
        return
    optimizer = torch.optim.Adam(sampler.policy.parameters(), lr=config.learning_rate)
    baseline, kl_coef = MovingAverage(config.baseline_decay), config.kl_coef
    while True:
        sampled = sampler.draw(config.num_placements)
        advantages = baseline.advantages(sampled.rewards)
        if np.ptp(sampled.rewards) < _ALIKE:
            continue  # nothing tells these placements apart
        scale = float(np.sqrt(np.mean(advantages**2)))
        update = proximal_update(
            sampler.policy,
            optimizer,
            (sampled.decisions, torch.from_numpy(advantages / scale).float()),
            kl_coef,
            config,
        )
        kl_coef = next_kl_coef(kl_coef, update.kl, config.target_kl)


def proximal_update(
    policy: Seq2SeqPolicy,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    kl_coef: float,
    config: SpotlightConfig,
) -> SpotlightUpdate:
    """Learns from decisions `[G, K]` that `policy` has just drawn, and their advantages `[K]`, for several epochs.

    >>> from gnnplace.planners.papers.seq2seq.network import build_policy
    >>> from gnnplace.planners.papers.seq2seq.op_groups import op_groups
    >>> from gnnplace.sim.example import diamond
    >>> policy = build_policy(op_groups(diamond()), seed=0)
    >>> batch = policy.sample(4, torch.Generator().manual_seed(0)), torch.tensor([1.0, -1.0, 1.0, -1.0])
    >>> update = proximal_update(policy, torch.optim.Adam(policy.parameters()), batch, 1.0, SpotlightConfig())
    >>> round(update.first_ratio, 5), update.kl > 0.0
    (1.0, True)
    """
    decisions, advantages = batch
    first_ratio, kl, drawn = 1.0, 0.0, None
    for _ in range(config.update_epochs):
        log_probs = policy.log_probs(decisions)
        drawn, is_first = (log_probs.detach(), True) if drawn is None else (drawn, False)
        ratio, divergence = compare(log_probs, drawn, decisions)
        if is_first:
            first_ratio = float(ratio.detach().mean())
        mean_kl = divergence.mean()
        kl = float(mean_kl.detach())
        loss = kl_coef * mean_kl - (ratio * advantages).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
        optimizer.step()
    return SpotlightUpdate(first_ratio, kl)


def next_kl_coef(kl_coef: float, kl: float, target_kl: float) -> float:
    """`beta` of the next update (Schulman et al. 2017, section 4): doubled or halved when the last one went too far or not far enough.

    >>> next_kl_coef(1.0, kl=0.02, target_kl=0.01), next_kl_coef(1.0, kl=0.001, target_kl=0.01)
    (2.0, 0.5)
    """
    if kl > 1.5 * target_kl:
        return kl_coef * 2.0
    return kl_coef / 2.0 if kl < target_kl / 1.5 else kl_coef


def compare(log_probs: Tensor, drawn: Tensor, decisions: Tensor) -> tuple[Tensor, Tensor]:
    """Of each stage: the probability of its action over what it was, and the KL divergence from what it was, `[G, K]` each.

    `log_probs` and `drawn` `[G, K, D]` are those of all devices, now and when the decisions `[G, K]` were drawn.

    >>> drawn, now = (torch.tensor([[shares]]).log() for shares in ([0.5, 0.5], [0.75, 0.25]))
    >>> ratio, kl = compare(now, drawn, decisions=torch.tensor([[0]]))
    >>> round(float(ratio), 3), round(float(kl), 3)
    (1.5, 0.144)
    """
    chosen = decisions[..., None]
    ratio = (log_probs.gather(-1, chosen) - drawn.gather(-1, chosen)).squeeze(-1).exp()
    change = (drawn - log_probs).masked_fill(drawn.isneginf(), 0.0)  # forbidden devices: probability 0 in both
    return ratio, (drawn.exp() * change).sum(dim=-1)
