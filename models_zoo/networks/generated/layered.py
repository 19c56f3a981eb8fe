"""Layered random graphs: every op reads from the layer before its own."""

import math
from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, connected, level_widths, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """Topcuoglu et al. (2002), section 5.1; their set of values is in the comments."""

    num_ops: int = 200  # 20 to 100
    alpha: float = 1.0  # 0.5, 1, 2
    """Shape: layers have `alpha * sqrt(num_ops)` ops on average."""
    out_degree: int = 3  # 1 to 5, or num_ops
    """Largest number of consumers that an op draws."""


def layered(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A layered graph of exactly `num_ops` ops; the layer of an op is the length of the longest path to it.

    The paper leaves open where edges lead. Here an op draws one to `out_degree` consumers in the next layer; an op
    without a producer then gets one, and so does a part that hangs together with no other. No layer has more than
    half of the ops.
    """
    require(settings.num_ops >= 2, f"num_ops is {settings.num_ops}; expected 2 or more")
    require(settings.alpha > 0, f"alpha is {settings.alpha}; expected more than 0")
    require(settings.out_degree >= 1, f"out_degree is {settings.out_degree}; expected 1 or more")
    return priced(f"layered_{settings.num_ops}", _structure(settings, rng), settings, rng)


def _structure(settings: Settings, rng: np.random.Generator) -> Structure:
    count = settings.num_ops
    widths = level_widths(count, 1, 2 * settings.alpha * math.sqrt(count) - 1, rng)
    begins = np.cumsum(widths) - widths
    level = np.repeat(np.arange(len(widths)), widths)
    inner = np.arange(begins[-1])
    most = np.minimum(settings.out_degree, widths[level[inner] + 1])
    producers = np.repeat(inner, rng.integers(1, most + 1))
    targets = level[producers] + 1
    consumers = begins[targets] + rng.integers(0, widths[targets])
    lonely = np.setdiff1d(np.arange(widths[0], count), consumers)
    before = level[lonely] - 1
    structure = Structure.of(
        count,
        np.concatenate([producers, begins[before] + rng.integers(0, widths[before])]),
        np.concatenate([consumers, lonely]),
    )
    return connected(structure, level, rng)


def _make(settings: Settings) -> OpGraph:
    return layered(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings, suffix: str = "") -> Recipe:
    return Recipe(
        name=f"layered_{settings.num_ops}{suffix}",
        summary=f"random graph of layers, {settings.num_ops} ops",
        make=_make,
        settings=settings,
        small=Settings(num_ops=30, alpha=settings.alpha, out_degree=settings.out_degree, ccr=settings.ccr),
        source="Topcuoglu et al. 2002, section 5.1",
    )


RECIPES = (
    _recipe(Settings(num_ops=200)),
    _recipe(Settings(num_ops=200, alpha=2.0, ccr=5.0), "_wide"),
    _recipe(Settings(num_ops=2000, ccr=0.5)),
    _recipe(Settings(num_ops=2000, alpha=0.5, out_degree=5), "_tall"),
    _recipe(Settings(num_ops=100_000, op_time_s=5e-5)),
)
