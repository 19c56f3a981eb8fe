"""Graphs of held-out families: the zoo's test split, and random graphs with settings that training never draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.catalog import FAMILIES, GENERATED
from models_zoo.networks.generated import fork_join, layered, random_dag, series_parallel, wavefront
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES, sample_graph
from models_zoo.networks.shipped import has_structure, manifest, read_structure

__all__ = ["GENERATED_GRAPHS", "family_of_graph", "held_out_graph", "training_types"]

_TYPES_OPS = 64  # enough for every type of generated graphs
_FIRST_SEED = 101
_MAKERS: Mapping[type[Any], Callable[[Any, np.random.Generator], OpGraph]] = {
    fork_join.Settings: fork_join.fork_join,
    layered.Settings: layered.layered,
    random_dag.Settings: random_dag.random_dag,
    series_parallel.Settings: series_parallel.series_parallel,
    wavefront.Settings: wavefront.wavefront,
}
GENERATED_GRAPHS = {
    "wavefront-24x24": ("wavefront", wavefront.Settings(rows=24, columns=24, neighbours=3)),
    "wavefront-12x90": ("wavefront", wavefront.Settings(rows=12, columns=90, ccr=0.3)),
    "wavefront-40x50": ("wavefront", wavefront.Settings(rows=40, columns=50, ccr=2.0)),
    "layered-wide": ("alpha 6", layered.Settings(num_ops=600, alpha=6.0, out_degree=2)),
    "layered-dense": ("out_degree 10", layered.Settings(num_ops=300, alpha=2.0, out_degree=10)),
    "layered-far": ("ccr 12", layered.Settings(num_ops=200, out_degree=1, ccr=12.0)),
    "blocks-wide": (
        "24 branches, parallel 0.95",
        series_parallel.Settings(num_ops=500, parallel=0.95, branches=24),
    ),
    "phases-long": ("length 60", fork_join.Settings(num_ops=800, branches=6, length=60)),
    "phases-wide": ("256 branches", fork_join.Settings(num_ops=1500, branches=256, length=1, ccr=0.3)),
    "dag-fat": ("fat 0.9, jump 8", random_dag.Settings(num_ops=400, fat=0.9, jump=8)),
    "dag-uneven": ("spreads 2", random_dag.Settings(num_ops=1000, size_spread=2.0, intensity_spread=2.0)),
    "dag-dense": ("degree 6", random_dag.Settings(num_ops=250, method="ordered", degree=6.0)),
}
"""Random graphs by name: the held-out family or the setting that `sample_graph` never draws, and all settings.

Each graph has a seed of its own, by its position."""


def held_out_graph(name: str) -> OpGraph:
    """The graph of this name, one of `GENERATED_GRAPHS` or of the zoo, such as `nmt_4:training`."""
    if name not in GENERATED_GRAPHS:
        return read_structure(name)
    _, settings = GENERATED_GRAPHS[name]
    return _MAKERS[type(settings)](settings, np.random.default_rng(_FIRST_SEED + list(GENERATED_GRAPHS).index(name)))


def family_of_graph(name: str) -> str:
    """The zoo's family, or the setting of a generated graph that training never draws."""
    if name in GENERATED_GRAPHS:
        return GENERATED_GRAPHS[name][0]
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
