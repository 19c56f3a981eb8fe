"""REINFORCE with a baseline per step, as Placeto trains (Addanki et al., NeurIPS 2019, section 3).

The baseline of step `t` is the mean return from step `t` on over the last episodes *of the same graph*, the current batch included.
Departures: rewards are clipped (Placeto drops placements that do not fit); the learning rate falls linearly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnplace.graph.op_graph import OpGraph
from gnnplace.policy.network import PolicyNetwork
from gnnplace.training.advantage import returns_to_go
from gnnplace.training.rollout import Episodes, judge, roll_out

__all__ = ["ReinforceConfig", "ReinforceUpdate", "train_reinforce"]


@dataclass(frozen=True)
class ReinforceConfig:
    """Placeto's defaults (Addanki et al. 2019), in CleanRL's names."""

    num_updates: int = 50
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    gamma: float = 1.0
    ent_coef: float = 0.01
    """Placeto adds an entropy bonus that falls over training; constant here."""
    max_grad_norm: float = 1.25
    baseline_episodes: int = 10
    """Placeto: the last 10 episodes of the same graph."""
    reward_clip: float = 1.0
    """As for PPO; see `PpoConfig.reward_clip`."""


@dataclass(frozen=True)
class ReinforceUpdate:
    """What one update saw and did."""

    start_s: float
    """Mean seconds of the starts of its episodes."""
    best_s: float
    """Least seconds after any step of any episode."""
    policy_loss: float
    entropy: float


def train_reinforce(
    network: PolicyNetwork,
    episodes: Episodes,
    config: ReinforceConfig,
    generator: torch.Generator,
    on_update: Callable[[int, ReinforceUpdate], None] | None = None,
) -> list[ReinforceUpdate]:
    """Trains `network` in place for `num_updates` batches of episodes; gives a row per update."""
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    recent: dict[OpGraph, deque[Tensor]] = {}  # returns [T] of the last episodes
    updates: list[ReinforceUpdate] = []
    for index in range(config.num_updates):
        fraction = index / max(1, config.num_updates - 1)
        rate = config.learning_rate + fraction * (config.final_learning_rate - config.learning_rate)
        optimizer.param_groups[0]["lr"] = rate
        batch, inputs = episodes(index)
        rollout = roll_out(batch, inputs, network, generator)
        returns = returns_to_go(rollout.rewards.clamp(-config.reward_clip, config.reward_clip), config.gamma)
        history = recent.setdefault(batch.problem.graph, deque(maxlen=max(config.baseline_episodes, returns.shape[1])))
        history.extend(returns.unbind(dim=1))
        baseline = torch.stack(tuple(history)).mean(dim=0)
        judgement = judge(network, rollout, torch.arange(returns.shape[1]))
        entropy = judgement.entropy.mean()
        policy_loss = -(judgement.log_probs * (returns - baseline[:, None])).mean()
        optimizer.zero_grad()
        (policy_loss - config.ent_coef * entropy).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
        optimizer.step()
        updates.append(
            ReinforceUpdate(
                float(rollout.start_s.mean()), float(rollout.best_s.min()), policy_loss.item(), entropy.item()
            )
        )
        if on_update is not None:
            on_update(index, updates[-1])
    return updates
