"""Sealed cases: nobody looks at their results before the last run of a bench.

They were fixed before the policies that they judge were trained. Families and device sets occur neither in training nor in the
cases of development (`cases.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gnnplace.bench.generalization.cases import HeldOutCase, cases_of, family_of_graph, generated_graph
from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated import factorization, stencil
from models_zoo.networks.shipped import read_structure

_CASES: Mapping[int, Sequence[tuple[Any, ...]]] = {
    50: (
        ("densenet_121", "boards-8"), ("wavenet", "laptop-3", 0.4), ("conformer", "slices-8"), ("fft_32", "cores-32"),
        ("relational", "gangs-8"), ("montage_40", "mesh-16", 0.4), ("mmdit", "kinds-9", 0.0, 0.9),
    ),
    100: (
        ("hrnet_18", "racks-8x4", 0.4), ("evoformer", "pods-2x8", 0.0, 1.1), ("relational", "kinds-9", 0.9),
        ("lu_10", "boards-8"), ("densenet_201", "gangs-16"), ("elimination_24", "laptop-3"),
        ("epigenomics_24", "slices-8", 0.4), ("stencil_16x20", "mesh-16"),
    ),
    200: (
        ("hrnet_32", "laptop-3", 0.4), ("conformer", "pods-2x8", 0.0, 0.8), ("evoformer", "gangs-8"),
        ("mmdit", "mesh-16", 0.4), ("wavenet", "racks-8x4"), ("densenet_121", "boards-8", 0.4, 1.3),
        ("cholesky_12", "cores-32"), ("montage_40", "kinds-9"), ("fft_32", "pods-2x8"),
        ("elimination_24", "gangs-16", 0.4),
    ),
    500: (
        ("hrnet_18", "kinds-9", 0.0, 0.9), ("evoformer", "mesh-16", 0.4), ("conformer", "boards-8", 0.9),
        ("mmdit", "racks-8x4", 0.0, 1.5), ("densenet_201", "pods-2x8", 0.4), ("lu_10", "gangs-8"),
        ("epigenomics_24", "racks-8x4", 0.4), ("stencil_16x20", "slices-8"), ("hrnet_32", "gangs-16"),
        ("cholesky_12", "laptop-3", 0.4),
    ),
    1500: (
        ("qr_16", "mesh-16"), ("elimination_48", "cores-32", 0.4), ("fft_128", "kinds-9"),
        ("mmdit", "pods-2x8", 0.0, 0.8),
    ),
    5000: (("stencil_40x50", "racks-8x4"), ("cholesky-30", "pods-2x8"), ("stencil-50x100", "kinds-9", 0.4)),
}  # fmt: skip
"""Graph, device set, spread of types and share of memory of each case, by number of groups."""
SEALED_CASES: Sequence[HeldOutCase] = cases_of(_CASES)


class SealedGraph(NamedTuple):
    """A generated graph that the zoo does not have."""

    family: str
    settings: Any
    seed: int


SEALED_GRAPHS: Mapping[str, SealedGraph] = {
    "cholesky-30": SealedGraph("factorization", factorization.Settings(tiles=30, ccr=0.7), 301),
    "stencil-50x100": SealedGraph("stencil", stencil.Settings(blocks=50, steps=100, reach=2, ccr=1.5), 302),
}


def sealed_graph(name: str) -> OpGraph:
    """The graph of this name, one of `SEALED_GRAPHS` or of the zoo."""
    if name not in SEALED_GRAPHS:
        return read_structure(name)
    return generated_graph(SEALED_GRAPHS[name].settings, SEALED_GRAPHS[name].seed)


def family_of_sealed(name: str) -> str:
    """The family of a sealed graph."""
    return SEALED_GRAPHS[name].family if name in SEALED_GRAPHS else family_of_graph(name)
