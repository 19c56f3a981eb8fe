"""Gaussian elimination: pivots one after the other, and the columns that each of them updates."""

from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """A square matrix."""

    size: int = 24
    """Columns of the matrix."""


def elimination(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A graph of `(size^2 + size - 2) / 2` ops (Topcuoglu, Hariri and Wu 2002, section 5.2.1)."""
    require(settings.size >= 3, f"size is {settings.size}; expected 3 or more")
    return priced(f"elimination_{settings.size}", _structure(settings.size), settings, rng)


def _structure(size: int) -> Structure:
    """Step `k` has a pivot, and an update of each later column, which reads the pivot and the same column of step `k - 1`."""
    pairs = [(step, column) for step in range(size - 1) for column in range(step, size)]
    number = {pair: index for index, pair in enumerate(pairs)}
    edges = [(number[step, step], number[step, column]) for step, column in pairs if column > step]
    edges += [(number[step - 1, column], number[step, column]) for step, column in pairs if step]
    producers, consumers = np.array(edges, dtype=np.int64).T
    return Structure.of(len(pairs), producers, consumers)


def _make(settings: Settings) -> OpGraph:
    return elimination(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"elimination_{settings.size}",
        summary=f"Gaussian elimination of {settings.size} columns",
        make=_make,
        settings=settings,
        small=Settings(size=5, ccr=settings.ccr),
        source="Topcuoglu, Hariri and Wu 2002, section 5.2.1",
    )


RECIPES = (_recipe(Settings()), _recipe(Settings(size=48, ccr=0.3, intensity_spread=1.5)))
