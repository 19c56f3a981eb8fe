"""Distributions over placements: grouper and placer together, and those of the paper's ablations."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.hierarchical.networks import (
    Chooser,
    Placer,
    UnitTraits,
    group_embeddings,
    placer_inputs,
    unit_embeddings,
)
from gnnplace.planners.papers.rewards import landing_devices

__all__ = ["DirectPolicy", "DrawSizes", "GroupedPolicy", "PlacementPolicy", "group_mask"]


class PlacementPolicy(Protocol):
    """Draws whole placements."""

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """Devices `[B, U]`, the log probability `[B]` of each placement, and the placer's entropy `[B]`, with gradients."""

    def parameters(self) -> list[nn.Parameter]:
        """The weights to learn."""


class DrawSizes(NamedTuple):
    """Sizes of one draw."""

    num_groups: int
    groupings: int
    placements_per_grouping: int


class GroupedPolicy:
    """Draws groups of units, then a device for each group.

    A unit that may not run on its group's device goes to the fastest one that may run it; a group may go wherever one of
    its units may. Without a grouper, units fall into groups at random, once for all draws: the ablation "random grouping".
    """

    def __init__(
        self, problem: Problem, traits: UnitTraits, grouper: Chooser | None, placer: Placer, sizes: DrawSizes
    ) -> None:
        self._problem, self._landing = problem, landing_devices(problem)
        self._traits, self._units = traits, torch.from_numpy(unit_embeddings(traits)).float()
        self._grouper, self._placer, self._sizes = grouper, placer, sizes
        self._fixed: Tensor | None = None

    def parameters(self) -> list[nn.Parameter]:
        """The weights of both networks."""
        grouper = [] if self._grouper is None else list(self._grouper.parameters())
        return [*grouper, *self._placer.parameters()]

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """See `PlacementPolicy.draw`; the placements of one grouping are consecutive."""
        num_groups, _, copies = self._sizes
        groups, log_prob = self.draw_groups(generator)
        embeddings = placer_inputs(group_embeddings(self._traits, groups, num_groups), num_groups)
        mask = group_mask(groups, self._problem.action_mask, num_groups)
        devices, placer_log_prob, entropy = self._placer.draw(
            torch.from_numpy(embeddings).float(), torch.from_numpy(mask), copies, generator
        )
        wanted = np.take_along_axis(devices.numpy(), np.repeat(groups, copies, axis=0), axis=1)
        landed = self._landing[np.arange(self._problem.num_units), wanted]
        return landed, log_prob.repeat_interleave(copies) + placer_log_prob, entropy

    def draw_groups(self, generator: Generator) -> tuple[IntArray, Tensor]:
        """Groups `[M, U]` and the log probability `[M]` of each grouping; 0 when the grouping is not learned."""
        if self._grouper is not None:
            everywhere = torch.ones(len(self._units), self._sizes.num_groups, dtype=torch.bool)
            drawn, log_prob = self._grouper.draw(self._units, everywhere, self._sizes.groupings, generator)
            return drawn.numpy(), log_prob
        if self._fixed is None:
            self._fixed = torch.randint(self._sizes.num_groups, (1, len(self._units)), generator=generator)
        return self._fixed.expand(self._sizes.groupings, -1).numpy(), torch.zeros(self._sizes.groupings)


class DirectPolicy:
    """Draws a device for every unit on its own, by a feed-forward network: the paper's ablation "no grouping"."""

    def __init__(self, problem: Problem, traits: UnitTraits, chooser: Chooser, count: int) -> None:
        """Draws `count` placements at a time."""
        self._chooser, self._count = chooser, count
        self._units = torch.from_numpy(unit_embeddings(traits)).float()
        self._mask = torch.from_numpy(problem.action_mask)

    def parameters(self) -> list[nn.Parameter]:
        """The weights of the network."""
        return list(self._chooser.parameters())

    def draw(self, generator: Generator) -> tuple[IntArray, Tensor, Tensor]:
        """See `PlacementPolicy.draw`."""
        devices, log_prob = self._chooser.draw(self._units, self._mask, self._count, generator)
        return devices.numpy(), log_prob, torch.zeros(self._count)


def group_mask(groups: IntArray, allowed: BoolArray, num_groups: int) -> BoolArray:
    """`[M, G, D]` true where a unit of the group may go, from groups `[M, U]` and `allowed` `[U, D]`; all true for empty groups."""
    mask = np.zeros((len(groups), num_groups, allowed.shape[1]), dtype=np.bool_)
    np.logical_or.at(mask, (np.arange(len(groups))[:, None], groups), allowed[None])
    mask[~mask.any(axis=2)] = True
    return mask
