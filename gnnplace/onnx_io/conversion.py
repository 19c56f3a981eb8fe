"""The op graph of a normalised ONNX model: dependencies, bytes, costs, and the assumptions behind them."""

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.onnx_io.folding import constant_tensor, subgraphs, values_read
from gnnplace.onnx_io.model import GROUP_KEY, node_stage, state_of
from gnnplace.onnx_io.op_costs.contributed import CONTRIBUTED_INTEGER_PRODUCTS
from gnnplace.onnx_io.op_costs.matrix import INTEGER_PRODUCTS
from gnnplace.onnx_io.op_costs.node_cost import has_known_cost, node_cost, qualified_type, signature
from gnnplace.onnx_io.shapes.control_flow import branches_taken, trip_count
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

_INTEGER_PRODUCTS = INTEGER_PRODUCTS | CONTRIBUTED_INTEGER_PRODUCTS


def convert(
    name: str, model: ir.Model, tensors: Mapping[ir.Value, TensorInfo], where: str
) -> tuple[OpGraph, tuple[str, ...]]:
    """Converts `model` to an op graph with op `i` for node `i`; returns it with the assumptions that costs rest on.

    An initialiser is resident with the op that reads it, and a shared weight if several ops read it. A state input, as
    the model's metadata defines it, counts as a weight; the output that replaces it takes its place in memory. Other
    inputs cost nothing, since they are on every device when a step starts. A node with subgraphs is one op that also
    reads the captured values.

    Raises:
        UnsupportedModel: the metadata is broken; the message begins with `where`.
    """
    graph, opset = model.graph, model.opset_imports.get("", 1)
    state = state_of(model, where)
    nodes = list(graph)
    readers: dict[ir.Value, list[str]] = {}
    for node in nodes:
        for value in values_read(node):
            readers.setdefault(value, []).append(str(node.name))
    resident = Counter({str(node.name): _inner_weight_bytes(node) for node in nodes})
    shared: list[SharedWeight] = []
    weights = [value for value in graph.initializers.values() if not value.is_graph_input()]
    for value in (*weights, *(value for value in graph.inputs if value.name in state)):
        consumers = readers.get(value, [])
        if len(consumers) == 1:
            resident[consumers[0]] += tensors[value].bytes
        elif consumers:
            shared.append(SharedWeight(tensors[value].bytes, tuple(consumers)))
    results = {value for value in graph.outputs if value.name not in state.values()}
    produced = [
        Tensor(str(node.name), tensors[value].bytes, tuple(readers.get(value, ())))
        for node in nodes
        for value in node.outputs
        if value in readers or value in results
    ]
    ops = [_op(node, opset, tensors, resident[str(node.name)], where) for node in nodes]
    return OpGraph.build(name, ops, produced, shared), tuple(_assumptions(graph, opset, tensors))


def _op(node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo], memory_bytes: int, where: str) -> Op:
    cost = node_cost(node, opset, tensors)
    return Op(
        name=str(node.name),
        type=qualified_type(node),
        flops=cost.flops,
        bytes_accessed=cost.bytes,
        memory_bytes=memory_bytes,
        group=node.metadata_props.get(GROUP_KEY) or None,
        stage=node_stage(node, where),
        dtype=_dtype(node, tensors),
        signature=signature(node, opset, tensors),
    )


def _dtype(node: ir.Node, tensors: Mapping[ir.Value, TensorInfo]) -> str:
    """The dtype an op computes in: of its first float, else of its first tensor; of the factors of an integer product."""
    found = [tensors[value] for value in (*node.inputs, *node.outputs) if value is not None]
    known = [tensor for tensor in found if tensor.dtype is not None]
    floats = [tensor for tensor in known if tensor.dtype and tensor.dtype.is_floating_point()]
    chosen = known if qualified_type(node) in _INTEGER_PRODUCTS else floats or known
    return chosen[0].dtype_name if chosen else "float32"


def _inner_weight_bytes(node: ir.Node) -> int:
    """Bytes of the constants inside a node: the value of a Constant, and the weights of subgraphs."""
    if node.domain == "" and node.op_type == "Constant":
        tensor = constant_tensor(node)
        return 0 if tensor is None else tensor.nbytes
    total = 0
    for body in subgraphs(node):
        total += sum(value.const_value.nbytes for value in body.initializers.values() if value.const_value is not None)
        total += sum(_inner_weight_bytes(inner) for inner in body)
    return total


def _assumptions(graph: ir.Graph, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> Iterator[str]:
    """Assumptions of the costs, each kind once."""
    nodes = list(graph.all_nodes())
    unknown = sorted({f"{node.domain or 'ai.onnx'}::{node.op_type}" for node in nodes if not has_known_cost(node)})
    if unknown:
        yield f"no cost is known for {', '.join(unknown)}; 1 FLOP per output element and all bytes moved are taken"
    control = [node for node in nodes if next(subgraphs(node), None) is not None]
    branching = [n for n in control if (n.domain, n.op_type) == ("", "If") and len(branches_taken(n, tensors)) > 1]
    if branching:
        yield f"{_ops(branching)}: which branch runs depends on the data; the more expensive one is taken"
    looping = [n for n in control if (n.domain, n.op_type) != ("", "If") and trip_count(n, opset, tensors) is None]
    if looping:
        yield f"{_ops(looping)}: how often the body runs depends on the data; once is taken"
    opaque = [node for node in graph if any(tensors[value].dtype is None for value in node.outputs)]
    if opaque:
        yield f"{_ops(opaque)}: the size of a sequence, optional or map is not known; 0 bytes are taken"


def _ops(nodes: list[ir.Node]) -> str:
    """The first op, and the number of further ops, for a message."""
    first = f"op {nodes[0].name!r} ({nodes[0].op_type})"
    return first if len(nodes) == 1 else f"{first} and {len(nodes) - 1} more"
