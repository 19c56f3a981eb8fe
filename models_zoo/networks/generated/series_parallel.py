"""Series-parallel random graphs: blocks one after the other or side by side, down to single ops."""

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """Blocks with one first and one last op (Valdes, Tarjan and Lawler 1982, two terminals)."""

    num_ops: int = 200
    parallel: float = 0.5
    """Probability that a block of four ops or more is one of branches; the more, the wider the graph."""
    branches: int = 4
    """Largest number of branches of a block; the number is uniform from 2."""


def series_parallel(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A series-parallel graph of exactly `num_ops` ops with one first and one last op.

    A block of branches has an op before and one after them. Sizes of branches are random, and the point where a
    block is cut in two that follow each other is uniform.
    """
    require(settings.num_ops >= 2, f"num_ops is {settings.num_ops}; expected 2 or more")
    require(0 <= settings.parallel <= 1, f"parallel is {settings.parallel}; expected 0 to 1")
    require(settings.branches >= 2, f"branches is {settings.branches}; expected 2 or more")
    return priced(f"series_parallel_{settings.num_ops}", _structure(settings, rng), settings, rng)


def _structure(settings: Settings, rng: np.random.Generator) -> Structure:
    """Divides all blocks of one depth at once; a block is a range of ops, the first and the last one its ends."""
    begins, ends = np.array([0]), np.array([settings.num_ops])
    producers: list[IntArray] = []
    consumers: list[IntArray] = []
    while len(begins):
        branching = (ends - begins >= 4) & (rng.random(len(begins)) < settings.parallel)
        first, last = begins[~branching], ends[~branching]
        cuts = first + 1 + rng.integers(0, last - first - 1, endpoint=False) if len(first) else first
        outer_first, outer_last = begins[branching], ends[branching]
        inner_begins, inner_ends, owners = _branches(outer_first + 1, outer_last - 1, settings.branches, rng)
        producers += [cuts - 1, outer_first[owners], inner_ends - 1]
        consumers += [cuts, inner_begins, outer_last[owners] - 1]
        begins = np.concatenate([first, cuts, inner_begins])
        ends = np.concatenate([cuts, last, inner_ends])
        divisible = ends - begins >= 2
        begins, ends = begins[divisible], ends[divisible]
    return Structure.of(settings.num_ops, np.concatenate(producers), np.concatenate(consumers))


def _branches(
    begins: IntArray, ends: IntArray, most: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Begin and end of the branches of every range, and the range that each one is of; none is empty."""
    sizes = ends - begins
    counts = rng.integers(2, np.minimum(most, sizes) + 1)
    owners = np.repeat(np.arange(len(begins)), counts)
    firsts = np.cumsum(counts) - counts
    weights = rng.exponential(size=len(owners))
    sums = np.cumsum(weights) - np.repeat(np.cumsum(weights)[firsts] - weights[firsts], counts)
    totals = np.bincount(owners, weights, minlength=len(begins))
    place = np.arange(len(owners)) - firsts[owners] + 1
    spare = np.floor(np.minimum(sums / totals[owners], 1.0) * (sizes - counts)[owners]).astype(np.int64)
    inner_ends = begins[owners] + spare + place
    inner_ends[firsts + counts - 1] = ends
    inner_begins = np.concatenate([begins[:1], inner_ends[:-1]])
    inner_begins[firsts] = begins
    return inner_begins, inner_ends, owners


def _make(settings: Settings) -> OpGraph:
    return series_parallel(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings, suffix: str = "") -> Recipe:
    return Recipe(
        name=f"series_parallel_{settings.num_ops}{suffix}",
        summary=f"random graph of nested blocks, {settings.num_ops} ops",
        make=_make,
        settings=settings,
        small=Settings(num_ops=30, parallel=settings.parallel, branches=settings.branches, ccr=settings.ccr),
        source="Cordeiro et al. 2010; blocks with two ends of Valdes, Tarjan and Lawler 1982",
    )


RECIPES = (
    _recipe(Settings(num_ops=200)),
    _recipe(Settings(num_ops=200, parallel=0.8, branches=8, ccr=0.5), "_wide"),
    _recipe(Settings(num_ops=2000, parallel=0.7)),
    _recipe(Settings(num_ops=5000, parallel=0.3, ccr=0.2), "_tall"),
)
