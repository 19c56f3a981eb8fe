"""Tiled factorisations of a matrix: the task graphs of parallel Cholesky, LU and QR."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe

_Tile = tuple[int, int]
_Task = tuple[tuple[_Tile, ...], tuple[_Tile, ...]]
"""Tiles that a task reads, and tiles that it updates."""


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """A square matrix of tiles, and the factorisation."""

    tiles: int = 12
    """Tiles per side."""
    kind: str = "cholesky"
    """`cholesky`, `lu` without pivoting, or `qr`."""


def factorization(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """An op per task; it waits for the last tasks that updated the tiles which it reads or updates.

    Buttari, Langou, Kurzak and Dongarra 2009, algorithms 1 to 3.
    """
    require(settings.tiles >= 2, f"tiles is {settings.tiles}; expected 2 or more")
    require(settings.kind in _TASKS, f"kind is {settings.kind!r}; expected {', '.join(_TASKS)}")
    return priced(f"{settings.kind}_{settings.tiles}", _structure(settings), settings, rng)


def _cholesky(tiles: int) -> Iterator[_Task]:
    for k in range(tiles):
        yield (), ((k, k),)
        for i in range(k + 1, tiles):
            yield ((k, k),), ((i, k),)
        for i in range(k + 1, tiles):
            yield ((i, k),), ((i, i),)
            for j in range(k + 1, i):
                yield ((i, k), (j, k)), ((i, j),)


def _lu(tiles: int) -> Iterator[_Task]:
    for k in range(tiles):
        yield (), ((k, k),)
        for i in range(k + 1, tiles):
            yield ((k, k),), ((k, i),)
            yield ((k, k),), ((i, k),)
        for i in range(k + 1, tiles):
            for j in range(k + 1, tiles):
                yield ((i, k), (k, j)), ((i, j),)


def _qr(tiles: int) -> Iterator[_Task]:
    for k in range(tiles):
        yield (), ((k, k),)
        for j in range(k + 1, tiles):
            yield ((k, k),), ((k, j),)
        for i in range(k + 1, tiles):
            yield (), ((k, k), (i, k))
            for j in range(k + 1, tiles):
                yield ((i, k),), ((k, j), (i, j))


_TASKS = {"cholesky": _cholesky, "lu": _lu, "qr": _qr}


def _structure(settings: Settings) -> Structure:
    last: dict[_Tile, int] = {}
    edges: list[tuple[int, int]] = []
    number = 0
    for number, (reads, updates) in enumerate(_TASKS[settings.kind](settings.tiles)):
        edges += [(last[tile], number) for tile in (*reads, *updates) if tile in last]
        last.update(dict.fromkeys(updates, number))
    producers, consumers = np.array(edges, dtype=np.int64).T
    return Structure.of(number + 1, producers, consumers)


def _make(settings: Settings) -> OpGraph:
    return factorization(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"{settings.kind}_{settings.tiles}",
        summary=f"tiled {settings.kind} factorisation of {settings.tiles} by {settings.tiles} tiles",
        make=_make,
        settings=settings,
        small=Settings(tiles=3, kind=settings.kind, ccr=settings.ccr),
        source="Buttari, Langou, Kurzak and Dongarra 2009, algorithms 1 to 3",
    )


RECIPES = (
    _recipe(Settings()),
    _recipe(Settings(kind="lu", tiles=10, ccr=0.4)),
    _recipe(Settings(kind="qr", tiles=16, ccr=0.8, size_spread=0.2)),
)
