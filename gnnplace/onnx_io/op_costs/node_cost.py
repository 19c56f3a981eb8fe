"""The cost of one node by all tables and the bodies of If, Loop and Scan; signatures, which are equal for equal costs."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import onnx_ir as ir

from gnnplace.onnx_io.folding import subgraphs
from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.contributed import CONTRIBUTED_BYTES, CONTRIBUTED_FLOPS
from gnnplace.onnx_io.op_costs.elementwise import COPYING, ELEMENTWISE_FLOPS, MOVED_BYTES, VIEWS
from gnnplace.onnx_io.op_costs.estimators import ESTIMATOR_BYTES, ESTIMATOR_FLOPS
from gnnplace.onnx_io.op_costs.matrix import MATRIX_FLOPS
from gnnplace.onnx_io.op_costs.reduction import REDUCTION_FLOPS
from gnnplace.onnx_io.shapes.control_flow import branches_taken, trip_count
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

Kind = ir.AttributeType
_DIGEST = 16
"""Hexadecimal digits of a hash in a signature."""
_PLAIN = frozenset({Kind.FLOAT, Kind.FLOATS, Kind.INT, Kind.INTS, Kind.STRING, Kind.STRINGS})


class NodeCost(NamedTuple):
    """FLOPs of one run of a node, and bytes that it reads and writes."""

    flops: float
    bytes: float


_FLOPS: Mapping[str, Rule] = {  # by op type; by domain and op type outside ONNX's own domain
    **dict.fromkeys(VIEWS | COPYING, lambda call: 0.0),
    **ELEMENTWISE_FLOPS,
    **MATRIX_FLOPS,
    **REDUCTION_FLOPS,
    **CONTRIBUTED_FLOPS,
    **ESTIMATOR_FLOPS,
}
_BYTES: Mapping[str, Rule] = {**MOVED_BYTES, **CONTRIBUTED_BYTES, **ESTIMATOR_BYTES}


def qualified_type(node: ir.Node) -> str:
    """The op type, with the domain in front if it is not ONNX's own: `Relu`, `com.microsoft::FusedMatMul`."""
    return node.op_type if node.domain == "" else f"{node.domain}::{node.op_type}"


def has_known_cost(node: ir.Node) -> bool:
    """Whether the node has a rule for its type, or bodies that determine its cost."""
    return qualified_type(node) in _FLOPS or next(subgraphs(node), None) is not None


def node_cost(node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> NodeCost:
    """The cost of a node; `tensors` includes the tensors of its subgraphs.

    A node with subgraphs costs as much as its most expensive possible body, times the trip count (1 if unknown). A type
    without a rule costs 1 FLOP per output element.
    """
    is_branch = (node.domain, node.op_type) == ("", "If")
    if bodies := branches_taken(node, tensors) if is_branch else list(subgraphs(node)):
        worst = max(_graph_cost(body, opset, tensors) for body in bodies)
        trips = trip_count(node, opset, tensors)
        return worst if trips is None else NodeCost(worst.flops * trips, worst.bytes * trips)
    inputs = tuple(None if value is None else tensors[value] for value in node.inputs)
    outputs = tuple(tensors[value] if value.name else None for value in node.outputs)
    call = Call(node, inputs, outputs, opset)
    rule, moved = (table.get(qualified_type(node)) for table in (_FLOPS, _BYTES))
    return NodeCost(
        rule(call) if rule else float(sum(tensor.size for tensor in outputs if tensor is not None)),
        moved(call) if moved else float(call.input_bytes + call.output_bytes),
    )


def _graph_cost(graph: ir.Graph, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> NodeCost:
    costs = [node_cost(node, opset, tensors) for node in graph]
    return NodeCost(sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs))


def signature(node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    """`domain::Type(inputs)->(outputs){attributes}`, such as `ai.onnx::Relu(float32[1,8])->(float32[1,8]){}`.

    Names do not matter. An omitted tensor is written `-`; tensor attributes and subgraphs are hashes. A known trip count
    of a Loop or Scan is one of the attributes.
    """

    def written(values: Iterable[ir.Value | None]) -> str:
        found = (None if value is None or not value.name else tensors[value] for value in values)
        return ",".join("-" if t is None else f"{t.dtype_name}[{','.join(map(str, t.shape))}]" for t in found)

    attributes = {name: _attribute(attribute, opset, tensors) for name, attribute in node.attributes.items()}
    if next(subgraphs(node), None) is not None and (trips := trip_count(node, opset, tensors)) is not None:
        attributes["trips"] = str(trips)
    listed = ",".join(f"{name}={attributes[name]}" for name in sorted(attributes))
    return f"{node.domain or 'ai.onnx'}::{node.op_type}({written(node.inputs)})->({written(node.outputs)}){{{listed}}}"


def _attribute(attribute: ir.Attr, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    match attribute.type:
        case Kind.GRAPH:
            return _body(attribute.as_graph(), opset, tensors)
        case Kind.GRAPHS:
            return "[" + ",".join(_body(graph, opset, tensors) for graph in attribute.as_graphs()) + "]"
        case Kind.TENSOR:
            return _tensor(attribute.as_tensor())
        case Kind.TENSORS:
            return "[" + ",".join(map(_tensor, attribute.as_tensors())) + "]"
        case kind if kind in _PLAIN:
            return json.dumps(attribute.value, separators=(",", ":"), default=repr)
    return repr(attribute.value)


def _tensor(tensor: ir.TensorProtocol) -> str:
    digest = hashlib.sha256(f"{tensor.dtype}{tensor.shape}".encode())
    if isinstance(tensor, ir.StringTensor):
        digest.update(b"\0".join(tensor.string_data()))
    elif not isinstance(tensor, ir.ExternalTensor):  # external data stays unread: dtype and shape suffice
        digest.update(tensor.tobytes())
    return f"tensor:{digest.hexdigest()[:_DIGEST]}"


def _body(graph: ir.Graph, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    """A hash of the signatures of the nodes, in order."""
    lines = [signature(node, opset, tensors) for node in graph]
    return f"graph:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:_DIGEST]}"
