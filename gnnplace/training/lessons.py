"""Lessons: decisions or moves of the policy with weights or targets, and one step of gradient descent over many of them.

Decisions learn by policy gradient on groups of samples of one problem. Where the best of `k` samples counts, the advantage of a
sample is its expected contribution to the best of `k` random ones of its group (Walder and Karkhanis 2025); where one counts, it
is the difference to the group's mean (as in GRPO, Shao et al. 2024). Imitation has weights of 1 or targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.arrays import FloatArray
from gnnplace.policy.network import Decisions, PolicyInputs, PolicyNetwork
from gnnplace.training.search_ppo import average_gradients, move_log_odds
from gnnplace.training.search_trace import SearchTrace

_FULL_SPREAD = 0.05
"""Spread of the logarithms of seconds in a group below which its advantages shrink, with the square root: less can be won there."""


class Lesson(Protocol):
    """Something of one problem to learn from."""

    def loss(self, network: PolicyNetwork) -> tuple[Tensor, float]:
        """The loss, and the mean entropy of the policy's distributions."""


@dataclass(frozen=True, eq=False)
class DecisionLesson:
    """Decisions of one problem, each with the weight of its log probability."""

    inputs: PolicyInputs
    nodes: Tensor  # [U, B, F] features of `B` encodings
    edges: Tensor  # [E, B, F]
    decisions: Decisions
    temperatures: Tensor  # [R] at which the decisions were drawn
    weights: Tensor  # [R]
    shares: Tensor  # [R] of each decision in its group; the entropy bonus is that of every group's mean entropy
    ent_coef: float

    def loss(self, network: PolicyNetwork) -> tuple[Tensor, float]:
        """The weighted negative log probability of the decisions, minus the entropy bonus."""
        embeddings = network.encode(self.inputs, self.nodes, self.edges)
        logits = network.decision_logits(self.inputs, embeddings, self.decisions)
        log_probs = torch.log_softmax(logits / self.temperatures[:, None], dim=1)
        chosen = log_probs.gather(1, self.decisions.chosen[:, None]).squeeze(1)
        entropies = -(log_probs.exp() * log_probs.masked_fill(~self.decisions.mask, 0.0)).sum(dim=1)
        loss = -(chosen * self.weights).sum() - self.ent_coef * (entropies * self.shares).sum()
        return loss, float(entropies.detach().mean())


@dataclass(frozen=True, eq=False)
class MoveLesson:
    """Placements of one problem with a distribution of single moves that the policy should have drawn from."""

    inputs: PolicyInputs
    trace: SearchTrace
    targets: Tensor  # [S, U * D] each row sums to 1

    def loss(self, network: PolicyNetwork) -> tuple[Tensor, float]:
        """The mean cross-entropy."""
        log_probs = torch.log_softmax(move_log_odds(network, self.inputs, self.trace), dim=1)
        finite = log_probs.masked_fill(torch.isinf(log_probs), 0.0)
        entropy = -(log_probs.exp() * finite).sum(dim=1).mean()
        return -(self.targets * finite).sum(dim=1).mean(), float(entropy.detach())


@dataclass(frozen=True)
class LessonUpdate:
    """Statistics of one step over lessons."""

    lesson_loss: float
    lesson_entropy: float


def group_advantages(gains: FloatArray, best_of: int) -> FloatArray:
    """`[G]` advantages, with mean 0, of samples with these gains (logarithms of seconds saved), where the best of `best_of` counts."""
    spread = float(gains.std())
    if spread < 1e-9:
        return np.zeros_like(gains)
    if best_of == 1:
        shares = np.clip(gains - gains.mean(), -3.0 * spread, 3.0 * spread)
    else:
        shares = contributions(gains, best_of)
    shares = shares - shares.mean()
    return np.asarray(shares / max(float(shares.std()), 1e-12) * min(1.0, math.sqrt(spread / _FULL_SPREAD)))


def contributions(gains: FloatArray, best_of: int) -> FloatArray:
    """`[G]` by how much each sample is expected to raise the largest gain of `best_of - 1` random others.

    With gains in ascending order, sample `i` is above all others of its subset and `j < i` is the second with the probability
    `C(j, best_of - 2) / C(G - 1, best_of - 1)`.
    """
    order, count = np.argsort(gains, kind="stable"), len(gains)
    ordered = gains[order]
    subsets = math.comb(count - 1, best_of - 1)
    second = np.array([math.comb(index, best_of - 2) / subsets for index in range(count)])
    found = np.zeros(count)
    for rank in range(1, count):
        found[order[rank]] = ((ordered[rank] - ordered[:rank]) * second[:rank]).sum()
    return found


def lesson_update(
    network: PolicyNetwork,
    optimizer: torch.optim.Optimizer,
    lessons: Sequence[Lesson],
    max_grad_norm: float,
    all_reduce_mean: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> LessonUpdate:
    """One step over all lessons, each with the same weight; every process of a group calls it equally often."""
    optimizer.zero_grad()
    losses, entropies = [], []
    for lesson in lessons:
        loss, entropy = lesson.loss(network)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        entropies.append(entropy)
    if average_gradients(network, len(lessons), all_reduce_mean):
        nn.utils.clip_grad_norm_(network.parameters(), max_grad_norm)
        optimizer.step()
    return LessonUpdate(float(np.mean(losses or [0.0])), float(np.mean(entropies or [0.0])))
