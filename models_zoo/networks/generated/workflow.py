"""Scientific workflows: a mosaic of sky images, and the mapping of a genome in lanes."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated.costs import Costs, priced
from models_zoo.networks.generated.structure import Structure, require
from models_zoo.networks.recipe import Recipe

_NEXT = 3  # images that overlap with an image, of those after it
_PIPELINE = 4  # steps of a chunk: filter, convert the format, convert to binary, map
_END = 3  # steps after all lanes are merged


@dataclass(frozen=True, kw_only=True)
class Settings(Costs):
    """The kind of workflow and its width."""

    kind: str = "montage"
    """`montage` or `epigenomics`."""
    width: int = 40
    """Images, or chunks of each lane."""
    lanes: int = 4
    """Lanes of `epigenomics`."""


def workflow(settings: Settings, rng: np.random.Generator) -> OpGraph:
    """The workflow's graph (Juve et al. 2013, figures 1 and 3)."""
    require(settings.kind in _KINDS, f"kind is {settings.kind!r}; expected {', '.join(_KINDS)}")
    require(settings.width >= 2, f"width is {settings.width}; expected 2 or more")
    require(settings.lanes >= 1, f"lanes is {settings.lanes}; expected 1 or more")
    return priced(f"{settings.kind}_{settings.width}", _KINDS[settings.kind](settings), settings, rng)


def _montage(settings: Settings) -> Structure:
    """Projections, differences of overlapping ones, a fit of all, a correction of each, and their sum in four steps."""
    width = settings.width
    overlaps = [(a, b) for a in range(width) for b in range(a + 1, min(width, a + 1 + _NEXT))]
    fit = width + len(overlaps)
    edges = [(image, width + number) for number, pair in enumerate(overlaps) for image in pair]
    edges += [(difference, fit) for difference in range(width, fit)]
    edges.append((fit, fit + 1))
    corrected = range(fit + 2, fit + 2 + width)
    edges += [(source, op) for image, op in enumerate(corrected) for source in (image, fit + 1)]
    edges += [(op, corrected.stop) for op in corrected]
    edges += [(op, op + 1) for op in range(corrected.stop, corrected.stop + 3)]
    producers, consumers = np.array(edges, dtype=np.int64).T
    return Structure.of(corrected.stop + 4, producers, consumers)


def _epigenomics(settings: Settings) -> Structure:
    """Lanes that are split into chunks, a pipeline of four steps per chunk, a merge per lane, and three last steps."""
    chunks = settings.width
    per_lane = 2 + _PIPELINE * chunks
    end = settings.lanes * per_lane
    edges: list[tuple[int, int]] = []
    for begin in range(0, end, per_lane):
        merge = begin + per_lane - 1
        for first in range(begin + 1, merge, _PIPELINE):
            steps = [begin, *range(first, first + _PIPELINE), merge]
            edges += pairwise(steps)
        edges.append((merge, end))
    edges += [(op, op + 1) for op in range(end, end + _END - 1)]
    producers, consumers = np.array(edges, dtype=np.int64).T
    return Structure.of(end + _END, producers, consumers)


_KINDS = {"montage": _montage, "epigenomics": _epigenomics}


def _make(settings: Settings) -> OpGraph:
    return workflow(settings, np.random.default_rng(settings.seed))


def _recipe(settings: Settings) -> Recipe:
    return Recipe(
        name=f"{settings.kind}_{settings.width}",
        summary=f"the workflow {settings.kind} with {settings.width} "
        + ("images" if settings.kind == "montage" else "chunks per lane"),
        make=_make,
        settings=settings,
        small=Settings(kind=settings.kind, width=3, lanes=2, ccr=settings.ccr),
        source="Juve et al. 2013, figures 1 and 3",
    )


RECIPES = (_recipe(Settings()), _recipe(Settings(kind="epigenomics", width=24, ccr=0.5, intensity_spread=1.5)))
