"""Models from any source (ONNX file, op-graph file, zoo name, object) as op graphs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnplace.api.options import Dims, Inputs, shapes_of
from gnnplace.arrays import BoolArray, IntArray
from gnnplace.errors import InvalidInput, UnsupportedModel, shown
from gnnplace.graph.json_format import read_noted_graph
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.manifest import value_infos
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import at_dims, read_onnx, with_inferred_types
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.shapes.tensor_info import axis_names
from gnnplace.running.feed import checked_feed, read_arrays
from gnnplace.running.part_session import infer_types

ModelSource = str | Path | OpGraph | OnnxModel
_ZOO = "zoo:"


@dataclass(frozen=True, eq=False)
class Workload:
    """A model as an op graph, and as an ONNX model if it can run, at one or several shapes of its inputs."""

    graphs: tuple[OpGraph, ...]
    """The same ops at every shape, with the costs and tensor sizes of that shape."""
    models: tuple[OnnxModel, ...] = ()
    """The ONNX model at every shape; empty for an op graph alone, which can be placed but not run."""
    sha256: str | None = None
    notes: tuple[str, ...] = ()
    """Warnings about the file of an op graph."""

    @classmethod
    def of(cls, *shapes: OpGraph | OnnxModel, sha256: str | None = None, notes: tuple[str, ...] = ()) -> Workload:
        """The workload of a model that was read at one or several shapes."""
        models = tuple(model for model in shapes if isinstance(model, OnnxModel))
        graphs = tuple(model.graph if isinstance(model, OnnxModel) else model for model in shapes)
        return cls(graphs, models, models[0].sha256 if models else sha256, notes)

    @property
    def graph(self) -> OpGraph:
        """The op graph at the first shape."""
        return self.graphs[0]

    @property
    def onnx(self) -> OnnxModel | None:
        """The ONNX model at the first shape."""
        return self.models[0] if self.models else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the reader."""
        return self.models[0].warnings if self.models else self.notes

    def segments(self, assignment: IntArray, order: IntArray, excludes: BoolArray | None = None) -> tuple[Segment, ...]:
        """The segments in which a placement `[N]` runs, when ops run in an order `[N]`; `excludes` is that of the topology."""
        constant = None if self.onnx is None else self.onnx.constant_ops
        return segments(self.graph, assignment, order, constant, excludes)

    @property
    def name(self) -> str:
        """Name of the graph."""
        return self.graph.name

    def check_executable(self) -> None:
        """Raises `UnsupportedModel` for an op graph, which has costs of ops but nothing to execute."""
        if not self.models:
            raise UnsupportedModel(
                f"{self.name!r} is an op graph and cannot be executed; give an ONNX model to measure"
            )


def load_workload(
    model: ModelSource,
    dims: Dims | None = None,
    *,
    custom_ops: Sequence[str | Path] = (),
    inputs: Inputs | None = None,
    to_run: bool = False,
) -> Workload:
    """The workload of an `.onnx` file, an op-graph `.json`, `zoo:NAME`, or an object that was read.

    `dims`, `custom_ops` and `inputs` are those of `PlaceOptions`. With `to_run` or `inputs`, the ONNX model of a zoo name is built,
    which takes a while; without them, the op graph that ships is read.

    Raises:
        UnsupportedModel: the file is missing or is no model, or has no such dimensions or inputs.
        InvalidInput: the model does not take these inputs.
        InvalidGraph: the op-graph file breaks a rule.
    """
    if inputs is not None:
        read_at_1 = load_workload(model, custom_ops=custom_ops, to_run=True)
        if read_at_1.onnx is None:
            raise UnsupportedModel(f"{read_at_1.name!r} is an op graph, which has no inputs; leave inputs out")
        return Workload.of(with_inputs(read_at_1.onnx, inputs))
    first, *others = shapes_of(dims or {})
    if isinstance(model, OpGraph):
        if dims:
            raise UnsupportedModel(f"graph {model.name!r}: an op graph has no symbolic dimensions; leave dims out")
        return Workload.of(model)
    if isinstance(model, OnnxModel):
        typed = with_inferred_types(model, infer_types, model.dims)
        at_first = at_dims(typed, first) if dims else typed
        return Workload.of(at_first, *(at_dims(at_first, shape) for shape in others))
    if not isinstance(model, str | os.PathLike):
        raise UnsupportedModel(
            f"the model is {shown(type(model).__name__)}; expected a path, zoo:NAME, or what read_onnx gives (save a ModelProto first)"
        )
    if str(model).startswith(_ZOO):
        return _zoo_workload(str(model).removeprefix(_ZOO), dims, to_run)
    path = Path(model)
    if path.suffix == ".json" or path.name.endswith(".json.gz"):
        if dims:
            raise UnsupportedModel(f"{path}: an op graph has no symbolic dimensions; leave dims out")
        graph, notes = read_noted_graph(path)
        return Workload.of(graph, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), notes=notes)
    read = read_onnx(path, first, custom_ops, infer_types)
    return Workload.of(read, *(at_dims(read, shape) for shape in others))


def _zoo_workload(text: str, dims: Dims | None, to_run: bool) -> Workload:
    """The op graph that ships under a zoo name; the built model if none ships or with `to_run`."""
    from models_zoo.networks.zoo_name import parse_zoo_name

    name = parse_zoo_name(text)
    graph = None if to_run else name.structure()
    if graph is None:
        return load_workload(name.onnx_file(), dims)
    if dims:
        raise UnsupportedModel(f"{_ZOO}{text}: has no symbolic dimensions; leave dims out, or change a setting")
    return Workload.of(graph)


def with_inputs(model: OnnxModel, inputs: Inputs) -> OnnxModel:
    """The model at the shapes of these inputs, with which it is measured from then on.

    Raises:
        UnsupportedModel: an input is no tensor.
        InvalidInput: the file cannot be read; an input is missing, unknown, or of another type or shape; or one dimension has
            different sizes in them.
    """
    given = read_arrays(Path(inputs)) if isinstance(inputs, str | os.PathLike) else inputs
    needed = [value for value in model.model.graph.inputs if not value.is_initializer()]
    arrays = checked_feed({info.name: info for info in value_infos(model.model, needed)}, given)
    sizes: dict[str, int] = {}
    for value in needed:
        array = arrays[str(value.name)]
        if not isinstance(array, np.ndarray):
            raise UnsupportedModel(
                f"input {value.name!r} of {model.path.name} is no tensor but {value.type}; measuring needs tensors"
            )
        for axis, size in zip(axis_names(value), array.shape, strict=False):
            if isinstance(axis, str) and sizes.setdefault(axis, size) != size:
                raise InvalidInput(
                    f"dimension {axis!r} has size {size} in the input {value.name!r}, but {sizes[axis]} in an earlier one"
                )
    return replace(at_dims(model, sizes), inputs=arrays)
