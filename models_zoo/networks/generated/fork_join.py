"""Fork-join graphs: equal branches between an op that all begin with and one that waits for all."""

from dataclasses import dataclass

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """Phases one after the other, as of a bulk-synchronous program."""

    num_ops: int = 200
    branches: int = 8
    """Ops side by side."""
    length: int = 4
    """Ops of a branch one after the other."""


def fork_join(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """A fork-join graph of exactly `num_ops` ops; the op that joins a phase is the one that forks the next.

    The last phase has what is left over, so its branches may be shorter or fewer.
    """
    require(settings.num_ops >= 2, f"num_ops is {settings.num_ops}; expected 2 or more")
    require(settings.branches >= 1, f"branches is {settings.branches}; expected 1 or more")
    require(settings.length >= 1, f"length is {settings.length}; expected 1 or more")
    return priced(f"fork_join_{settings.num_ops}", _structure(settings), settings, rng)


def _structure(settings: Settings) -> Structure:
    """Op 0 forks; each phase lists its branches side by side, step by step, and then its join."""
    count, branches = settings.num_ops, settings.branches
    period = branches * settings.length + 1
    ops = np.arange(1, count)
    place = (ops - 1) % period
    joins = (place == period - 1) | (ops == count - 1)
    inner, at = ops[~joins], place[~joins]
    before = np.where(at < branches, inner - at - 1, inner - branches)
    # A join reads the last op of each branch, and the fork itself where the last phase is nothing else.
    read = np.maximum(np.minimum(branches, place[joins]), 1)
    targets = np.repeat(ops[joins], read)
    offsets = np.arange(len(targets)) - np.repeat(np.cumsum(read) - read, read) + 1
    return Structure.of(count, np.concatenate([before, targets - offsets]), np.concatenate([inner, targets]))


def _make(settings: Settings) -> OpGraph:
    return fork_join(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings, suffix: str = "") -> Recipe:
    return Recipe(
        name=f"fork_join_{settings.num_ops}{suffix}",
        summary=f"phases of {settings.branches} branches, {settings.num_ops} ops",
        make=_make,
        settings=settings,
        small=Settings(num_ops=35, branches=4, length=min(settings.length, 4), ccr=settings.ccr),
        source="Cordeiro et al. 2010; phases as in a bulk-synchronous program",
    )


RECIPES = (
    _recipe(Settings(num_ops=200)),
    _recipe(Settings(num_ops=200, branches=2, length=12, ccr=2.0), "_narrow"),
    _recipe(Settings(num_ops=2000, branches=16, length=6)),
    _recipe(Settings(num_ops=2000, branches=100, length=1, ccr=0.2), "_wide"),
)
