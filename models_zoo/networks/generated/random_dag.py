"""Random graphs with few rules: edges within an order of the ops, or between levels near each other."""

from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, connected, level_widths, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """The parameters of daggen (Suter and Hunold), and those of ordered random graphs (Cordeiro et al. 2010)."""

    num_ops: int = 200
    method: str = "levels"
    """`levels`: daggen's; `ordered`: of all pairs in a fixed order, as many as wished at random."""
    fat: float = 0.5
    """Levels have `num_ops ** fat` ops on average. This and the next four are of `levels` alone."""
    regularity: float = 0.8
    """1: levels of one width; 0: widths from 1 to twice the mean."""
    density: float = 0.5
    """An op draws 1 to 1 + `density` times the mean width producers, at most `max_producers`."""
    jump: int = 2
    """Largest number of levels that an edge crosses."""
    max_producers: int = 4
    degree: float = 2.0
    """Mean number of producers; of `ordered` alone."""


def random_dag(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A random graph of exactly `num_ops` ops that is connected.

    Departures from daggen: producers are at most `max_producers`, since a share of a level makes edges grow faster
    than ops; producers that are drawn twice count once; no level has more than half of the ops; parts are joined.
    Departure from ordered random graphs: the number of edges is given, not its mean, and parts are joined.
    """
    require(settings.num_ops >= 2, f"num_ops is {settings.num_ops}; expected 2 or more")
    require(settings.method in _METHODS, f"method is {settings.method!r}; expected {' or '.join(_METHODS)}")
    for name in ("fat", "regularity", "density"):
        value = getattr(settings, name)
        require(0 <= value <= 1, f"{name} is {value}; expected 0 to 1")
    require(settings.jump >= 1, f"jump is {settings.jump}; expected 1 or more")
    require(settings.max_producers >= 1, f"max_producers is {settings.max_producers}; expected 1 or more")
    require(0 < settings.degree < np.inf, f"degree is {settings.degree}; expected more than 0")
    structure = _METHODS[settings.method](settings, rng)
    return priced(f"random_dag_{settings.num_ops}", structure, settings, rng)


def _levels(settings: Settings, rng: np.random.Generator) -> Structure:
    count = settings.num_ops
    mean = count**settings.fat
    spread = 1 - settings.regularity
    widths = level_widths(count, mean * (1 - spread), mean * (1 + spread), rng)
    begins = np.cumsum(widths) - widths
    level = np.repeat(np.arange(len(widths)), widths)
    ops = np.arange(widths[0], count)
    most = np.minimum(1 + np.floor(settings.density * widths[level[ops] - 1]), settings.max_producers).astype(np.int64)
    consumers = np.repeat(ops, rng.integers(1, most + 1))
    sources = np.maximum(level[consumers] - rng.integers(1, settings.jump + 1, len(consumers)), 0)
    producers = begins[sources] + rng.integers(0, widths[sources])
    return connected(Structure.of(count, producers, consumers), level, rng)


def _ordered(settings: Settings, rng: np.random.Generator) -> Structure:
    count = settings.num_ops
    pairs = count * (count - 1) // 2
    codes = rng.choice(pairs, min(pairs, round(settings.degree * count)), replace=False, shuffle=False)
    # Pairs are numbered (0, 1), (0, 2), (1, 2), (0, 3), ...: those of consumer c begin at c (c - 1) / 2.
    begins = np.arange(count) * (np.arange(count) - 1) // 2
    consumers = np.searchsorted(begins, codes, side="right") - 1
    structure = Structure.of(count, codes - begins[consumers], consumers)
    return connected(structure, np.arange(count), rng)


_METHODS = {"levels": _levels, "ordered": _ordered}


def _make(settings: Settings) -> OpGraph:
    return random_dag(settings, np.random.default_rng(settings.seed))


def _recipe(name: str, settings: Settings) -> Recipe:
    return Recipe(
        name=name,
        summary=f"random graph, {settings.num_ops} ops",
        make=_make,
        settings=settings,
        small=Settings(num_ops=30, method=settings.method, fat=settings.fat, jump=settings.jump, ccr=settings.ccr),
        source="daggen (Suter and Hunold); Cordeiro et al. 2010",
    )


RECIPES = (
    _recipe("random_dag_200", Settings(num_ops=200)),
    _recipe("random_dag_2000", Settings(num_ops=2000, fat=0.4, jump=4)),
    _recipe("random_dag_200000", Settings(num_ops=200_000, op_time_s=5e-5)),
    _recipe("random_ordered_200", Settings(num_ops=200, method="ordered")),
    _recipe("random_ordered_2000", Settings(num_ops=2000, method="ordered", degree=1.5, ccr=0.3)),
)
