"""Rules that a model file must keep, checked before onnx-ir reads it: nodes, attributes, values, tensors, weight files."""

import math
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gnnplace.errors import UnsupportedModel, shown
from gnnplace.files import file_inside
from gnnplace.onnx_io.external_data import TYPED_FIELDS, bodies_of, external_tensors, nodes_of
from gnnplace.onnx_io.model import op_schema

_MOST_DIGITS = 18
_TYPES = {dtype.value for dtype in ir.DataType} - {ir.DataType.UNDEFINED.value}
_COMPLEX = (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
_NEWEST_OPSET = 2**31 - 1
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""Attributes checked even if the operator set is unknown."""


def check_model(proto: onnx.ModelProto, where: str) -> None:
    """Checks texts, operator sets, nodes and tensors.

    Every value is written exactly once, attributes match the operators, and a tensor has a known type and all its data.

    Raises:
        UnsupportedModel: a rule is broken; the message begins with `where` and names the node or tensor.
    """
    problem = next(_problems(proto), None)
    if problem is not None:
        raise UnsupportedModel(f"{where}: {problem}")


def _problems(proto: onnx.ModelProto) -> Iterator[str]:
    yield from _text_problems(proto)
    for entry in chain(proto.opset_import, *(function.opset_import for function in proto.functions)):
        if not 0 <= entry.version <= _NEWEST_OPSET:
            yield f"operator set {shown(entry.domain)} has the version {entry.version}"
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    yield from _graph_problems(proto.graph, (), opsets)
    for function in proto.functions:
        own = {entry.domain: entry.version for entry in function.opset_import}
        yield from _graph_problems(function, (), opsets | own)
    for tensor in _tensors(proto):
        if (problem := _tensor_problem(tensor)) is not None:
            yield f"tensor {shown(tensor.name)} {problem}; export or copy the model again"


def _text_problems(proto: onnx.ModelProto) -> Iterator[str]:
    """Text that is not UTF-8, which protobuf returns as bytes."""
    open_messages: list[Any] = [proto]
    while open_messages:
        for field, value in open_messages.pop().ListFields():
            if field.type == field.TYPE_STRING:
                for text in (value,) if isinstance(value, str | bytes) else value:
                    if not isinstance(text, str):
                        yield f"{field.name} {shown(text)} is no text in UTF-8; export the model again"
            elif field.type == field.TYPE_MESSAGE:
                open_messages.extend((value,) if hasattr(value, "ListFields") else value)


def _graph_problems(
    graph: onnx.GraphProto | onnx.FunctionProto, outer: tuple[set[str], ...], opsets: Mapping[str, int]
) -> Iterator[str]:
    """Problems of one graph; `outer` has a set of names per enclosing graph, since many bodies may share a large one."""
    if isinstance(graph, onnx.FunctionProto):
        results, defined = list(graph.output), set(graph.input)
    else:
        for sparse in graph.sparse_initializer:
            yield f"initialiser {sparse.values.name!r} is sparse, which is not supported; make it dense"
        results = [value.name for value in graph.output]
        defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        yield from _attribute_problems(node, opsets)
        for name in filter(None, node.output):
            if name in defined:
                yield f"value {name!r} is written twice, once by {_described(node)}"
            defined.add(name)
    visible = (defined, *outer)
    for node in graph.node:
        for name in filter(None, node.input):
            if not any(name in names for names in visible):
                yield f"{_described(node)} reads {name!r}, which nothing writes"
        for body in bodies_of(node):
            yield from _graph_problems(body, visible, opsets)
    for name in results:
        if not any(name in names for names in visible):
            yield f"output {name!r} is written by no node"
        elif name not in defined:
            yield f"output {name!r} of a body is a value of an outer graph, which ONNX does not allow; put an Identity between them"


def _attribute_problems(node: onnx.NodeProto, opsets: Mapping[str, int]) -> Iterator[str]:
    """Numbers of inputs and outputs and attributes that do not match the operator's schema."""
    schema = op_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    if schema is None:
        bodies = _BODIES.get(node.op_type, ()) if node.domain == "" else ()
        held = {attribute.name for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH}
        if not held.issuperset(bodies):
            yield f"{_described(node)} lacks one of its graphs, {', '.join(bodies)}"
        return
    for what, found, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= found <= most:
            yield f"{_described(node)} has {found} {what}; expected {least} to {most}"
    kinds = {entry.name: onnx.AttributeProto.AttributeType.Name(entry.type) for entry in node.attribute}
    for name, declared in schema.attributes.items():
        if name in kinds and kinds[name] != (expected := str(declared.type).rpartition(".")[2]):
            yield f"attribute {name!r} of {_described(node)} is of type {kinds[name]}; expected {expected}"
        elif declared.required and name not in kinds:
            yield f"{_described(node)} lacks its attribute {name!r}"


def _described(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node of type {node.op_type}"


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initialisers and attributes of all graphs and functions."""
    yield from proto.graph.initializer
    for node in nodes_of(proto):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR or attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for body in bodies_of(node):
            yield from body.initializer


def _tensor_problem(tensor: onnx.TensorProto) -> str | None:
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
        if any(len(getattr(tensor, other)) for other in TYPED_FIELDS if other != field):
            return f"keeps {dtype.name} elsewhere than in {field}"
        found = len(getattr(tensor, field))
        # An entry holds an element, half a complex number, or a byte of packed elements.
        expected = math.ceil(size * min(dtype.itemsize, 1)) * (2 if dtype in _COMPLEX else 1)
    return None if found == expected else f"has {found} entries of data; its shape and type ask for {expected}"


def _external_problem(tensor: onnx.TensorProto, dtype: ir.DataType, size: int) -> str | None:
    if dtype == ir.DataType.STRING:
        return "holds texts outside of the model, which ONNX does not allow"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if not entries.get("location"):
        return "lies outside of the model, and no file is named"
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            return f"has the {key} {shown(text)} in its file"
    expected = math.ceil(size * dtype.itemsize)
    if "length" in entries and int(entries["length"]) != expected:
        return f"has {entries['length']} bytes in its file; its shape and type ask for {expected}"
    return None


def settle_external_data(model: ir.Model, path: Path) -> None:
    """Makes external tensors independent of the working directory, and checks that their files are complete.

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
