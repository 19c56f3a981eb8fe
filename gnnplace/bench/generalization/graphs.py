"""Graphs of held-out families: the zoo's test split, and random graphs with settings that training never draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.catalog import FAMILIES, GENERATED
from models_zoo.networks.generated.fork_join import Settings as ForkJoin
from models_zoo.networks.generated.fork_join import fork_join
from models_zoo.networks.generated.layered import Settings as Layered
from models_zoo.networks.generated.layered import layered
from models_zoo.networks.generated.random_dag import Settings as RandomDag
from models_zoo.networks.generated.random_dag import random_dag
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES, sample_graph
from models_zoo.networks.generated.series_parallel import Settings as SeriesParallel
from models_zoo.networks.generated.series_parallel import series_parallel
from models_zoo.networks.generated.wavefront import Settings as Wavefront
from models_zoo.networks.generated.wavefront import wavefront
from models_zoo.networks.shipped import has_structure, manifest, read_structure

__all__ = ["GENERATED_GRAPHS", "family_of_graph", "held_out_graph", "training_types"]

_TYPES_OPS = 64  # enough for every type of generated graphs


@dataclass(frozen=True)
class GeneratedGraph:
    """A random graph with a seed of its own."""

    unlike: str
    """Held-out family, or the setting that `sample_graph` never draws."""
    seed: int
    make: Callable[[np.random.Generator], OpGraph]


GENERATED_GRAPHS: Mapping[str, GeneratedGraph] = {
    "wavefront-24x24": GeneratedGraph(
        "wavefront", 101, lambda rng: wavefront(Wavefront(rows=24, columns=24, neighbours=3), rng)),
    "wavefront-12x90": GeneratedGraph(
        "wavefront", 102, lambda rng: wavefront(Wavefront(rows=12, columns=90, ccr=0.3), rng)),
    "wavefront-40x50": GeneratedGraph(
        "wavefront", 103, lambda rng: wavefront(Wavefront(rows=40, columns=50, ccr=2.0), rng)),
    "layered-wide": GeneratedGraph(
        "alpha 6", 104, lambda rng: layered(Layered(num_ops=600, alpha=6.0, out_degree=2), rng)
    ),
    "layered-dense": GeneratedGraph(
        "out_degree 10", 105, lambda rng: layered(Layered(num_ops=300, alpha=2.0, out_degree=10), rng)
    ),
    "layered-far": GeneratedGraph(
        "ccr 12", 106, lambda rng: layered(Layered(num_ops=200, out_degree=1, ccr=12.0), rng)),
    "blocks-wide": GeneratedGraph(
        "24 branches, parallel 0.95", 107,
        lambda rng: series_parallel(SeriesParallel(num_ops=500, parallel=0.95, branches=24), rng),
    ),
    "phases-long": GeneratedGraph(
        "length 60", 108, lambda rng: fork_join(ForkJoin(num_ops=800, branches=6, length=60), rng)),
    "phases-wide": GeneratedGraph(
        "256 branches", 109, lambda rng: fork_join(ForkJoin(num_ops=1500, branches=256, length=1, ccr=0.3), rng)
    ),
    "dag-fat": GeneratedGraph(
        "fat 0.9, jump 8", 110, lambda rng: random_dag(RandomDag(num_ops=400, fat=0.9, jump=8), rng)),
    "dag-uneven": GeneratedGraph(
        "spreads 2", 111,
        lambda rng: random_dag(RandomDag(num_ops=1000, size_spread=2.0, intensity_spread=2.0), rng),
    ),
    "dag-dense": GeneratedGraph(
        "degree 6", 112, lambda rng: random_dag(RandomDag(num_ops=250, method="ordered", degree=6.0), rng)
    ),
}  # fmt: skip
"""Random graphs by name."""


def held_out_graph(name: str) -> OpGraph:
    """The graph of this name, one of `GENERATED_GRAPHS` or of the zoo, such as `nmt_4:training`."""
    if name not in GENERATED_GRAPHS:
        return read_structure(name)
    graph = GENERATED_GRAPHS[name]
    return graph.make(np.random.default_rng(graph.seed))


def family_of_graph(name: str) -> str:
    """The zoo's family, or the setting of a generated graph that training never draws."""
    if name in GENERATED_GRAPHS:
        return GENERATED_GRAPHS[name].unlike
    return next(row.family for row in manifest() if row.key == name)


@cache
def training_types() -> frozenset[str]:
    """Op types of all training families, including networks that are too large for training."""
    networks = [
        read_structure(row.key)
        for row in manifest()
        if FAMILIES[row.family].split == "train" and row.family not in GENERATED and has_structure(row.key)
    ]
    drawn = [sample_graph(np.random.default_rng(0), _TYPES_OPS, [family]) for family in SAMPLED_FAMILIES]
    return frozenset(op_type for graph in (*networks, *drawn) for op_type in graph.op_types)
