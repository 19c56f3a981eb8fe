"""Proximal policy optimisation of a search: the policy learns to draw moves with which few evaluations gain much.

An action is a draw of the search: a unit and another device for it, among all such moves. A step is one evaluation, whether the
search accepts the move or not. The reward of a step is the decrease of the logarithm of the best seconds so far if the policy drew the
move, else 0. Several searches of one problem begin at the same start. The advantage of a draw is its return minus their mean return
after the same number of evaluations (as in GRPO, Shao et al. 2024, section 4.1, with rewards on the way), so no value
function is learned. The policy is thus trained on placements like those that it scores in use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.search_trace import SearchTrace


@dataclass(frozen=True)
class SearchPpoConfig:
    """Hyper-parameters, with the names of CleanRL's `ppo.py`."""

    num_updates: int = 600
    learning_rate: float = 2e-3
    """Initial rate of Adam; falls linearly to a tenth."""
    gamma: float = 0.95
    """Discount per evaluation: the next twenty or so count."""
    update_epochs: int = 3
    clip_coef: float = 0.2
    ent_coef: float = 0.003
    max_grad_norm: float = 1.0
    final_reward: bool = False
    """True, for ablation: the return of every draw is the gain of the whole search."""
    least_spread: float = 2e-4
    """Least standard deviation of the searches' logarithms of final seconds; below it an update skips the problem."""


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """One problem and a start for its searches."""

    name: str
    """Name of graph and devices, for metrics."""
    problem: Problem
    start: IntArray  # [N]
    start_s: float
    """Penalised seconds of the start."""


@dataclass(frozen=True, eq=False)
class SearchRuns:
    """Searches of one problem from one start."""

    inputs: PolicyInputs
    start_s: float
    evaluations: int
    """Evaluations of each search."""
    repeat_penalty: float
    """Reduction of a move's log odds for each earlier draw from the same scores."""
    traces: Sequence[SearchTrace]

    @property
    def best_s(self) -> FloatArray:
        """`[G, evaluations + 1]` the least seconds of each search before its first evaluation and after each."""
        return np.stack([trace.best_s(self.start_s, self.evaluations) for trace in self.traces])


@dataclass(frozen=True)
class SearchPpoUpdate:
    """Statistics of one update; losses are 0 where the policy could learn from no problem."""

    policy_loss: float
    entropy: float
    approx_kl: float
    first_ratio: float
    """Mean probability ratio before the first step; 1 up to rounding."""
    gain: float
    """Mean over searches of the logarithm of start over final seconds."""
    learned: float
    """Share of the problems whose searches ended at different enough seconds."""


def returns_to_go(rewards: Tensor, gamma: float) -> Tensor:
    """`[T, B]` discounted sum of the rewards of each step and those after it."""
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[0])
    for step in range(len(rewards) - 1, -1, -1):
        following = rewards[step] + gamma * following
        returns[step] = following
    return returns


def draw_advantages(runs: SearchRuns, config: SearchPpoConfig) -> list[Tensor] | None:
    """`[G][draws]` advantages in standard deviations over the problem; None if the searches end with nearly equal seconds."""
    log_s = np.log(runs.best_s)
    if log_s[:, -1].std() < config.least_spread:
        return None
    drawn = np.stack([trace.drawn(runs.evaluations) for trace in runs.traces])
    rewards = np.zeros_like(log_s)  # no reward follows the last evaluation
    rewards[:, :-1] = np.where(drawn, log_s[:, :-1] - log_s[:, 1:], 0.0)
    returns = returns_to_go(torch.from_numpy(rewards.T), config.gamma).T
    if config.final_reward:
        returns = torch.from_numpy(np.repeat(rewards.sum(axis=1, keepdims=True), rewards.shape[1], axis=1))
    advantages = returns - returns.mean(dim=0)
    advantages = (advantages / advantages.std(correction=0).clamp(min=1e-12)).float()
    return [
        row[[min(draw.evaluations, runs.evaluations) for draw in trace.draws]]
        for trace, row in zip(runs.traces, advantages, strict=True)
    ]


def ppo_optimizer(network: PolicyNetwork, learning_rate: float) -> torch.optim.Optimizer:
    """Adam with CleanRL's settings; fused, since there are many small tensors."""
    return torch.optim.Adam(network.parameters(), lr=learning_rate, eps=1e-5, fused=True)


