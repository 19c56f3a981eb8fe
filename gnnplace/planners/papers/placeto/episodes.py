"""Placeto's episodes: rollouts, log probabilities of their actions, and the baseline of their returns (Addanki et al. 2019)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.batch import PlacementBatch
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.placeto.features import (
    DynamicFeatures,
    StaticFeatures,
    dynamic_features,
    node_features,
    pooling_sets,
    reachability,
    static_features,
)
from gnnplace.planners.papers.placeto.network import PlacetoNetwork, adjacency
from gnnplace.planners.papers.rewards import relative_runtime

__all__ = ["ActionProbabilities", "Episodes", "PlacetoModel", "StepBaseline", "action_probabilities", "roll_out"]


class StepBaseline:
    """Mean return at each step over the last episodes of one graph.

    Departure: the mean includes the episodes that have just ended, whose returns it is subtracted from.
    """

    def __init__(self, episodes: int) -> None:
        """Mean over the last `episodes`; over more where a single batch has more."""
        self._returns: deque[Tensor] = deque(maxlen=episodes)

    def update(self, returns: Tensor) -> Tensor:
        """Adds the returns `[T, B]` of `B` episodes; gives the baseline `[T]` of each step."""
        if returns.shape[1] > (self._returns.maxlen or 0):
            self._returns = deque(maxlen=returns.shape[1])
        self._returns.extend(returns.unbind(dim=1))
        return torch.stack(tuple(self._returns)).mean(dim=0)


_NODES_AT_ONCE = 1 << 14
"""Most nodes, of all placements and steps, in one pass through the network while it learns; bounds memory."""


@dataclass(frozen=True, eq=False)
class PlacetoModel:
    """A network with its static inputs of one graph."""

    network: PlacetoNetwork
    visited: IntArray  # [T] units that have a choice, in topological order
    static: StaticFeatures
    neighbours: tuple[Tensor, Tensor]
    sets: Tensor  # [T, 3, U]

    @classmethod
    def of(cls, problem: Problem, network: PlacetoNetwork) -> PlacetoModel:
        """The model of a problem.

        Departure: units that may only go to one device are not visited.
        """
        visited = np.flatnonzero(problem.action_mask.sum(axis=1) > 1)
        sets = torch.from_numpy(pooling_sets(reachability(problem))[visited]).float()
        neighbours = adjacency(problem.unit_edges, problem.num_units)
        return cls(network, visited, static_features(problem, visited), neighbours, sets)

    def log_probs(self, dynamic: DynamicFeatures, steps: Tensor, mask: Tensor) -> Tensor:
        """`[R, D]` log probabilities of the devices at `steps` `[R]`, from the `R` columns of `dynamic`."""
        current = torch.from_numpy(self.visited)[steps]
        features = node_features(self.static, dynamic, current, steps)
        logits: Tensor = self.network(self.neighbours, features, current, self.sets[steps])
        return logits.masked_fill(~mask, -1e9).log_softmax(dim=1)


@dataclass(frozen=True, eq=False)
class Episodes:
    """`T` steps of `B` placements."""

    dynamic: tuple[DynamicFeatures, ...]  # [T]
    masks: Tensor  # [T, B, D]
    actions: Tensor  # [T, B]
    runtimes: FloatArray  # [T + 1, B] relative, before every step and after the last

    @property
    def rewards(self) -> Tensor:
        """`[T, B]` runtime before a step minus runtime after it."""
        return torch.from_numpy(self.runtimes[:-1] - self.runtimes[1:]).float()


@dataclass(frozen=True, eq=False)
class ActionProbabilities:
    """Log probabilities and entropies of some steps of episodes, with gradients."""

    steps: slice
    log_probs: Tensor  # [S, B] of the actions taken
    entropy: Tensor  # [S, B]


def roll_out(batch: PlacementBatch, model: PlacetoModel, reference_s: float, generator: torch.Generator) -> Episodes:
    """One episode from each placement of `batch`, which has just been reset to visit `model.visited`."""
    count = batch.num_placements
    dynamic: list[DynamicFeatures] = []
    masks, actions = [], []
    runtimes = [_relative(batch, reference_s)]
    with torch.no_grad():
        while not batch.is_done:
            dynamic.append(dynamic_features(batch, model.static))
            masks.append(torch.from_numpy(batch.action_mask))
            log_probs = model.log_probs(dynamic[-1], torch.full((count,), batch.step_index), masks[-1])
            actions.append(torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1))
            batch.step(actions[-1].numpy())
            runtimes.append(_relative(batch, reference_s))
    return Episodes(tuple(dynamic), torch.stack(masks), torch.stack(actions), np.stack(runtimes))


def _relative(batch: PlacementBatch, reference_s: float) -> FloatArray:
    """`[B]` relative runtimes; the finite seconds that stand for a failure become infinite again."""
    seconds = np.where(batch.seconds >= batch.failed_s, np.inf, batch.seconds)
    return relative_runtime(batch.problem, seconds, reference_s)


def action_probabilities(model: PlacetoModel, episodes: Episodes) -> Iterator[ActionProbabilities]:
    """The probabilities of all actions under the present weights, a few steps at a time so that memory for gradients stays small."""
    steps, count, devices = episodes.masks.shape
    length = max(1, _NODES_AT_ONCE // (count * len(model.static.first_op)))
    for begin in range(0, steps, length):
        some = slice(begin, min(begin + length, steps))
        joined = DynamicFeatures(
            torch.cat([step.start for step in episodes.dynamic[some]], dim=1),
            torch.cat([step.device for step in episodes.dynamic[some]], dim=1),
        )
        at = torch.arange(some.start, some.stop).repeat_interleave(count)
        log_probs = model.log_probs(joined, at, episodes.masks[some].flatten(0, 1)).view(-1, count, devices)
        taken = log_probs.gather(2, episodes.actions[some][:, :, None]).squeeze(2)
        yield ActionProbabilities(some, taken, -(log_probs.exp() * log_probs).sum(dim=2))
