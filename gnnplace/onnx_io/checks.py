"""Rules that a model file must keep, checked before onnx-ir reads it: nodes, attributes, values, tensors, weight files."""

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
from gnnplace.onnx_io.external_data import bodies_of, external_tensors
from gnnplace.onnx_io.model import op_schema

__all__ = ["check_nodes", "check_tensors", "settle_external_data"]

_MOST_DIGITS = 18
_TYPES = {dtype.value for dtype in ir.DataType} - {ir.DataType.UNDEFINED.value}
_COMPLEX = (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_NEWEST_OPSET = 2**31 - 1
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""Attributes checked even if the operator set is unknown."""


def check_nodes(proto: onnx.ModelProto, where: str) -> None:
    """Checks that every value is written exactly once, and that attributes match the operators.

    Raises:
        UnsupportedModel: a rule is broken; the message begins with `where` and names the node.
    """
    _check_texts(proto, where)
    opsets = _opsets(proto.opset_import, where)
    _check_graph(proto.graph, (), opsets, where)
    for function in proto.functions:
        _check_graph(function, (), {**opsets, **_opsets(function.opset_import, where)}, where)


def _check_texts(proto: onnx.ModelProto, where: str) -> None:
    """Refuses text that is not UTF-8, which protobuf returns as bytes."""
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
    """Checks one graph; `outer` has a set of names per enclosing graph, since many bodies may share a large one."""
    if isinstance(graph, onnx.FunctionProto):
        results, defined = list(graph.output), set(graph.input)
    else:
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise UnsupportedModel(f"{where}: initialiser {name!r} is sparse, which is not supported; make it dense")
        results = [value.name for value in graph.output]
        defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
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
        for body in bodies_of(node):
            _check_graph(body, visible, opsets, where)
    for name in results:
        if not any(name in names for names in visible):
            raise UnsupportedModel(f"{where}: output {name!r} is written by no node")


def _check_attributes(node: onnx.NodeProto, opsets: Mapping[str, int], where: str) -> None:
    """Checks the numbers of inputs and outputs and the attributes of a node against its operator's schema."""
    schema = op_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    if schema is None:
        bodies = _BODIES.get(node.op_type, ()) if node.domain == "" else ()
        held = {attribute.name for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH}
        if not held.issuperset(bodies):
            raise UnsupportedModel(f"{where}: {_described(node)} lacks one of its graphs, {', '.join(bodies)}")
        return
    for what, found, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= found <= most:
            raise UnsupportedModel(f"{where}: {_described(node)} has {found} {what}; expected {least} to {most}")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in attributes:
            if declared.required:
                raise UnsupportedModel(f"{where}: {_described(node)} lacks its attribute {name!r}")
            continue
        found = onnx.AttributeProto.AttributeType.Name(attributes[name].type)
        expected = str(declared.type).rpartition(".")[2]
        if found != expected:
            raise UnsupportedModel(
                f"{where}: attribute {name!r} of {_described(node)} is of type {found}; expected {expected}"
            )


def _described(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a node of type {node.op_type}"


def check_tensors(proto: onnx.ModelProto, where: str) -> None:
    """Checks type, shape and amount of data of every tensor in the model.

    Raises:
        UnsupportedModel: a tensor has an unknown type, too little or too much data, or a broken reference to a file.
    """
    for tensor in _tensors(proto):
        problem = _problem(tensor)
        if problem is not None:
            raise UnsupportedModel(f"{where}: tensor {shown(tensor.name)} {problem}; export or copy the model again")


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initialisers and attributes of all graphs and functions."""
    yield from proto.graph.initializer
    stack = [proto.graph.node, *(function.node for function in proto.functions)]
    while stack:
        for node in stack.pop():
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR or attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
            for body in bodies_of(node):
                yield from body.initializer
                stack.append(body.node)


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
