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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gnnplace.evaluation import Problem
from gnnplace.planners.papers.learning import MovingAverage
from gnnplace.planners.papers.seq2seq.network import PUBLISHED, Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.sampling import Sampler, search_with
from gnnplace.planners.solution import Budget, Solution


@dataclass(frozen=True)
class SpotlightConfig:
    """A small preset; `PAPER` has the network of `coloc-rl`'s. Names are CleanRL's where it has them."""

    policy: Seq2SeqConfig = Seq2SeqConfig()
    update_epochs: int = 4
    """Gradient steps per batch; Gao et al. several, CleanRL 4."""
    kl_coef: float = 1.0
    """Initial `beta`; Schulman et al. 2017: 1."""
    target_kl: float = 0.01
    """Target of the mean KL divergence of a stage; Schulman et al. 2017: 0.003 to 0.03."""


PAPER = SpotlightConfig(PUBLISHED)
"""The network of `coloc-rl`'s `PAPER`, for comparison; its sizes do not come from Gao et al."""


def plan(problem: Problem, budget: Budget, seed: int, config: SpotlightConfig = SpotlightConfig()) -> Solution:
    """The best of all placements that were drawn while the policy learned.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return search_with(partial(_learn, config=config), "spotlight", problem, budget, seed, config.policy)


def _learn(sampler: Sampler, config: SpotlightConfig) -> None:
    baseline, kl_coef = MovingAverage(config.policy.baseline_decay), config.kl_coef
    while True:
        sampled = sampler.draw()
        advantages = baseline.advantages(sampled.rewards)
        if np.ptp(sampled.rewards) < 1e-9:  # rewards are of size about 1; equal ones carry no information
            continue
        scale = float(np.sqrt(np.mean(advantages**2)))
        batch = sampled.decisions, torch.from_numpy(advantages / scale).float()
        kl = proximal_update(sampler.policy, sampler.step, batch, kl_coef, config.update_epochs)
        kl_coef = next_kl_coef(kl_coef, kl, config.target_kl)


def proximal_update(
    policy: Seq2SeqPolicy,
    step: Callable[[Tensor], None],
    batch: tuple[Tensor, Tensor],
    kl_coef: float,
    update_epochs: int,
) -> float:
    """Learns for several epochs from decisions `[G, K]` that `policy` has just drawn, and their advantages `[K]`.

    `step` makes one gradient step from a loss. Returns the mean KL divergence of a stage, from the policy that drew, before the
    last step.
    """
    decisions, advantages = batch
    old_log_probs, mean_kl = None, torch.zeros(())
    for _ in range(update_epochs):
        log_probs = policy.log_probs(decisions)
        old_log_probs = log_probs.detach() if old_log_probs is None else old_log_probs
        ratio, divergence = ratio_and_divergence(log_probs, old_log_probs, decisions)
        mean_kl = divergence.mean()
        step(kl_coef * mean_kl - (ratio * advantages).mean())
    return float(mean_kl.detach())


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
    masked = old_log_probs.isneginf()  # probability 0 under both policies
    change = (old_log_probs - log_probs).masked_fill(masked, 0.0)
    return ratio, (old_log_probs.exp() * change).sum(dim=-1)
