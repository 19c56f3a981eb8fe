"""Sealed cases: nobody looks at their results before the last run of a bench.

Families and device sets occur neither in training nor in the cases of development (`cases.py`). This is the third draw: other graphs
and other pairs of graph and device set than in the first two, which commits e183549 and 6f40b20 have. Device sets were drawn at random.
It was fixed before anything ran on it. Multipole methods stand in place of workflows, which development has looked at since.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gnnplace.bench.generalization.cases import CaseSet, GeneratedGraph, HeldOutCase, cases_of
from models_zoo.networks.generated import butterfly, elimination, factorization, multipole, stencil

_CASES: Mapping[int, Sequence[tuple[Any, ...]]] = {
    50: (
        ("densenet_201", "boards-8"), ("wavenet", "pods-2x8", 0.4), ("conformer", "gangs-16"),
        ("hrnet_32", "kinds-9", 0.4), ("relational", "boards-8"), ("fmm2d-3", "boards-8"), ("mmdit", "gangs-8"),
    ),
    100: (
        ("hrnet_18", "pods-2x8", 0.4), ("evoformer", "gangs-16", 0.4), ("relational", "racks-8x4", 0.0, 1.1),
        ("lu-9", "gangs-16"), ("densenet_121", "gangs-8"), ("elimination-30", "laptop-3"),
        ("fmm1d-6", "cores-32", 0.4), ("stencil-32x30", "gangs-16"),
    ),
    200: (
        ("hrnet_32", "mesh-16"), ("conformer", "gangs-8"), ("evoformer", "cores-32"), ("mmdit", "laptop-3"),
        ("wavenet", "mesh-16", 0.0, 0.8), ("densenet_121", "kinds-9", 0.4, 1.3), ("fft-128", "kinds-9"),
        ("fmm2d-3", "slices-8"), ("qr-12", "laptop-3"), ("cholesky-11", "racks-8x4", 0.4),
    ),
    500: (
        ("hrnet_18", "boards-8", 0.0, 0.9), ("evoformer", "slices-8", 0.4), ("conformer", "laptop-3", 0.9),
        ("mmdit", "cores-32", 0.4), ("densenet_201", "mesh-16", 0.0, 1.5), ("qr-12", "pods-2x8", 0.9),
        ("fmm2d-4", "gangs-8"), ("stencil-32x30", "gangs-8", 0.4), ("elimination-30", "racks-8x4"),
        ("fmm1d-7", "mesh-16", 0.4),
    ),
    1500: (
        ("lu-20", "racks-8x4", 0.4), ("elimination-64", "slices-8"), ("fmm2d-4", "cores-32"),
        ("mmdit", "boards-8", 0.0, 0.9),
    ),
    5000: (
        ("cholesky-28", "pods-2x8"), ("fmm2d-5", "kinds-9", 0.4), ("fft-512", "slices-8"),
    ),
}  # fmt: skip
"""Graph, device set, spread of types and share of memory of each case, by number of groups."""
SEALED_CASES: Sequence[HeldOutCase] = cases_of(_CASES)


SEALED_GRAPHS: Mapping[str, GeneratedGraph] = {
    "fmm2d-3": GeneratedGraph("multipole", multipole.Settings(levels=3), 601),
    "lu-9": GeneratedGraph("factorization", factorization.Settings(tiles=9, kind="lu", ccr=0.5), 602),
    "elimination-30": GeneratedGraph("elimination", elimination.Settings(size=30, size_spread=1.5), 603),
    "fmm1d-6": GeneratedGraph("multipole", multipole.Settings(dimensions=1, levels=6, ccr=2.0), 604),
    "stencil-32x30": GeneratedGraph("stencil", stencil.Settings(blocks=32, steps=30, reach=2), 605),
    "fft-128": GeneratedGraph("butterfly", butterfly.Settings(points=128, ccr=0.4, intensity_spread=1.5), 606),
    "qr-12": GeneratedGraph(
        "factorization", factorization.Settings(tiles=12, kind="qr", ccr=0.7, heavy_share=0.8), 607
    ),
    "cholesky-11": GeneratedGraph("factorization", factorization.Settings(tiles=11, ccr=2.0), 608),
    "fmm2d-4": GeneratedGraph("multipole", multipole.Settings(levels=4), 609),
    "fmm1d-7": GeneratedGraph("multipole", multipole.Settings(dimensions=1, levels=7, ccr=0.5), 610),
    "lu-20": GeneratedGraph("factorization", factorization.Settings(tiles=20, kind="lu"), 611),
    "elimination-64": GeneratedGraph("elimination", elimination.Settings(size=64, ccr=0.4), 612),
    "cholesky-28": GeneratedGraph("factorization", factorization.Settings(tiles=28, ccr=0.3), 613),
    "fmm2d-5": GeneratedGraph("multipole", multipole.Settings(levels=5, ccr=0.5), 614),
    "fft-512": GeneratedGraph("butterfly", butterfly.Settings(points=512), 615),
}
SEALED = CaseSet.of(SEALED_CASES, SEALED_GRAPHS)
