"""The graphs that are placed, and on which devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnplace.graph.op_graph import OpGraph

__all__ = ["CASES", "Case", "OnnxCase", "graph_of"]

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 200_000)
_LARGEST_COMPARED = 100_000


@dataclass(frozen=True)
class Case:
    """A graph of about so many ops."""

    family: str
    """`layered`, or the name of a training step in the zoo, which is put side by side so often that it has the size."""
    ops: int
    devices: str = "v100x8"
    seed: int = 0
    evaluations: int = 2000
    annealing: bool = True
    """Compared with annealing in the same time."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.family} {self.ops:,} on {self.devices}"


@dataclass(frozen=True)
class OnnxCase:
    """An ONNX file with about so many nodes that is read."""

    nodes: int

    @property
    def name(self) -> str:
        """For people."""
        return f"onnx {self.nodes:,}"


CASES: tuple[Case, ...] = (
    *(
        Case(family, size, annealing=size <= _LARGEST_COMPARED)
        for size in SIZES
        for family in ("layered", "ptb_cell_00:training")
    ),
    *(Case("inception_v3:training", size, annealing=True) for size in (30_000, 100_000)),
    *(Case("layered", 100_000, devices, annealing=False) for devices in ("v100x2", "v100x16")),
)


def graph_of(case: Case) -> OpGraph:
    """The graph of a case.

    >>> graph_of(Case("layered", 1000)).num_ops
    1000

    Raises:
        UnsupportedModel: the zoo has no such training step.
    """
    from models_zoo.networks.generated.widened import widened
    from models_zoo.networks.zoo_name import parse_zoo_name

    if case.family == "layered":
        # Ops of 50 microseconds, as in the published graph of 100,000.
        name = parse_zoo_name(f"layered_100000:num_ops={case.ops}:seed={case.seed}")
        found = name.structure()
        assert found is not None
        return found
    base = parse_zoo_name(case.family).structure()
    assert base is not None
    return replace(widened(base, max(1, round(case.ops / base.num_ops))), name=f"{base.name}_{case.ops}")
