"""Proximal policy optimisation of a search: which moves it should draw so that few evaluations go a long way.

An action is a draw of the search, a unit and another device for it, out of all there are; a step is one evaluation, whether
the search accepts what it has drawn or not; the reward is by how much the best placement so far becomes faster, if it was
drawn: what a search finds by other means is no merit of the policy. Several searches of one problem begin at the same start,
and what a draw was worth is what followed it, less what followed on average in all of them after as many evaluations (as in
GRPO, Shao et al. 2024, section 4.1, with rewards on the way): no value has to be learned. The policy is thus trained on the
placements that it will be asked about, by what it is used for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.arrays import FloatArray
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.advantage import returns_to_go
from gnnplace.training.search_trace import SearchTrace

__all__ = ["SearchPpoConfig", "SearchPpoUpdate", "SearchRuns", "draw_advantages", "ppo_optimizer", "search_ppo_update"]


@dataclass(frozen=True)
class SearchPpoConfig:
    """Names of CleanRL's `ppo.py`."""

    num_updates: int = 600
    learning_rate: float = 2e-3
    """Falls linearly to a tenth."""
    gamma: float = 0.95
    """Per evaluation: what follows within some twenty counts."""
    update_epochs: int = 3
    clip_coef: float = 0.2
    ent_coef: float = 0.003
    max_grad_norm: float = 1.0
    final_reward: bool = False
    """True, for ablation: every draw of a search is worth what the whole search has gained, as without rewards on the way."""
    least_spread: float = 2e-4
    """Searches whose logarithms of final seconds differ by less (standard deviation) have nothing to say."""


@dataclass(frozen=True, eq=False)
class SearchRuns:
    """Searches of one problem from one start."""

    inputs: PolicyInputs
    start_s: float
    evaluations: int
    """Each had so many."""
    repeat_penalty: float
    """Taken off a move's log odds each time it was drawn from the same answers."""
    traces: Sequence[SearchTrace]

    @property
    def best_s(self) -> FloatArray:
        """`[G, evaluations + 1]` the least seconds of each search after so many evaluations."""
        return np.stack([trace.best_s(self.start_s, self.evaluations) for trace in self.traces])


@dataclass(frozen=True)
class SearchPpoUpdate:
    """What one update saw and did; losses are 0 where there was nothing to learn."""

    policy_loss: float
    entropy: float
    approx_kl: float
    first_ratio: float
    """Mean probability ratio before the first step: 1 when nothing is wrong."""
    gain: float
    """Mean over searches of the logarithm of start over final seconds."""
    learned: float
    """Share of the problems from which there was something to learn."""


def draw_advantages(runs: SearchRuns, config: SearchPpoConfig) -> list[Tensor] | None:
    """`[G][draws]` what each draw was worth, in standard deviations over the problem; None if searches end too much alike."""
    log_s = np.log(runs.best_s)
    if log_s[:, -1].std() < config.least_spread:
        return None
    drawn = np.stack([trace.drawn(runs.evaluations) for trace in runs.traces])
    rewards = np.zeros_like(log_s)  # nothing follows the last evaluation
    rewards[:, :-1] = np.where(drawn, log_s[:, :-1] - log_s[:, 1:], 0.0)
    if config.final_reward:
        returns = torch.from_numpy(np.repeat(rewards.sum(axis=1, keepdims=True), rewards.shape[1], axis=1))
    else:
        returns = returns_to_go(torch.from_numpy(rewards.T), config.gamma).T
    advantages = returns - returns.mean(dim=0)
    advantages = (advantages / advantages.std(correction=0).clamp(min=1e-12)).float()
    return [
        row[[min(draw.evaluations, runs.evaluations) for draw in trace.draws]]
        for trace, row in zip(runs.traces, advantages, strict=True)
    ]


def ppo_optimizer(network: PolicyNetwork, learning_rate: float) -> torch.optim.Optimizer:
    """Adam as CleanRL sets it; fused, since there are many small tensors."""
    return torch.optim.Adam(network.parameters(), lr=learning_rate, eps=1e-5, fused=True)


