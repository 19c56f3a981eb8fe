"""Proximal policy optimisation (Schulman et al. 2017) over batched episodes.

Departures: minibatches are whole episodes, because a sweep shares one encoding; rewards are clipped, because an
infeasible placement costs orders of magnitude more than any improvement gains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnplace.policy.network import PolicyNetwork
from gnnplace.training.advantage import generalised_advantages
from gnnplace.training.rollout import Episodes, Judgement, Rollout, judge, roll_out

__all__ = [
    "PpoConfig",
    "PpoUpdate",
    "clipped_losses",
    "ppo_optimizer",
    "ppo_update",
    "train_ppo",
]


@dataclass(frozen=True)
class PpoConfig:
    """Names and defaults of CleanRL's `ppo.py` unless another source is given."""

    num_updates: int = 10
    learning_rate: float = 1e-3
    """CleanRL 2.5e-4, annealed to 0; Placeto (Addanki et al. 2019) 1e-3, which short training on one graph needs."""
    gamma: float = 1.0
    """CleanRL 0.99; Placeto 1: only the final runtime counts."""
    gae_lambda: float = 0.95
    num_minibatches: int = 2
    """CleanRL 4."""
    update_epochs: int = 4
    norm_adv: bool = True
    clip_coef: float = 0.2
    clip_vloss: bool = True
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = None
    """Ends the epochs of an update once the policy has moved this far; CleanRL's default is no limit."""
    reward_clip: float = 1.0
    """Rewards are fractions of the reference runtime; none that helps is larger than 1."""


@dataclass(frozen=True)
class PpoUpdate:
    """What one update saw and did."""

    start_s: float
    """Mean seconds of the starts of its episodes."""
    best_s: float
    """Least seconds after any step of any episode."""
    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    first_ratio: float
    """Mean probability ratio before the first gradient step: 1 when nothing is wrong."""


def train_ppo(
    network: PolicyNetwork,
    episodes: Episodes,
    config: PpoConfig,
    generator: torch.Generator,
    on_update: Callable[[int, PpoUpdate], None] | None = None,
) -> list[PpoUpdate]:
    """Trains `network` in place for `num_updates` batches of episodes; gives a row per update."""
    optimizer = ppo_optimizer(network, config.learning_rate)
    updates: list[PpoUpdate] = []
    for index in range(config.num_updates):
        batch, inputs = episodes(index)
        rollout = roll_out(batch, inputs, network, generator)
        updates.append(ppo_update(network, optimizer, rollout, config, generator))
        if on_update is not None:
            on_update(index, updates[-1])
    return updates


def ppo_optimizer(network: PolicyNetwork, learning_rate: float) -> torch.optim.Optimizer:
    """Adam as CleanRL sets it; fused, since there are many small tensors."""
    return torch.optim.Adam(network.parameters(), lr=learning_rate, eps=1e-5, fused=True)


def ppo_update(
    network: PolicyNetwork,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    config: PpoConfig,
    generator: torch.Generator,
) -> PpoUpdate:
    """All epochs over a rollout; a minibatch holds some of its episodes."""
    seen = _Seen.of(rollout, config)
    num_episodes = rollout.actions.shape[1]
    first_ratio, losses = 1.0, torch.zeros(4)
    for epoch in range(config.update_epochs):
        order = torch.randperm(num_episodes, generator=generator)
        for minibatch, members in enumerate(order.chunk(min(config.num_minibatches, num_episodes))):
            optimizer.zero_grad()
            losses, ratio = _backward(network, seen, members, config)
            if epoch == 0 and minibatch == 0:
                first_ratio = float(ratio)
            nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
            optimizer.step()
        if config.target_kl is not None and losses[3].item() > config.target_kl:
            break
    start_s, best_s = float(rollout.start_s.mean()), float(rollout.best_s.min())
    policy_loss, value_loss, entropy, kl = losses.tolist()
    return PpoUpdate(start_s, best_s, policy_loss, value_loss, entropy, kl, first_ratio)


@dataclass(frozen=True, eq=False)
class _Seen:
    """A rollout and what its actions were worth."""

    rollout: Rollout
    advantages: Tensor  # [T, B]
    returns: Tensor  # [T, B]

    @classmethod
    def of(cls, rollout: Rollout, config: PpoConfig) -> _Seen:
        rewards = rollout.rewards.clamp(-config.reward_clip, config.reward_clip)
        advantages = generalised_advantages(rewards, rollout.values, config.gamma, config.gae_lambda)
        return cls(rollout, advantages, advantages + rollout.values)


def _backward(network: PolicyNetwork, seen: _Seen, members: Tensor, config: PpoConfig) -> tuple[Tensor, Tensor]:
    """Adds a minibatch's gradients; gives policy loss, value loss, entropy and divergence `[4]`, and the mean ratio."""
    judgement = judge(network, seen.rollout, members)
    log_ratio = judgement.log_probs - seen.rollout.log_probs[:, members]
    policy_loss = _policy_loss(log_ratio.exp(), seen.advantages[:, members], config)
    value_loss = _value_loss(judgement, seen.rollout.values[:, members], seen.returns[:, members], config)
    entropy = judgement.entropy.mean()
    loss = policy_loss - config.ent_coef * entropy + config.vf_coef * value_loss
    loss.backward()  # type: ignore[no-untyped-call]
    log_ratio = log_ratio.detach()
    approx_kl = (log_ratio.exp() - 1.0 - log_ratio).mean()
    losses = torch.stack([policy_loss.detach(), value_loss.detach(), entropy.detach(), approx_kl])
    return losses, log_ratio.exp().mean()


def _policy_loss(ratio: Tensor, advantages: Tensor, config: PpoConfig) -> Tensor:
    if config.norm_adv and advantages.numel() > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return clipped_losses(ratio, advantages, config.clip_coef).mean()


def clipped_losses(ratio: Tensor, advantages: Tensor, clip_coef: float) -> Tensor:
    """The clipped surrogate of each action, as a loss (Schulman et al. 2017, equation 7)."""
    clipped = ratio.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    return torch.max(-advantages * ratio, -advantages * clipped)


def _value_loss(judgement: Judgement, old_values: Tensor, returns: Tensor, config: PpoConfig) -> Tensor:
    loss = (judgement.values - returns) ** 2
    if config.clip_vloss:
        change = (judgement.values - old_values).clamp(-config.clip_coef, config.clip_coef)
        loss = torch.max(loss, (old_values + change - returns) ** 2)
    return 0.5 * loss.mean()
