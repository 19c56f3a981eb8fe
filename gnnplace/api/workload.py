"""A model of any kind - ONNX file, op-graph file, zoo name, object - as an op graph with its origin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnplace.api.options import Dims, shapes_of
from gnnplace.arrays import IntArray
from gnnplace.errors import UnsupportedModel
from gnnplace.graph.json_format import read_graph
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import at_dims, read_onnx, with_inferred_types
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.running.part_session import infer_types

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
    others: tuple[Workload, ...] = ()
    """The same ops at other sizes of the inputs, which count as well."""

    def segments(self, assignment: IntArray, order: IntArray) -> tuple[Segment, ...]:
        """In which a placement `[N]` runs, when ops run in this order `[N]`."""
        constant = None if self.onnx is None else self.onnx.constant_ops
        return segments(self.graph, assignment, order, constant)

    @property
    def name(self) -> str:
        """Of the graph."""
        return self.graph.name


def load_workload(
    model: ModelSource, dims: Dims | None = None, *, custom_ops: Sequence[str | Path] = (), to_run: bool = False
) -> Workload:
    """The workload that `model` names: an `.onnx` file, an op-graph `.json`, `zoo:NAME`, or an object that was read.

    Args:
        model: see above.
        dims: sizes of symbolic dimensions; several of one make several shapes.
        custom_ops: shared libraries with operators that ONNX Runtime does not have.
        to_run: build the ONNX model of a zoo name, which takes a while; else its op graph, which ships, is enough.

    Raises:
        UnsupportedModel: the file is missing or is no model, or has no such dimensions.
        InvalidGraph: the op-graph file breaks a rule.
    """
    if isinstance(model, OpGraph):
        return Workload(model)
    if isinstance(model, OnnxModel):
        shapes = shapes_of(dims or {})
        typed = with_inferred_types(model, infer_types, model.dims)
        return _at_shapes(at_dims(typed, shapes[0]) if dims else typed, shapes)
    if str(model).startswith(_ZOO):
        return _zoo_workload(str(model).removeprefix(_ZOO), dims, to_run)
    path = Path(model)
    if path.suffix == ".json" or path.name.endswith(".json.gz"):
        if dims:
            raise UnsupportedModel(f"{path}: an op graph has no symbolic dimensions; leave --dim out")
        graph = read_graph(path)
        return Workload(graph, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    shapes = shapes_of(dims or {})
    return _at_shapes(read_onnx(path, shapes[0], custom_ops, infer_types), shapes)


def _at_shapes(first: OnnxModel, shapes: Sequence[Mapping[str, int]]) -> Workload:
    """A model that was read at the first of some shapes, at all of them."""
    models = (first, *(at_dims(first, dims) for dims in shapes[1:]))
    workloads = [Workload(model.graph, model, model.sha256, model.warnings) for model in models]
    return replace(workloads[0], others=tuple(workloads[1:]))


def _zoo_workload(text: str, dims: Dims | None, to_run: bool) -> Workload:
    """The op graph that ships under a zoo name; the built model where there is none, or where it is to run."""
    from models_zoo.networks.zoo_name import parse_zoo_name

    name = parse_zoo_name(text)
    graph = None if to_run else name.structure()
    if graph is None:
        return load_workload(name.onnx_file(), dims)
    if dims:
        raise UnsupportedModel(f"{_ZOO}{text}: has no symbolic dimensions; leave --dim out, or change a setting")
    return Workload(graph)
