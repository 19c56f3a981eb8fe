"""Stencils: time steps over a ring of blocks, each of which reads its neighbours of the step before."""

from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """Blocks of a ring, their time steps, and the reach of a step."""

    blocks: int = 16
    steps: int = 20
    reach: int = 1
    """Neighbours that a block reads on either side."""


def stencil(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A graph of `blocks * steps` ops; all blocks of a step can run at a time."""
    require(settings.reach >= 1, f"reach is {settings.reach}; expected 1 or more")
    require(settings.blocks > 2 * settings.reach, f"blocks is {settings.blocks}; expected more than twice the reach")
    require(settings.steps >= 2, f"steps is {settings.steps}; expected 2 or more")
    return priced(f"stencil_{settings.blocks}x{settings.steps}", _structure(settings), settings, rng)


def _structure(settings: Settings) -> Structure:
    grid = np.arange(settings.blocks * settings.steps).reshape(settings.steps, settings.blocks)
    shifts = range(-settings.reach, settings.reach + 1)
    producers = np.concatenate([np.roll(grid[:-1], shift, axis=1).ravel() for shift in shifts])
    return Structure.of(grid.size, producers, np.tile(grid[1:].ravel(), len(shifts)))


def _make(settings: Settings) -> OpGraph:
    return stencil(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"stencil_{settings.blocks}x{settings.steps}",
        summary=f"{settings.steps} time steps over a ring of {settings.blocks} blocks",
        make=_make,
        settings=settings,
        small=Settings(blocks=5, steps=3, ccr=settings.ccr),
        source="the Jacobi iteration with halo exchange, as in Frumkin and Van der Wijngaart 2001, section 3",
    )


RECIPES = (_recipe(Settings()), _recipe(Settings(blocks=40, steps=50, reach=2, ccr=0.5)))
