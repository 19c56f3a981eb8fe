"""What Placeto subtracts from a return: the mean at the same step of recent episodes (Addanki et al. 2019)."""

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
    Seen,
    StaticFeatures,
    look,
    node_features,
    pooling_sets,
    reachability,
    static_features,
)
from gnnplace.planners.papers.placeto.network import PlacetoNetwork, adjacency
from gnnplace.planners.papers.rewards import relative_runtime, unit_edges

__all__ = ["Episodes", "Judgement", "PlacetoModel", "StepBaseline", "judge", "roll_out"]


class StepBaseline:
    """The mean return at each step over the last episodes of one graph.

    Departure: episodes that have just ended are included in what their own returns are compared with.
    """

    def __init__(self, episodes: int) -> None:
        """Over the last `episodes`; more where a single batch has more."""
        self._returns: deque[Tensor] = deque(maxlen=episodes)

    def take_in(self, returns: Tensor) -> Tensor:
        """`[T]` the baseline of each step once the returns `[T, B]` of `B` episodes are known.

        >>> StepBaseline(2).take_in(torch.tensor([[1.0, 3.0], [0.0, 4.0]])).tolist()
        [2.0, 2.0]
        """
        if returns.shape[1] > (self._returns.maxlen or 0):
            self._returns = deque(maxlen=returns.shape[1])
        self._returns.extend(returns.unbind(dim=1))
        return torch.stack(tuple(self._returns)).mean(dim=0)


_NODES_AT_ONCE = 1 << 14
"""Nodes of all placements and steps together that pass through the network at once while it learns; bounds memory."""


@dataclass(frozen=True, eq=False)
class PlacetoModel:
    """A network and what it needs to know of one graph.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> model = PlacetoModel.of(problem, PlacetoNetwork(devices=2, layers=1, rounds=2))
    >>> batch = PlacementBatch(problem).reset(np.zeros((3, 4), dtype=np.int64), visited=model.visited)
    >>> mask = torch.from_numpy(batch.action_mask)
    >>> log_probs = model.log_probs(look(batch, model.static), torch.zeros(3, dtype=torch.int64), mask)
    >>> model.visited.tolist(), log_probs.shape  # of the first unit on each device, in three placements
    ([0, 1, 2, 3], torch.Size([3, 2]))
    """

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
        neighbours = adjacency(unit_edges(problem), problem.num_units)
        return cls(network, visited, static_features(problem, visited), neighbours, sets)

    def log_probs(self, seen: Seen, steps: Tensor, mask: Tensor) -> Tensor:
        """`[R, D]` log probabilities at `steps` `[R]`, when placements look like the `R` columns of `seen`."""
        current = torch.from_numpy(self.visited)[steps]
        features = node_features(self.static, seen, current, steps)
        logits: Tensor = self.network(self.neighbours, features, current, self.sets[steps])
        return logits.masked_fill(~mask, -1e9).log_softmax(dim=1)


@dataclass(frozen=True, eq=False)
class Episodes:
    """`T` steps of `B` placements."""

    seen: tuple[Seen, ...]  # [T]
    masks: Tensor  # [T, B, D]
    actions: Tensor  # [T, B]
    runtimes: FloatArray  # [T + 1, B] relative, before every step and after the last

    @property
    def rewards(self) -> Tensor:
        """`[T, B]` runtime before a step less runtime after it."""
        return torch.from_numpy(self.runtimes[:-1] - self.runtimes[1:]).float()


@dataclass(frozen=True, eq=False)
class Judgement:
    """What the network says of some decisions, with gradients."""

    steps: slice  # of the episodes
    log_probs: Tensor  # [S, B] of what was done
    entropy: Tensor  # [S, B]


def roll_out(batch: PlacementBatch, model: PlacetoModel, reference_s: float, generator: torch.Generator) -> Episodes:
    """One episode from each placement of `batch`, which has just been reset to visit `model.visited`.

    >>> from gnnplace.sim.example import diamond
    >>> model = PlacetoModel.of(diamond(), PlacetoNetwork(devices=2, layers=1, rounds=2))
    >>> batch = PlacementBatch(diamond()).reset(np.zeros((3, 4), dtype=np.int64), visited=model.visited)
    >>> episodes = roll_out(batch, model, reference_s=6.0, generator=torch.Generator().manual_seed(0))
    >>> episodes.actions.shape, episodes.runtimes[0].tolist()  # four steps of three placements
    (torch.Size([4, 3]), [1.0, 1.0, 1.0])
    """
    count = batch.num_placements
    seen: list[Seen] = []
    masks, actions = [], []
    runtimes = [_relative(batch, reference_s)]
    with torch.no_grad():
        while not batch.is_done:
            seen.append(look(batch, model.static))
            masks.append(torch.from_numpy(batch.action_mask))
            log_probs = model.log_probs(seen[-1], torch.full((count,), batch.step_index), masks[-1])
            actions.append(torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1))
            batch.step(actions[-1].numpy())
            runtimes.append(_relative(batch, reference_s))
    return Episodes(tuple(seen), torch.stack(masks), torch.stack(actions), np.stack(runtimes))


def _relative(batch: PlacementBatch, reference_s: float) -> FloatArray:
    """`[B]` relative runtimes; the finite seconds that stand for a failure become endless again."""
    seconds = np.where(batch.seconds >= batch.failed_s, np.inf, batch.seconds)
    return relative_runtime(batch.problem, seconds, reference_s)


def judge(model: PlacetoModel, episodes: Episodes) -> Iterator[Judgement]:
    """All decisions, a few steps at a time so that their gradients need not be held together.

    >>> from gnnplace.sim.example import diamond
    >>> model = PlacetoModel.of(diamond(), PlacetoNetwork(devices=2, layers=1, rounds=2))
    >>> batch = PlacementBatch(diamond()).reset(np.zeros((3, 4), dtype=np.int64), visited=model.visited)
    >>> (part,) = judge(model, roll_out(batch, model, 6.0, torch.Generator().manual_seed(0)))
    >>> part.steps, part.log_probs.shape, bool((part.entropy > 0).all())
    (slice(0, 4, None), torch.Size([4, 3]), True)
    """
    steps, count, devices = episodes.masks.shape
    length = max(1, _NODES_AT_ONCE // (count * len(model.static.first_op)))
    for begin in range(0, steps, length):
        some = slice(begin, min(begin + length, steps))
        joined = Seen(
            torch.cat([seen.start for seen in episodes.seen[some]], dim=1),
            torch.cat([seen.device for seen in episodes.seen[some]], dim=1),
        )
        at = torch.arange(some.start, some.stop).repeat_interleave(count)
        log_probs = model.log_probs(joined, at, episodes.masks[some].flatten(0, 1)).view(-1, count, devices)
        taken = log_probs.gather(2, episodes.actions[some][:, :, None]).squeeze(2)
        yield Judgement(some, taken, -(log_probs.exp() * log_probs).sum(dim=2))
