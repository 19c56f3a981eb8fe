"""Spotlight: device placement by proximal policy optimisation (Gao, Chen and Li, ICML 2018).

Placing is a Markov decision process with one stage per op group: the state of a stage is the partial placement, its action is the
device of the next group, and only the last stage has a reward. The policy learns from each batch of placements for several epochs
of stochastic gradient ascent on

    mean over stages of  ratio * advantage - beta * KL(policy that drew || policy)

where `ratio` is the probability of the action under the changed policy over that under the policy that drew it. The advantage of
every stage is the reward of its placement, `-sqrt(runtime)`, minus a moving average. The policy is that of `coloc-rl` (recurrent,
with attention), so the two planners differ only in how they learn.

Departures: the paper bounds the largest KL divergence of any state, which samples cannot give; as is common, the mean over
the visited states replaces it, and `beta` follows it (Schulman et al. 2017, section 4). Advantages are divided by their root
mean square, so that `beta` means the same on every graph; failing placements keep their large constant runtime throughout; no
update follows a batch of placements with equal rewards.
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
from gnnplace.planners.search import Search, Solution
from gnnplace.policy.network import one_thread

__all__ = [
    "PAPER",
    "SpotlightConfig",
    "SpotlightUpdate",
    "next_kl_coef",
    "plan",
    "proximal_update",
    "ratio_and_divergence",
]


_ALIKE = 1e-9
"""Range of rewards (of size about 1) below which they count as equal."""


@dataclass(frozen=True)
class SpotlightConfig:
    """A small preset; `PAPER` has the sizes of that of `coloc-rl`. Names are CleanRL's where it has them."""

    num_placements: int = 10
    """Placements in a batch; as in `coloc-rl`."""
    update_epochs: int = 4
    """Gradient steps per batch; Gao et al. several, CleanRL 4."""
    learning_rate: float = 3e-3
    """Rate of Adam; as in `coloc-rl`."""
    baseline_decay: float = 0.9
    """Weight of the old baseline in the new one; as in `coloc-rl`."""
    kl_coef: float = 1.0
    """Initial `beta`; Schulman et al. 2017: 1."""
    target_kl: float = 0.01
    """Target of the mean KL divergence of a stage; Schulman et al. 2017: 0.003 to 0.03."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradient; as in `coloc-rl`."""
    sampling: SamplingConfig = SamplingConfig()


PAPER = SpotlightConfig(
    learning_rate=1e-3,
    sampling=SamplingConfig(Seq2SeqConfig(hidden=512, attention_width=512, type_width=64), least_groups_per_device=0),
)
"""The network of `coloc-rl`'s `PAPER`, for comparison; none of its sizes is from Gao et al."""


@dataclass(frozen=True)
class SpotlightUpdate:
    """Statistics of one update."""

    first_ratio: float
    """Mean probability ratio before the first gradient step: 1 unless something is wrong."""
    kl: float
    """Mean KL divergence of a stage, from the policy that drew, before the last gradient step."""


def plan(problem: Problem, budget: Budget, seed: int, config: SpotlightConfig = SpotlightConfig()) -> Solution:
    """The best of all placements that were drawn while the policy learned.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.sampling.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "spotlight", seed) as search, one_thread():
        _learn(search, config)
    return search.solution()


def _learn(search: Search, config: SpotlightConfig) -> None:
    """Draws placements and updates the policy until the budget ends."""
    sampler = sampler_of(search, config.sampling)
    if sampler is None:
        return
    optimizer = torch.optim.Adam(sampler.policy.parameters(), lr=config.learning_rate)
    baseline, kl_coef = MovingAverage(config.baseline_decay), config.kl_coef
    while True:
        sampled = sampler.draw(config.num_placements)
        advantages = baseline.advantages(sampled.rewards)
        if np.ptp(sampled.rewards) < _ALIKE:
            continue  # equal rewards carry no information
        scale = float(np.sqrt(np.mean(advantages**2)))
        batch = sampled.decisions, torch.from_numpy(advantages / scale).float()
        update = proximal_update(sampler.policy, optimizer, batch, kl_coef, config)
        kl_coef = next_kl_coef(kl_coef, update.kl, config.target_kl)


def proximal_update(
    policy: Seq2SeqPolicy,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    kl_coef: float,
    config: SpotlightConfig,
) -> SpotlightUpdate:
    """Learns for several epochs from decisions `[G, K]` that `policy` has just drawn, and their advantages `[K]`."""
    decisions, advantages = batch
    first_ratio, kl = 1.0, 0.0
    old_log_probs: Tensor | None = None
    for epoch in range(config.update_epochs):
        log_probs = policy.log_probs(decisions)
        if old_log_probs is None:
            old_log_probs = log_probs.detach()
        ratio, divergence = ratio_and_divergence(log_probs, old_log_probs, decisions)
        if epoch == 0:
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
    """`beta` of the next update (Schulman et al. 2017, section 4): doubled above the target's band, halved below it."""
    if kl > 1.5 * target_kl:
        return kl_coef * 2.0
    return kl_coef / 2.0 if kl < target_kl / 1.5 else kl_coef


def ratio_and_divergence(log_probs: Tensor, old_log_probs: Tensor, decisions: Tensor) -> tuple[Tensor, Tensor]:
    """Probability ratio of each stage's action, and KL divergence of each stage from the old policy, `[G, K]` each.

    Both log probabilities are `[G, K, D]`; the old policy drew the decisions `[G, K]`.
    """
    chosen = decisions[..., None]
    ratio = (log_probs.gather(-1, chosen) - old_log_probs.gather(-1, chosen)).squeeze(-1).exp()
    change = (old_log_probs - log_probs).masked_fill(
        old_log_probs.isneginf(), 0.0
    )  # masked devices: probability 0 in both
    return ratio, (old_log_probs.exp() * change).sum(dim=-1)
