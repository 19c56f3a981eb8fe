"""A model of any kind - ONNX file, op-graph file, zoo name, object - as an op graph with its origin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnplace.arrays import IntArray
from gnnplace.errors import UnsupportedModel
from gnnplace.graph.json_format import read_graph
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import Segment, segments

__all__ = ["ModelSource", "Workload", "load_workload"]

ModelSource = str | Path | OpGraph | OnnxModel
_ZOO = "zoo:"


@dataclass(frozen=True, eq=False)
class Workload:
    """What is to be placed."""

    graph: OpGraph
    onnx: OnnxModel | None = None
    """None for op graphs: they can be placed, not run."""
    sha256: str | None = None
    warnings: tuple[str, ...] = ()

    def segments(self, assignment: IntArray, order: IntArray) -> tuple[Segment, ...]:
        """In which a placement `[N]` runs, when ops run in this order `[N]`."""
        constant = None if self.onnx is None else self.onnx.constant_ops
        return segments(self.graph, assignment, order, constant)

    @property
    def name(self) -> str:
        """Of the graph."""
        return self.graph.name


def load_workload(model: ModelSource, dims: Mapping[str, int] | None = None, *, to_run: bool = False) -> Workload:
    """The workload that `model` names: an `.onnx` file, an op-graph `.json`, `zoo:NAME`, or an object that was read.

    Args:
        model: see above.
        dims: values of symbolic dimensions.
        to_run: build the ONNX model of a zoo name, which takes a while; else its op graph, which ships, is enough.

    Raises:
        UnsupportedModel: the file is missing or is no model.
        InvalidGraph: the op-graph file breaks a rule.
    """
    if isinstance(model, OpGraph):
        return Workload(model)
    if isinstance(model, OnnxModel):
        return Workload(model.graph, model, model.sha256, model.warnings)
    if str(model).startswith(_ZOO):
        return _zoo_workload(str(model).removeprefix(_ZOO), dims, to_run)
    path = Path(model)
    if path.suffix == ".json" or path.name.endswith(".json.gz"):
        if dims:
            raise UnsupportedModel(f"{path}: an op graph has no symbolic dimensions; leave --dim out")
        graph = read_graph(path)
        return Workload(graph, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    read = read_onnx(path, dims)
    return Workload(read.graph, read, read.sha256, read.warnings)


def _zoo_workload(text: str, dims: Mapping[str, int] | None, to_run: bool) -> Workload:
    """The op graph that ships under a zoo name; the built model where there is none, or where it is to run."""
    from models_zoo.networks.zoo_name import parse_zoo_name

    name = parse_zoo_name(text)
    graph = None if to_run else name.structure()
    if graph is None:
        return load_workload(name.onnx_file(), dims)
    if dims:
        raise UnsupportedModel(f"{_ZOO}{text}: has no symbolic dimensions; leave --dim out, or change a setting")
    return Workload(graph)