def search_ppo_update(
    network: PolicyNetwork,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[SearchRuns],
    config: SearchPpoConfig,
    average: Callable[[Tensor], Tensor] | None = None,
) -> SearchPpoUpdate:
    """All epochs over the searches of a batch of problems, each problem counting the same.

    `average` is asked for the mean over all processes of what one of them has, as often in each of them; None trains in
    this process alone.
    """
    seen = [(runs, advantages) for runs in batch if (advantages := draw_advantages(runs, config)) is not None]
    first_ratio, losses = 1.0, torch.zeros(4)
    for epoch in range(config.update_epochs):
        optimizer.zero_grad()
        rows = [_backward(network, runs, advantages, config) for runs, advantages in seen]
        losses = torch.stack(rows).mean(dim=0) if rows else torch.zeros(4)
        if rows and epoch == 0:
            first_ratio = float(losses[3])
        if _average_gradients(network, len(seen), average):
            nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
            optimizer.step()
    gain = float(np.mean([np.log(runs.start_s / runs.best_s[:, -1]).mean() for runs in batch]))
    policy_loss, entropy, approx_kl, _ = losses.tolist()
    return SearchPpoUpdate(policy_loss, entropy, approx_kl, first_ratio, gain, len(seen) / len(batch))


def _backward(
    network: PolicyNetwork, runs: SearchRuns, advantages: Sequence[Tensor], config: SearchPpoConfig
) -> Tensor:
    """Adds one problem's gradients, search by search; gives policy loss, entropy, divergence and mean ratio `[4]`."""
    total = sum(map(len, advantages))
    sums = torch.zeros(4)
    for trace, worth in zip(runs.traces, advantages, strict=True):
        if not trace.draws:
            continue
        log_odds = _log_odds(network, runs, trace)
        log_shares = torch.log_softmax(log_odds, dim=1)
        moves = torch.tensor([draw.move for draw in trace.draws])
        before = torch.tensor([draw.log_prob for draw in trace.draws])
        log_ratio = log_shares.gather(1, moves[:, None]).squeeze(1) - before
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - config.clip_coef, 1.0 + config.clip_coef)
        policy_loss = torch.max(-worth * ratio, -worth * clipped).sum()  # Schulman et al. 2017, equation 7
        entropy = -(log_shares.exp() * log_shares.masked_fill(torch.isinf(log_shares), 0.0)).sum()
        ((policy_loss - config.ent_coef * entropy) / total).backward()  # type: ignore[no-untyped-call]
        log_ratio, ratio = log_ratio.detach(), ratio.detach()
        kl = (ratio - 1.0 - log_ratio).sum()
        sums += torch.stack([policy_loss.detach(), entropy.detach(), kl, ratio.sum()])
    return sums / total


def _log_odds(network: PolicyNetwork, runs: SearchRuns, trace: SearchTrace) -> Tensor:
    """`[draws, U * D]` what each draw was from; minus infinity for what is no move."""
    nodes, edges = (torch.cat(parts, dim=1) for parts in zip(*trace.encodings, strict=True))
    embeddings = network.encode(runs.inputs, nodes, edges)
    devices = torch.stack([state.devices for state in trace.states])[:, :, None]
    logits = network.logits(runs.inputs, embeddings, trace.questions).view(*devices.shape[:2], -1)
    log_odds = (logits - logits.gather(2, devices)).scatter(2, devices, -torch.inf).flatten(1)
    states = torch.tensor([draw.state for draw in trace.draws])
    return log_odds[states] - runs.repeat_penalty * trace.tried(log_odds.shape[1])


def _average_gradients(network: PolicyNetwork, problems: int, average: Callable[[Tensor], Tensor] | None) -> bool:
    """Sums over problems become means over all problems of all processes; false where there are none."""
    parameters = list(network.parameters())
    for parameter in parameters:
        if parameter.grad is None:  # where there was nothing to learn
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([*(gradient.flatten() for gradient in gradients), torch.tensor([float(problems)])])
    if average is not None:
        flat = average(flat)
    if not flat[-1] > 0:
        return False
    means = torch.split(flat[:-1] / flat[-1], [gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))
    return True