def search_ppo_update(
    network: PolicyNetwork,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[SearchRuns],
    config: SearchPpoConfig,
    all_reduce_mean: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> SearchPpoUpdate:
    """Runs all epochs over the searches of a batch of problems, each problem with the same weight.

    `all_reduce_mean` all-reduces a tensor to its mean over all processes; every process calls it equally often. By default this
    process trains alone.
    """
    usable = [(runs, advantages) for runs in batch if (advantages := draw_advantages(runs, config)) is not None]
    first_ratio, losses = 1.0, torch.zeros(4)
    for epoch in range(config.update_epochs):
        optimizer.zero_grad()
        rows = [_backward(network, runs, advantages, config) for runs, advantages in usable]
        losses = torch.stack(rows).mean(dim=0) if rows else torch.zeros(4)
        if rows and epoch == 0:
            first_ratio = float(losses[3])
        if average_gradients(network, len(usable), all_reduce_mean):
            nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
            optimizer.step()
    gain = float(np.mean([np.log(runs.start_s / runs.best_s[:, -1]).mean() for runs in batch]))
    policy_loss, entropy, approx_kl, _ = losses.tolist()
    return SearchPpoUpdate(policy_loss, entropy, approx_kl, first_ratio, gain, len(usable) / len(batch))


def _backward(
    network: PolicyNetwork, runs: SearchRuns, advantages: Sequence[Tensor], config: SearchPpoConfig
) -> Tensor:
    """Adds one problem's gradients, search by search; returns policy loss, entropy, divergence and mean ratio `[4]`."""
    total = max(1, sum(map(len, advantages)))  # searches may have drawn no move from the policy
    sums = torch.zeros(4)
    for trace, advantage in zip(runs.traces, advantages, strict=True):
        if not trace.draws:
            continue
        log_odds = _log_odds(network, runs, trace)
        log_probs = torch.log_softmax(log_odds, dim=1)
        moves = torch.tensor([draw.move for draw in trace.draws])
        old_log_prob = torch.tensor([draw.log_prob for draw in trace.draws])
        log_ratio = log_probs.gather(1, moves[:, None]).squeeze(1) - old_log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - config.clip_coef, 1.0 + config.clip_coef)
        policy_loss = torch.max(-advantage * ratio, -advantage * clipped).sum()  # Schulman et al. 2017, equation 7
        entropy = -(log_probs.exp() * log_probs.masked_fill(torch.isinf(log_probs), 0.0)).sum()
        ((policy_loss - config.ent_coef * entropy) / total).backward()  # type: ignore[no-untyped-call]
        log_ratio, ratio = log_ratio.detach(), ratio.detach()
        kl = (ratio - 1.0 - log_ratio).sum()
        sums += torch.stack([policy_loss.detach(), entropy.detach(), kl, ratio.sum()])
    return sums / total


def move_log_odds(network: PolicyNetwork, inputs: PolicyInputs, trace: SearchTrace) -> Tensor:
    """`[S, U * D]` log odds of all moves of one unit from every scored placement; minus infinity for pairs that are no move."""
    nodes, edges = (torch.cat(parts, dim=1) for parts in zip(*trace.encodings, strict=True))
    embeddings = network.encode(inputs, nodes, edges)
    devices = torch.stack([state.devices for state in trace.states])[:, :, None]
    logits = network.logits(inputs, embeddings, trace.moves).view(*devices.shape[:2], -1)
    return (logits - logits.gather(2, devices)).scatter(2, devices, -torch.inf).flatten(1)


def _log_odds(network: PolicyNetwork, runs: SearchRuns, trace: SearchTrace) -> Tensor:
    """`[draws, U * D]` log odds from which each draw was made."""
    log_odds = move_log_odds(network, runs.inputs, trace)
    states = torch.tensor([draw.state for draw in trace.draws])
    return log_odds[states] - runs.repeat_penalty * trace.repeats(log_odds.shape[1])


def average_gradients(network: PolicyNetwork, num_problems: int, all_reduce_mean: Callable[[Tensor], Tensor]) -> bool:
    """Turns sums over problems into means over the problems of all processes; false where there are none.

    Parameters that nothing depended on, in any process, keep no gradient, so that an optimizer leaves them alone.
    """
    parameters = list(network.parameters())
    # Gradients are None where this process could learn from no problem.
    sums = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = all_reduce_mean(torch.cat([parameters_to_vector(sums), torch.tensor([float(num_problems)])]))
    if not flat[-1] > 0:
        return False
    means = torch.split(flat[:-1] / flat[-1], [p.numel() for p in parameters])
    for parameter, mean in zip(parameters, means, strict=True):
        parameter.grad = mean.view_as(parameter) if mean.any() else None
    return True
