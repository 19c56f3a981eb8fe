"""Cases of a held-out graph, its number of groups and a held-out device set, fixed before any planner ran on them.

Graphs are the zoo's test split, and random graphs with settings that training never draws.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.catalog import FAMILIES, GENERATED
from models_zoo.networks.generated import (
    butterfly,
    elimination,
    factorization,
    fork_join,
    layered,
    multipole,
    random_dag,
    series_parallel,
    stencil,
    wavefront,
    workflow,
)
from models_zoo.networks.generated.sampling import SAMPLED_FAMILIES, sample_graph
from models_zoo.networks.shipped import has_structure, manifest, read_structure, structure_types


@dataclass(frozen=True)
class HeldOutCase:
    """One graph on one device set."""

    graph: str
    """Name of a graph, see `CaseSet.graph`."""
    max_groups: int
    devices: str
    """Name of a device set, see `held_out_devices`."""
    type_spread: float = 0.0
    """Spread of the factors of `PerTypeCost`; training draws 0 to 0.6."""
    memory_share: float | None = None
    """Memory of all accelerators together over the memory that the graph needs on one; None for the set's own memory."""

    @property
    def name(self) -> str:
        """Unique name, made of all fields."""
        spread = f" types {self.type_spread:g}" if self.type_spread else ""
        memory = "" if self.memory_share is None else f" memory {self.memory_share:g}"
        return f"{self.graph} {self.max_groups} on {self.devices}{spread}{memory}"


_CASES: Mapping[int, Sequence[tuple[Any, ...]]] = {
    50: (
        ("nmt_2", "k40x2"), ("inception_v3", "k80x4", 0.4), ("moe_8", "servers-2x4"),
        ("nasnet_mobile", "phone-3", 0.4), ("ssd_300", "k40x5", 0.4), ("t5_small", "cpus-6"),
        ("swin_tiny", "cores-4+4", 0.4), ("whisper_tiny", "upload-5"), ("llama_prefill", "v100x2", 0.9),
        ("unet_diffusion", "ring-8"), ("wavefront_16x16", "servers-4x4"), ("wavefront-24x24", "k80x5"),
    ),
    100: (
        ("nmt_2:training", "v100x2", 0.0, 0.8), ("nmt_4", "p100x15"), ("inception_v3", "k40+p100+v100+a100"),
        ("moe_8", "k40x2", 0.4), ("nasnet_large", "servers-2x4", 0.4), ("ssd_300", "cores-4+4", 0.9),
        ("t5_base", "k80x5"), ("swin_tiny", "ethernet-4", 0.4), ("whisper_base", "old-gpus-7"),
        ("llama_decode", "k40x5", 0.4, 1.5), ("mamba_130m", "v100x2"), ("wavefront_8x64", "cpus-6"),
        ("wavefront-12x90", "k80x4"), ("layered-far", "upload-5"),
    ),
    200: (
        ("nmt_2", "k40x5"), ("nmt_4:training", "k80x4", 0.0, 1.2), ("inception_v3", "k80x2", 0.4),
        ("moe_8", "a100-sxmx4"), ("nasnet_mobile", "cpus-6", 0.4), ("unet_diffusion", "k40x2"),
        ("t5_small", "servers-4x4"), ("swin_tiny", "k40+p100+v100+a100", 0.4),
        ("whisper_base", "k40x2+v100x3", 0.9), ("llama_prefill", "ring-8", 0.0, 0.8),
        ("mamba_130m", "k80x5", 0.4), ("wavefront_16x16", "k40x2"), ("wavefront_60x60", "h100-sxmx7"),
        ("layered-far", "cores-4+4"), ("dag-dense", "old-gpus-7", 0.4), ("layered-dense", "p100x15"),
    ),
    500: (
        ("nmt_4", "k40x2"), ("nmt_8:training", "p100x15", 0.0, 1.5), ("nmt_2:training", "servers-2x4"),
        ("moe_8", "k80x2", 0.9), ("nasnet_large", "k40x5"), ("nasnet_mobile", "k40+p100+v100+a100", 0.4),
        ("unet_diffusion", "k80x4", 0.4), ("t5_base", "cores-4+4"), ("swin_tiny", "upload-5"),
        ("whisper_base", "cpus-6", 0.4), ("llama_decode", "phone-3"), ("wavefront_8x64", "servers-4x4", 0.4),
        ("wavefront-24x24", "ethernet-4"), ("layered-wide", "k80x5"), ("blocks-wide", "ring-8", 0.4),
        ("dag-fat", "h100-sxmx7"),
    ),
    1000: (
        ("nmt_8", "servers-2x4"), ("inception_v3:training", "v100x2", 0.4), ("unet_diffusion", "k40x5"),
        ("phases-long", "k80x4", 0.4), ("wavefront-12x90", "cores-4+4"), ("dag-uneven", "p100x15"),
    ),
    2000: (
        ("nmt_4:training", "k40x5"), ("mamba_130m", "k40x2", 0.4), ("wavefront-40x50", "servers-4x4"),
        ("phases-wide", "k40+p100+v100+a100"),
    ),
}  # fmt: skip
"""Graph, device set, spread of types and share of memory of each case, by number of groups."""


