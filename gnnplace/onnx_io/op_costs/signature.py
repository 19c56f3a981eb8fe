"""One string for what a node does and on which shapes: equal signatures cost the same, in every model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import onnx_ir as ir

from gnnplace.onnx_io.normalise.captures import subgraphs
from gnnplace.onnx_io.shapes.control_flow import trip_count
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

__all__ = ["signature"]

_DIGEST = 16
"""Hexadecimal digits kept of a hash."""


def signature(node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    """`domain::Type(inputs)->(outputs){attributes}`, independent of names.

    A tensor is written `float32[1,3,224,224]`, a left-out one `-`, tensor attributes and subgraphs as hashes. For
    example `ai.onnx::Relu(float32[1,8])->(float32[1,8]){}`. The trip count of a Loop or Scan, where known, is among the
    attributes.
    """
    inputs = ",".join("-" if value is None else _written(tensors[value]) for value in node.inputs)
    outputs = ",".join(_written(tensors[value]) if value.name else "-" for value in node.outputs)
    attributes = {name: _attribute(node.attributes[name], opset, tensors) for name in node.attributes}
    if next(subgraphs(node), None) is not None and (trips := trip_count(node, opset, tensors)) is not None:
        attributes["trips"] = str(trips)
    listed = ",".join(f"{name}={attributes[name]}" for name in sorted(attributes))
    return f"{node.domain or 'ai.onnx'}::{node.op_type}({inputs})->({outputs}){{{listed}}}"


def _written(tensor: TensorInfo) -> str:
    return f"{tensor.dtype_name}[{','.join(map(str, tensor.shape))}]"


def _attribute(attribute: ir.Attr, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    kind = attribute.type
    if kind == ir.AttributeType.GRAPH:
        return _body(attribute.as_graph(), opset, tensors)
    if kind == ir.AttributeType.GRAPHS:
        return "[" + ",".join(_body(graph, opset, tensors) for graph in attribute.as_graphs()) + "]"
    if kind == ir.AttributeType.TENSOR:
        return _tensor(attribute.as_tensor())
    if kind == ir.AttributeType.TENSORS:
        return "[" + ",".join(_tensor(tensor) for tensor in attribute.as_tensors()) + "]"
    if kind in _PLAIN:
        return json.dumps(attribute.value, separators=(",", ":"), default=repr)
    return repr(attribute.value)


_PLAIN = frozenset({
    ir.AttributeType.FLOAT, ir.AttributeType.FLOATS, ir.AttributeType.INT, ir.AttributeType.INTS,
    ir.AttributeType.STRING, ir.AttributeType.STRINGS,
})  # fmt: skip


def _tensor(tensor: ir.TensorProtocol) -> str:
    digest = hashlib.sha256(f"{tensor.dtype}{tensor.shape}".encode())
    if isinstance(tensor, ir.StringTensor):
        digest.update(b"\0".join(tensor.string_data()))
    elif not isinstance(tensor, ir.ExternalTensor):  # external data is not read; dtype and shape have to do
        digest.update(tensor.tobytes())
    return f"tensor:{digest.hexdigest()[:_DIGEST]}"


def _body(graph: ir.Graph, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    """A hash of the signatures of the nodes, in their order."""
    lines = [signature(node, opset, tensors) for node in graph]
    return f"graph:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:_DIGEST]}"
