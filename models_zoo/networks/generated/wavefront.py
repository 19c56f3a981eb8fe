"""Wavefront graphs: a grid in which every op waits for the one above and the one to the left."""

from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """A grid of blocks, as of a sequence alignment or a triangular solve."""

    rows: int = 16
    columns: int = 16
    neighbours: int = 2
    """Inputs of an op: 2 (above and left) or 3 (also the diagonal)."""


def wavefront(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A grid of exactly `rows * columns` ops; at most the shorter side of them can run at a time."""
    require(settings.rows >= 1, f"rows is {settings.rows}; expected 1 or more")
    require(settings.columns >= 1, f"columns is {settings.columns}; expected 1 or more")
    require(settings.rows * settings.columns >= 2, "the grid has one op; expected 2 or more")
    require(settings.neighbours in (2, 3), f"neighbours is {settings.neighbours}; expected 2 or 3")
    return priced(f"wavefront_{settings.rows}x{settings.columns}", _structure(settings), settings, rng)


def _structure(settings: Settings) -> Structure:
    grid = np.arange(settings.rows * settings.columns).reshape(settings.rows, settings.columns)
    pairs = [(grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])]
    if settings.neighbours == 3:
        pairs.append((grid[:-1, :-1], grid[1:, 1:]))
    return Structure.of(
        grid.size,
        np.concatenate([producers.ravel() for producers, _ in pairs]),
        np.concatenate([consumers.ravel() for _, consumers in pairs]),
    )


def _make(settings: Settings) -> OpGraph:
    return wavefront(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"wavefront_{settings.rows}x{settings.columns}",
        summary=f"grid of {settings.rows} by {settings.columns} ops",
        make=_make,
        settings=settings,
        small=Settings(rows=4, columns=6, neighbours=settings.neighbours, ccr=settings.ccr),
        source="two-dimensional dependencies of Smith and Waterman 1981",
    )


RECIPES = (
    _recipe(Settings()),
    _recipe(Settings(rows=8, columns=64, ccr=0.3)),
    _recipe(Settings(rows=60, columns=60, neighbours=3, ccr=0.5)),
)
