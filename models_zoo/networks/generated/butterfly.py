"""Fast Fourier transforms: a tree of recursive calls, then stages of butterflies."""

from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """A vector whose length is a power of two."""

    points: int = 32


def butterfly(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A graph of `2 points - 1` calls and `points log2(points)` butterflies (Topcuoglu, Hariri and Wu 2002, section 5.2.2)."""
    points = settings.points
    require(points >= 2 and points & (points - 1) == 0, f"points is {points}; expected a power of two from 2")
    return priced(f"fft_{points}", _structure(points), settings, rng)


def _structure(points: int) -> Structure:
    calls = 2 * points - 1
    parent = np.arange(points - 1)
    producers, consumers = [parent, parent], [2 * parent + 1, 2 * parent + 2]
    lane = np.arange(points)
    before = points - 1 + lane  # the leaves of the calls
    for stage in range(points.bit_length() - 1):
        here = calls + stage * points + lane
        producers += [before, before[lane ^ (1 << stage)]]
        consumers += [here, here]
        before = here
    return Structure.of(int(before[-1]) + 1, np.concatenate(producers), np.concatenate(consumers))


def _make(settings: Settings) -> OpGraph:
    return butterfly(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"fft_{settings.points}",
        summary=f"fast Fourier transform of {settings.points} points",
        make=_make,
        settings=settings,
        small=Settings(points=4, ccr=settings.ccr),
        source="Topcuoglu, Hariri and Wu 2002, section 5.2.2",
    )


RECIPES = (_recipe(Settings()), _recipe(Settings(points=128, ccr=2.0, size_spread=0.2)))
