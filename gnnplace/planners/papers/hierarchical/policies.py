"""Distributions over placements: grouper and placer together, and what the paper's ablations put in their place."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.hierarchical.networks import Chooser, Placer, UnitTraits, group_embeddings, placer_inputs
from gnnplace.planners.papers.rewards import landing_devices

__all__ = ["DirectPolicy", "GroupedPolicy", "PlacementPolicy", "group_mask"]


class PlacementPolicy(Protocol):
    """Draws whole placements."""

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """Devices `[B, U]`, the log probability `[B]` of each placement, and the placer's entropy `[B]`, with gradients."""

    def parameters(self) -> list[nn.Parameter]:
        """What is learned."""


class GroupedPolicy:
    """Groups of units, then a device for each group.

    A unit that may not run on its group's device goes to the fastest one that may run it; a group may go wherever one of
    its units may.

    >>> from gnnplace.planners.papers.hierarchical.networks import unit_embeddings, unit_traits
    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> traits = unit_traits(problem)
    >>> placer = Placer(features=9, devices=2, hidden=4, temperature=10.0, tanh_constant=5.0)
    >>> policy = GroupedPolicy(problem, (traits, unit_embeddings(traits)), (None, placer), (2, 1, 3))
    >>> groups, _ = policy.draw_groups(Generator().manual_seed(0))
    >>> devices, log_probs, _ = policy.draw(Generator().manual_seed(0))
    >>> all(len(set(row[groups[0] == group].tolist())) <= 1 for row in devices for group in (0, 1))
    True
    >>> devices.shape, len(policy.parameters()) == len(list(placer.parameters()))
    ((3, 4), True)
    """

    def __init__(
        self,
        problem: Problem,
        seen: tuple[UnitTraits, FloatArray],
        networks: tuple[Chooser | None, Placer],
        sizes: tuple[int, int, int],
    ) -> None:
        """`seen` are the units' traits and embeddings; `sizes` the groups, groupings per draw, and placements per grouping.

        Without a grouper, units fall into groups at random, once and for all: the paper's ablation "random grouping".
        """
        self._num_groups, self._groupings, self._copies = sizes
        self._problem, self._landing = problem, landing_devices(problem)
        self._grouper, self._placer = networks
        self._traits, self._units = seen[0], torch.from_numpy(seen[1]).float()
        self._fixed: Tensor | None = None

    def parameters(self) -> list[nn.Parameter]:
        """Of both networks."""
        grouper = [] if self._grouper is None else list(self._grouper.parameters())
        return [*grouper, *self._placer.parameters()]

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """See `PlacementPolicy.draw`; placements of one grouping follow each other."""
        groups, log_prob = self.draw_groups(generator)
        embeddings = placer_inputs(group_embeddings(self._traits, groups, self._num_groups), self._num_groups)
        mask = group_mask(groups, self._problem.action_mask, self._num_groups)
        devices, placer_log_prob, entropy = self._placer.draw(
            torch.from_numpy(embeddings).float(), torch.from_numpy(mask), self._copies, generator
        )
        wanted = np.take_along_axis(devices.numpy(), np.repeat(groups, self._copies, axis=0), axis=1)
        landed = self._landing[np.arange(self._problem.num_units), wanted]
        return landed, log_prob.repeat_interleave(self._copies) + placer_log_prob, entropy

    def draw_groups(self, generator: Generator) -> tuple[IntArray, Tensor]:
        """Groups `[M, U]` and the log probability `[M]` of each grouping; 0 when the grouping is not learned."""
        if self._grouper is not None:
            everywhere = torch.ones(len(self._units), self._num_groups, dtype=torch.bool)
            drawn, log_prob = self._grouper.draw(self._units, everywhere, self._groupings, generator)
            return drawn.numpy(), log_prob
        if self._fixed is None:
            self._fixed = torch.randint(self._num_groups, (1, len(self._units)), generator=generator)
        return self._fixed.expand(self._groupings, -1).numpy(), torch.zeros(self._groupings)


class DirectPolicy:
    """A device for every unit on its own, from a feed-forward network: the paper's ablation "no grouping".

    >>> from gnnplace.sim.example import diamond
    >>> policy = DirectPolicy(diamond(), np.zeros((4, 3)), Chooser(3, 8, 2), count=5)
    >>> devices, log_probs, _ = policy.draw(Generator().manual_seed(0))
    >>> devices.shape, log_probs.shape, len(policy.parameters())  # two layers, weights and biases
    ((5, 4), torch.Size([5]), 4)
    """

    def __init__(self, problem: Problem, embeddings: FloatArray, chooser: Chooser, count: int) -> None:
        """Draws `count` placements at a time, from the embeddings of the units."""
        self._chooser, self._count = chooser, count
        self._units = torch.from_numpy(embeddings).float()
        self._mask = torch.from_numpy(problem.action_mask)

    def parameters(self) -> list[nn.Parameter]:
        """Of the network."""
        return list(self._chooser.parameters())

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """See `PlacementPolicy.draw`."""
        devices, log_prob = self._chooser.draw(self._units, self._mask, self._count, generator)
        return devices.numpy(), log_prob, torch.zeros(self._count)


def group_mask(groups: IntArray, allowed: BoolArray, num_groups: int) -> BoolArray:
    """`[M, G, D]` true where one unit of the group may go, from groups `[M, U]` and allowed `[U, D]`; empty groups may anywhere.

    >>> group_mask(np.array([[0, 0]]), np.array([[True, False], [True, False]]), 2).tolist()
    [[[True, False], [True, True]]]
    """
    mask = np.zeros((len(groups), num_groups, allowed.shape[1]), dtype=np.bool_)
    np.logical_or.at(mask, (np.arange(len(groups))[:, None], groups), allowed[None])
    mask[~mask.any(axis=2)] = True
    return mask
