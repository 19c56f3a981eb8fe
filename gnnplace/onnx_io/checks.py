"""What the tensors of a model file must keep to: as many elements as they say, of a type that there is."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gnnplace.errors import UnsupportedModel, shown
from gnnplace.files import file_inside
from gnnplace.onnx_io.external_data import external_tensors

__all__ = ["check_nodes", "check_tensors", "settle_external_data"]


_MOST_DIGITS = 18
_TYPES = {dtype.value for dtype in ir.DataType} - {ir.DataType.UNDEFINED.value}
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
"""Each entry is an element, but for elements of less than a byte, of which it holds a byte full."""


def check_tensors(proto: onnx.ModelProto, where: str) -> None:
    """Checks every tensor that the model holds.

    Raises:
        UnsupportedModel: one is of no type, has less or more data than its shape says, or says nonsense of a file outside.
    """
    for tensor in _tensors(proto):
        problem = _problem(tensor)
        if problem is not None:
            raise UnsupportedModel(f"{where}: tensor {shown(tensor.name)} {problem}; export or copy the model again")


def _problem(tensor: onnx.TensorProto) -> str | None:
    if tensor.data_type not in _TYPES:
        return f"is of the unknown type {tensor.data_type}"
    dtype = ir.DataType(tensor.data_type)
    if any(size < 0 for size in tensor.dims):
        return f"has the shape {shown(list(tensor.dims))}"
    size = math.prod(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external_problem(tensor, dtype, size)
    if dtype == ir.DataType.STRING:
        found, expected = len(tensor.string_data), size
    elif tensor.HasField("raw_data"):
        found, expected = len(tensor.raw_data), math.ceil(size * dtype.itemsize)
    else:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        if any(len(getattr(tensor, other)) for other in _FIELDS if other != field):
            return f"keeps {dtype.name} elsewhere than in {field}"
        found = len(getattr(tensor, field))
        expected = size * 2 if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128) else size
        if dtype.itemsize < 1:
            expected = math.ceil(size * dtype.itemsize)
    return None if found == expected else f"has {found} entries of data; its shape and type ask for {expected}"


def _external_problem(tensor: onnx.TensorProto, dtype: ir.DataType, size: int) -> str | None:
    if dtype == ir.DataType.STRING:
        return "holds texts outside of the model, which ONNX does not allow"
    said = {entry.key: entry.value for entry in tensor.external_data}
    if not said.get("location"):
        return "lies outside of the model, and no file is named"
    for key in ("offset", "length"):
        text = said.get(key, "0")
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            return f"has the {key} {shown(text)} in its file"
    expected = math.ceil(size * dtype.itemsize)
    if "length" in said and int(said["length"]) != expected:
        return f"has {said['length']} bytes in its file; its shape and type ask for {expected}"
    return None


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from proto.graph.initializer
    stack = [proto.graph.node, *(function.node for function in proto.functions)]
    while stack:
        for node in stack.pop():
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR or attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                    yield from body.initializer
                    stack.append(body.node)


_NEWEST_OPSET = 2**31 - 1
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""What is looked into also where the operator set is unknown."""


def check_nodes(proto: onnx.ModelProto, where: str) -> None:
    """Checks that everything that is read is written, once, and that attributes are what their operators ask for.

    Raises:
        UnsupportedModel: it is not so; the message begins with `where` and names the node.
    """
    _check_texts(proto, where)
    opsets = _opsets(proto.opset_import, where)
    _check_graph(proto.graph, (), opsets, where)
    for function in proto.functions:
        own = _opsets(function.opset_import, where)
        _check_graph(function, (), {**opsets, **own}, where)


def _check_texts(proto: onnx.ModelProto, where: str) -> None:
    """Protobuf hands out names that are no UTF-8 as bytes, which nothing else expects."""
    open_messages: list[Any] = [proto]
    while open_messages:
        for field, value in open_messages.pop().ListFields():
            if field.type == field.TYPE_STRING:
                texts = (value,) if isinstance(value, str | bytes) else value
                broken = next((text for text in texts if not isinstance(text, str)), None)
                if broken is not None:
                    raise UnsupportedModel(
                        f"{where}: {field.name} {shown(broken)} is no text in UTF-8; export the model again"
                    )
            elif field.type == field.TYPE_MESSAGE:
                open_messages.extend((value,) if hasattr(value, "ListFields") else value)


