"""FLOPs and moved bytes of any node: the tables joined, a default, and control flow through its bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from gnnplace.onnx_io.normalise.captures import subgraphs
from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.data_movement import COPYING, MOVED_BYTES, VIEWS
from gnnplace.onnx_io.op_costs.elementwise import ELEMENTWISE_FLOPS
from gnnplace.onnx_io.op_costs.matrix import MATRIX_FLOPS
from gnnplace.onnx_io.op_costs.reduction import REDUCTION_FLOPS
from gnnplace.onnx_io.op_costs.sequence import SEQUENCE_FLOPS
from gnnplace.onnx_io.shapes.control_flow import branches_taken, trip_count
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

__all__ = ["NodeCost", "has_known_cost", "node_cost"]


@dataclass(frozen=True, slots=True)
class NodeCost:
    """FLOPs of one run of a node, and the bytes that it reads and writes."""

    flops: float
    bytes: float


def _no_flops(call: Call) -> float:
    del call
    return 0.0


_FLOPS: Mapping[str, Rule] = {
    **dict.fromkeys(VIEWS | COPYING, _no_flops),
    **ELEMENTWISE_FLOPS,
    **MATRIX_FLOPS,
    **SEQUENCE_FLOPS,
    **REDUCTION_FLOPS,
}


def has_known_cost(node: ir.Node) -> bool:
    """Whether the node's type is in a table, or its cost is that of its bodies."""
    return (node.domain == "" and node.op_type in _FLOPS) or next(subgraphs(node), None) is not None


def node_cost(node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> NodeCost:
    """The cost of a node whose tensors, and those of its subgraphs, are known.

    A node with subgraphs costs what its bodies cost, times the trip count, or once where only a run can tell; of an If,
    the branch that runs, or the more expensive one. A type that is in no table costs 1 FLOP per output element.
    """
    if next(subgraphs(node), None) is not None:
        bodies = [_graph_cost(body, opset, tensors) for body in _bodies(node, tensors)]
        worst = max(bodies, key=lambda cost: (cost.flops, cost.bytes))
        trips = trip_count(node, opset, tensors)
        times = 1 if trips is None else trips
        return NodeCost(worst.flops * times, worst.bytes * times)
    call = Call.of(node, opset, tensors)
    is_default_domain = node.domain == ""
    flops = _FLOPS[node.op_type](call) if is_default_domain and node.op_type in _FLOPS else float(call.output_size)
    if is_default_domain and node.op_type in MOVED_BYTES:
        return NodeCost(flops, MOVED_BYTES[node.op_type](call))
    return NodeCost(flops, float(call.input_bytes + call.output_bytes))


def _bodies(node: ir.Node, tensors: Mapping[ir.Value, TensorInfo]) -> Iterator[ir.Graph]:
    if node.domain == "" and node.op_type == "If":
        yield from branches_taken(node, tensors)
    else:
        yield from subgraphs(node)


def _graph_cost(graph: ir.Graph, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> NodeCost:
    costs = [node_cost(node, opset, tensors) for node in graph]
    return NodeCost(sum(cost.flops for cost in costs), sum(cost.bytes for cost in costs))
