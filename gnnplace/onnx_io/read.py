"""Any ONNX model file as an `OnnxModel`: checked, normalised, with costs for every op."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.conversion import convert
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.normalise.normalise import normalise
from gnnplace.onnx_io.shapes.dimensions import choose_dimensions
from gnnplace.onnx_io.shapes.inference import infer_shapes
from gnnplace.onnx_io.shapes.node_types import annotate_types

__all__ = ["read_onnx"]

_FIRST_IR_WITH_OPSETS = 3


def read_onnx(path: str | Path, dims: Mapping[str, int] | None = None) -> OnnxModel:
    """The model in a file, normalised, and its op graph with costs at the given dimensions.

    The model keeps its symbolic dimensions, and its weights stay where they are: external data is checked to be there,
    and not loaded. Costs are for `dims`, and 1 for every dimension that is left out. The model's inputs are taken to be
    on every device when a step starts, free of cost.

    Args:
        path: An ONNX file.
        dims: Numbers for symbolic dimensions of the inputs; an axis without a name is called `INPUT.AXIS`.

    Returns:
        The model; `warnings` says what was assumed.

    Raises:
        UnsupportedModel: the file is no ONNX model, is damaged or incomplete, or has no such dimension.
    """
    path = Path(path)
    proto = _parse(path)
    _check_names(proto.graph, frozenset(), str(path))
    for function in proto.functions:
        _check_names(function, frozenset(), str(path))
    try:
        model = ir.serde.deserialize_model(proto)
    except (ir.serde.SerdeError, ValueError, TypeError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise UnsupportedModel(f"{path}: breaks the rules of ONNX ({reason})") from None
    _settle_external_data(model, path)
    normalise(model, str(path))
    annotate_types(model)
    dimensions = choose_dimensions(model.graph.inputs, dims or {}, str(path))
    shapes = infer_shapes(model, dimensions)
    graph, assumptions = convert(path.stem, model.graph, model.opset_imports.get("", 1), shapes.tensors)
    return OnnxModel(
        path=path,
        sha256=_sha256(path),
        model=model,
        graph=graph,
        dims=dimensions.values,
        warnings=(*dimensions.warnings, *shapes.warnings, *assumptions),
    )


def _parse(path: Path) -> onnx.ModelProto:
    """The protobuf message in a file that looks like a whole model."""
    if path.is_dir():
        raise UnsupportedModel(f"{path}: is a directory; name the .onnx file in it")
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except OSError as problem:
        raise UnsupportedModel(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    except DecodeError:
        raise UnsupportedModel(f"{path}: is no ONNX model, or is cut off or damaged; export or copy it again") from None
    if path.stat().st_size == 0:
        raise UnsupportedModel(f"{path}: is empty; export or copy it again")
    if not proto.HasField("graph") or not proto.ir_version:
        raise UnsupportedModel(f"{path}: holds no graph; expected an ONNX model")
    if proto.ir_version >= _FIRST_IR_WITH_OPSETS and not proto.opset_import:
        raise UnsupportedModel(f"{path}: states no operator set; the file may be cut off, export or copy it again")
    return proto


def _check_names(graph: onnx.GraphProto | onnx.FunctionProto, outer: frozenset[str], where: str) -> None:
    """Checks that everything that is read is written, once, in this graph or around it.

    Raises:
        UnsupportedModel: it is not; the message names the value and the node.
    """
    is_function = isinstance(graph, onnx.FunctionProto)
    defined = set(graph.input) if is_function else {value.name for value in graph.input}
    if not is_function:
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise UnsupportedModel(f"{where}: initialiser {name!r} is sparse, which is not supported; make it dense")
        defined |= {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        for name in filter(None, node.output):
            if name in defined:
                raise UnsupportedModel(f"{where}: value {name!r} is written twice, once by {_described(node)}")
            defined.add(name)
    visible = outer | defined
    for node in graph.node:
        for name in filter(None, node.input):
            if name not in visible:
                raise UnsupportedModel(f"{where}: {_described(node)} reads {name!r}, which nothing writes")
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _check_names(body, visible, where)
    for name in graph.output if is_function else (value.name for value in graph.output):
        if name not in visible:
            raise UnsupportedModel(f"{where}: output {name!r} is written by no node")


def _described(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node of type {node.op_type}"


def _settle_external_data(model: ir.Model, path: Path) -> None:
    """Lets external tensors find their files from anywhere, and checks that those are there and whole.

    Raises:
        UnsupportedModel: a file is missing, too short, or not below the model's folder.
    """
    folder = Path(os.path.abspath(path)).parent
    ends: dict[str, int] = {}
    for tensor in _external_tensors(model):
        tensor.base_dir = str(folder)
        location = str(tensor.location)
        ends[location] = max(ends.get(location, 0), (tensor.offset or 0) + (tensor.length or tensor.nbytes))
    for location, end in ends.items():
        file = folder / location
        what = f"{path}: external data file {location!r}"
        if not file.resolve().is_relative_to(folder.resolve()) or ".." in Path(location).parts:
            raise UnsupportedModel(f"{what} is outside of the model's folder; put it beside the model")
        if not file.is_file():
            raise UnsupportedModel(f"{what} is missing; put it beside the model")
        if file.stat().st_size < end:
            raise UnsupportedModel(f"{what} is cut off; expected at least {end} bytes")


def _external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    graphs = [*model.graphs()]
    nodes = [*model.graph.all_nodes()]
    for function in model.functions.values():
        graphs.extend(function.subgraphs())
        nodes.extend(function.all_nodes())
    for graph in graphs:
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
    for node in nodes:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                yield attribute.value


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
