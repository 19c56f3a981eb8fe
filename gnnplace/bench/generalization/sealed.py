"""Sealed cases: nobody looks at their results before the last run of a bench.

Families and device sets occur neither in training nor in the cases of development (`cases.py`). This is the second draw: it pairs
the device sets with other graphs than the first one, which commit e183549 has, and was fixed before anything ran on it. It has run once.
Since then development has looked at workflows of its own, so the next draw needs another family in their place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gnnplace.bench.generalization.cases import CaseSet, GeneratedGraph, HeldOutCase, cases_of
from models_zoo.networks.generated import butterfly, elimination, factorization, stencil, workflow

_CASES: Mapping[int, Sequence[tuple[Any, ...]]] = {
    50: (
        ("densenet_201", "slices-8"), ("wavenet", "boards-8"), ("conformer", "kinds-9", 0.4), ("hrnet_18", "cores-32", 0.4),
        ("relational", "pods-2x8"), ("epigenomics-60", "laptop-3"), ("mmdit", "gangs-16"),
    ),
    100: (
        ("hrnet_32", "pods-2x8", 0.4), ("evoformer", "racks-8x4", 0.0, 1.1), ("relational", "mesh-16", 0.4),
        ("qr-10", "kinds-9"), ("densenet_121", "cores-32"), ("elimination-36", "boards-8"),
        ("montage-100", "gangs-8", 0.4), ("stencil-24x40", "laptop-3"),
    ),
    200: (
        ("hrnet_18", "mesh-16"), ("conformer", "racks-8x4", 0.0, 0.8), ("evoformer", "kinds-9", 0.4),
        ("mmdit", "slices-8", 0.4), ("wavenet", "gangs-16"), ("densenet_201", "pods-2x8", 0.4, 1.3),
        ("lu-14", "laptop-3"), ("epigenomics-60", "mesh-16"), ("fft-64", "racks-8x4"),
        ("cholesky-20", "gangs-8", 0.4),
    ),
    500: (
        ("hrnet_32", "boards-8", 0.0, 0.9), ("evoformer", "laptop-3", 0.4), ("conformer", "mesh-16", 0.9),
        ("mmdit", "kinds-9", 0.0, 1.5), ("densenet_201", "gangs-8", 0.4), ("lu-14", "slices-8", 0.9),
        ("montage-100", "pods-2x8"), ("stencil-24x40", "kinds-9", 0.4), ("elimination-36", "racks-8x4"),
        ("epigenomics-60", "cores-32", 0.4),
    ),
    1500: (
        ("cholesky-20", "mesh-16", 0.4), ("fft-256", "boards-8"), ("elimination-56", "gangs-16"),
        ("mmdit", "racks-8x4", 0.0, 0.9),
    ),
    5000: (("elimination-100", "pods-2x8"), ("stencil-64x80", "mesh-16", 0.4), ("qr-24", "laptop-3")),
}  # fmt: skip
"""Graph, device set, spread of types and share of memory of each case, by number of groups."""
SEALED_CASES: Sequence[HeldOutCase] = cases_of(_CASES)


SEALED_GRAPHS: Mapping[str, GeneratedGraph] = {
    "qr-10": GeneratedGraph("factorization", factorization.Settings(tiles=10, kind="qr", ccr=0.5), 401),
    "elimination-36": GeneratedGraph("elimination", elimination.Settings(size=36), 402),
    "montage-100": GeneratedGraph("workflow", workflow.Settings(width=100), 403),
    "stencil-24x40": GeneratedGraph("stencil", stencil.Settings(blocks=24, steps=40, ccr=0.5), 404),
    "lu-14": GeneratedGraph("factorization", factorization.Settings(tiles=14, kind="lu"), 405),
    "epigenomics-60": GeneratedGraph(
        "workflow", workflow.Settings(kind="epigenomics", width=60, lanes=3, ccr=2.0), 406
    ),
    "fft-64": GeneratedGraph("butterfly", butterfly.Settings(points=64, ccr=0.3), 407),
    "cholesky-20": GeneratedGraph("factorization", factorization.Settings(tiles=20, ccr=1.5), 408),
    "fft-256": GeneratedGraph("butterfly", butterfly.Settings(points=256), 409),
    "elimination-56": GeneratedGraph("elimination", elimination.Settings(size=56, ccr=0.5), 410),
    "elimination-100": GeneratedGraph("elimination", elimination.Settings(size=100, ccr=0.3), 411),
    "stencil-64x80": GeneratedGraph("stencil", stencil.Settings(blocks=64, steps=80, ccr=0.7), 412),
    "qr-24": GeneratedGraph("factorization", factorization.Settings(tiles=24, kind="qr", ccr=0.3), 413),
}
SEALED = CaseSet.of(SEALED_CASES, SEALED_GRAPHS)
