"""Fast multipole methods: up a tree of cells, across each of its levels, and down again."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe

_TOP = 2  # the first level with cells that are not neighbours


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """A tree that halves a line or quarters a square, level by level."""

    dimensions: int = 2
    """1 or 2."""
    levels: int = 3
    """Halvings of each side until the leaves."""


def multipole(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """The graph of one evaluation (Greengard and Rokhlin 1987; as a graph of tasks in Ltaief and Yokota 2012).

    Each leaf sorts its particles, expands them, adds up forces between near ones, and evaluates the field. Each cell from level 2
    gathers the expansions of its children, converts those of far cells, and passes the sum on to its children.
    """
    require(settings.dimensions in (1, 2), f"dimensions is {settings.dimensions}; expected 1 or 2")
    require(_TOP < settings.levels < 10, f"levels is {settings.levels}; expected {_TOP + 1} to 9")
    return priced(f"fmm{settings.dimensions}d_{settings.levels}", _structure(settings), settings, rng)


def _structure(settings: Settings) -> Structure:
    dimensions, leaf_level = settings.dimensions, settings.levels
    counts = [2 ** (dimensions * level) for level in range(leaf_level + 1)]
    number = 0

    def ops(count: int) -> IntArray:
        nonlocal number
        number += count
        return np.arange(number - count, number)

    edges: list[tuple[IntArray, IntArray]] = []
    sorts = ops(counts[-1])
    outgoing = {leaf_level: ops(counts[-1])}
    edges.append((sorts, outgoing[leaf_level]))
    for level in range(leaf_level - 1, _TOP - 1, -1):
        outgoing[level] = ops(counts[level])
        edges.append((outgoing[level + 1], outgoing[level][_parents(level + 1, dimensions)]))
    incoming: dict[int, IntArray] = {}
    for level in range(_TOP, leaf_level + 1):
        across = ops(counts[level])
        sources, targets = _pairs(level, dimensions, near=False)
        edges.append((outgoing[level][sources], across[targets]))
        incoming[level] = across if level == _TOP else ops(counts[level])
        if level > _TOP:
            edges.append((across, incoming[level]))
            edges.append((incoming[level - 1][_parents(level, dimensions)], incoming[level]))
    direct, evaluations = ops(counts[-1]), ops(counts[-1])
    sources, targets = _pairs(leaf_level, dimensions, near=True)
    edges.append((sorts[sources], direct[targets]))
    edges += [(inputs, evaluations) for inputs in (sorts, incoming[leaf_level], direct)]
    producers, consumers = (np.concatenate(column) for column in zip(*edges, strict=True))
    return Structure.of(number, producers, consumers)


def _cells(level: int, dimensions: int) -> IntArray:
    """`[cells, dimensions]` coordinates of a level's cells, row by row."""
    return np.indices((2**level,) * dimensions).reshape(dimensions, -1).T


def _index(cells: IntArray, level: int) -> IntArray:
    """`[cells]` number of each cell within its level."""
    numbers: IntArray = np.ravel_multi_index(tuple(cells.T), (2**level,) * cells.shape[1])
    return numbers


def _parents(level: int, dimensions: int) -> IntArray:
    """`[cells]` number of each cell's parent within the level above."""
    return _index(_cells(level, dimensions) // 2, level - 1)


def _pairs(level: int, dimensions: int, *, near: bool) -> tuple[IntArray, IntArray]:
    """Pairs of a cell's neighbours, itself among them, and the cell; or of the other children of its parent's neighbours, and the cell."""
    cells = _cells(level, dimensions)
    sources, targets = list[IntArray](), list[IntArray]()
    for offset in product(range(-3, 4), repeat=dimensions):
        if (max(abs(step) for step in offset) <= 1) != near:
            continue
        others = cells + np.array(offset)
        inside = ((others >= 0) & (others < 2**level)).all(axis=1)
        related = (abs(others // 2 - cells // 2) <= 1).all(axis=1)
        sources.append(_index(others[inside & related], level))
        targets.append(_index(cells[inside & related], level))
    return np.concatenate(sources), np.concatenate(targets)


def _make(settings: Settings) -> OpGraph:
    return multipole(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"fmm{settings.dimensions}d_{settings.levels}",
        summary=f"fast multipole method in {settings.dimensions}-D with {2**settings.levels} leaves a side",
        make=_make,
        settings=settings,
        small=Settings(dimensions=settings.dimensions, levels=3, ccr=settings.ccr),
        source="Greengard and Rokhlin 1987; as a graph of tasks in Ltaief and Yokota 2012",
    )


RECIPES = (_recipe(Settings()), _recipe(Settings(dimensions=1, levels=7, ccr=0.5)))