def cases_of(table: Mapping[int, Sequence[tuple[Any, ...]]]) -> tuple[HeldOutCase, ...]:
    """The cases of a table like `_CASES`."""
    return tuple(HeldOutCase(graph, max_groups, *rest) for max_groups, cases in table.items() for graph, *rest in cases)


CASES: Sequence[HeldOutCase] = cases_of(_CASES)
"""Sorted by number of groups. A case has fewer where the graph is smaller or where colocation joins more ops.

No case repeats a graph with its devices from the papers' tables, as the improver was tuned while looking at these.
"""


_TYPES_OPS = 64  # enough for every type of generated graphs
_MAKERS: Mapping[type[Any], Callable[[Any, np.random.Generator], OpGraph]] = {
    butterfly.Settings: butterfly.butterfly,
    elimination.Settings: elimination.elimination,
    factorization.Settings: factorization.factorization,
    fork_join.Settings: fork_join.fork_join,
    layered.Settings: layered.layered,
    multipole.Settings: multipole.multipole,
    random_dag.Settings: random_dag.random_dag,
    series_parallel.Settings: series_parallel.series_parallel,
    stencil.Settings: stencil.stencil,
    wavefront.Settings: wavefront.wavefront,
    workflow.Settings: workflow.workflow,
}


class GeneratedGraph(NamedTuple):
    """A random graph that the zoo does not have."""

    family: str
    """Its family, or the setting that training never draws."""
    settings: Any
    """Settings of one of the generators."""
    seed: int


GENERATED_GRAPHS: Mapping[str, GeneratedGraph] = {
    "wavefront-24x24": GeneratedGraph("wavefront", wavefront.Settings(rows=24, columns=24, neighbours=3), 101),
    "wavefront-12x90": GeneratedGraph("wavefront", wavefront.Settings(rows=12, columns=90, ccr=0.3), 102),
    "wavefront-40x50": GeneratedGraph("wavefront", wavefront.Settings(rows=40, columns=50, ccr=2.0), 103),
    "layered-wide": GeneratedGraph("alpha 6", layered.Settings(num_ops=600, alpha=6.0, out_degree=2), 104),
    "layered-dense": GeneratedGraph("out_degree 10", layered.Settings(num_ops=300, alpha=2.0, out_degree=10), 105),
    "layered-far": GeneratedGraph("ccr 12", layered.Settings(num_ops=200, out_degree=1, ccr=12.0), 106),
    "blocks-wide": GeneratedGraph(
        "24 branches, parallel 0.95", series_parallel.Settings(num_ops=500, parallel=0.95, branches=24), 107
    ),
    "phases-long": GeneratedGraph("length 60", fork_join.Settings(num_ops=800, branches=6, length=60), 108),
    "phases-wide": GeneratedGraph(
        "256 branches", fork_join.Settings(num_ops=1500, branches=256, length=1, ccr=0.3), 109
    ),
    "dag-fat": GeneratedGraph("fat 0.9, jump 8", random_dag.Settings(num_ops=400, fat=0.9, jump=8), 110),
    "dag-uneven": GeneratedGraph(
        "spreads 2", random_dag.Settings(num_ops=1000, size_spread=2.0, intensity_spread=2.0), 111
    ),
    "dag-dense": GeneratedGraph("degree 6", random_dag.Settings(num_ops=250, method="ordered", degree=6.0), 112),
}
"""Random graphs by name, of a held-out family or with a setting that `sample_graph` never draws."""


def generated_graph(settings: Any, seed: int) -> OpGraph:
    """The random graph of a generator's settings."""
    return _MAKERS[type(settings)](settings, np.random.default_rng(seed))


@dataclass(frozen=True)
class CaseSet:
    """Cases, with those of their graphs that the zoo does not have."""

    cases: Mapping[str, HeldOutCase]
    generated: Mapping[str, GeneratedGraph]
    drawn: Collection[str] = ()
    """Families that training draws with settings like those of the cases."""

    @classmethod
    def of(
        cls, cases: Iterable[HeldOutCase], generated: Mapping[str, GeneratedGraph], drawn: Collection[str] = ()
    ) -> Self:
        """The set of these cases by name."""
        return cls({case.name: case for case in cases}, generated, drawn)

    def graph(self, name: str) -> OpGraph:
        """The graph of this name, a generated one or one of the zoo, such as `nmt_4:training`."""
        if name not in self.generated:
            return read_structure(name)
        return generated_graph(self.generated[name].settings, self.generated[name].seed)

    def family(self, name: str) -> str:
        """The family of a graph."""
        if name in self.generated:
            return self.generated[name].family
        return next(row.family for row in manifest() if row.key == name)


DEVELOPMENT = CaseSet.of(CASES, GENERATED_GRAPHS, drawn={"wavefront"})


@cache
def training_types() -> frozenset[str]:
    """Op types of all training families, including networks that are too large for training."""
    networks = [
        structure_types(row.key)
        for row in manifest()
        if FAMILIES[row.family].split == "train" and row.family not in GENERATED and has_structure(row.key)
    ]
    drawn = [sample_graph(np.random.default_rng(0), _TYPES_OPS, [family]).op_types for family in SAMPLED_FAMILIES]
    return frozenset().union(*networks, *drawn)
