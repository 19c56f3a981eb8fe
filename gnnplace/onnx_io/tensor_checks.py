"""What the tensors of a model file must keep to: as many elements as they say, of a type that there is."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from gnnplace.errors import UnsupportedModel, shown

__all__ = ["check_tensors"]

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