def _opsets(stated: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    for entry in stated:
        if not 0 <= entry.version <= _NEWEST_OPSET:
            raise UnsupportedModel(f"{where}: operator set {shown(entry.domain)} has the version {entry.version}")
    return {entry.domain: entry.version for entry in stated}


def _check_graph(
    graph: onnx.GraphProto | onnx.FunctionProto, outer: tuple[set[str], ...], opsets: Mapping[str, int], where: str
) -> None:
    """`outer` are the names of the graphs around it, outermost last; not one set, as many bodies may share a large graph."""
    results, defined = _borders(graph, where)
    for node in graph.node:
        _check_attributes(node, opsets, where)
        for name in filter(None, node.output):
            if name in defined:
                raise UnsupportedModel(f"{where}: value {name!r} is written twice, once by {_described(node)}")
            defined.add(name)
    visible = (defined, *outer)
    for node in graph.node:
        for name in filter(None, node.input):
            if not any(name in names for names in visible):
                raise UnsupportedModel(f"{where}: {_described(node)} reads {name!r}, which nothing writes")
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _check_graph(body, visible, opsets, where)
    for name in results:
        if not any(name in names for names in visible):
            raise UnsupportedModel(f"{where}: output {name!r} is written by no node")


def _borders(graph: onnx.GraphProto | onnx.FunctionProto, where: str) -> tuple[list[str], set[str]]:
    """The names of the results, and the names that are there before the first node."""
    if isinstance(graph, onnx.FunctionProto):
        return list(graph.output), set(graph.input)
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise UnsupportedModel(f"{where}: initialiser {name!r} is sparse, which is not supported; make it dense")
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.output], defined


def _check_attributes(node: onnx.NodeProto, opsets: Mapping[str, int], where: str) -> None:
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        bodies = _BODIES.get(node.op_type, ()) if node.domain == "" else ()
        held = {attribute.name for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH}
        if not held.issuperset(bodies):
            raise UnsupportedModel(
                f"{where}: {_described(node)} lacks one of its graphs, {', '.join(bodies)}"
            ) from None
        return
    for what, found, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= found <= most:
            raise UnsupportedModel(f"{where}: {_described(node)} has {found} {what}; expected {least} to {most}")
    given = {attribute.name: attribute for attribute in node.attribute}
    for name, stated in schema.attributes.items():
        if name not in given:
            if stated.required:
                raise UnsupportedModel(f"{where}: {_described(node)} lacks its attribute {name!r}")
            continue
        found = onnx.AttributeProto.AttributeType.Name(given[name].type)
        expected = str(stated.type).rpartition(".")[2]
        if found != expected:
            raise UnsupportedModel(
                f"{where}: attribute {name!r} of {_described(node)} is of type {found}; expected {expected}"
            )


def _described(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node of type {node.op_type}"


def settle_external_data(model: ir.Model, path: Path) -> None:
    """Lets external tensors find their files from anywhere, and checks that those are there and whole.

    Raises:
        UnsupportedModel: a file is missing, too short, or not below the model's folder.
    """
    folder = Path(os.path.abspath(path)).parent
    ends: dict[str, int] = {}
    for tensor in external_tensors(model):
        tensor.base_dir = str(folder)
        location = str(tensor.location)
        ends[location] = max(ends.get(location, 0), (tensor.offset or 0) + (tensor.length or tensor.nbytes))
    for location, end in ends.items():
        file = file_inside(folder, location)
        what = f"{path}: external data file {shown(location)}"
        if file is None:
            raise UnsupportedModel(f"{what} is outside of the model's folder; put it beside the model")
        if not file.is_file():
            raise UnsupportedModel(f"{what} is missing; put it beside the model")
        if file.stat().st_size < end:
            raise UnsupportedModel(f"{what} is cut off; expected at least {end} bytes")
