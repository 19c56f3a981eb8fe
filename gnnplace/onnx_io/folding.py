"""What a node reads: its inputs, and what its subgraphs take from outside of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference.ops import load_op

__all__ = [
    "READABLE",
    "captured_values",
    "constant_array",
    "constant_tensor",
    "evaluate",
    "fold_constants",
    "subgraphs",
    "values_read",
]


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that a node holds as attributes, as If, Loop and Scan do; not the graphs inside those."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def captured_values(node: ir.Node) -> tuple[ir.Value, ...]:
    """Values that the subgraphs of `node`, at any depth, read and do not define; each once, in order of first use.

    Unlike `onnx_ir.analysis.analyze_implicit_usage` this counts a subgraph that returns an outer value as it is.
    """
    used: dict[ir.Value, None] = {}
    defined: set[ir.Value] = set()
    open_graphs = list(subgraphs(node))
    while open_graphs:
        graph = open_graphs.pop(0)
        defined.update(graph.inputs, graph.initializers.values())
        for inner in graph:
            defined.update(inner.outputs)
            used.update((value, None) for value in inner.inputs if value is not None)
            open_graphs.extend(subgraphs(inner))
        used.update((value, None) for value in graph.outputs)
    return tuple(value for value in used if value not in defined)


def values_read(node: ir.Node) -> tuple[ir.Value, ...]:
    """Inputs of `node` that are given, then what its subgraphs capture; each once."""
    inputs = (value for value in node.inputs if value is not None)
    return tuple(dict.fromkeys((*inputs, *captured_values(node))))


READABLE = frozenset({
    ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
    ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
})  # fmt: skip
"""Dtypes that numpy has itself."""

_EXTERNAL_READ_BYTES = 1024


def constant_array(tensor: ir.TensorProtocol) -> NDArray[Any] | None:
    """The elements of a constant; None for dtypes that are not `READABLE` and for external data beyond 1 KiB."""
    if tensor.dtype not in READABLE:
        return None
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor.numpy()
    if tensor.nbytes > _EXTERNAL_READ_BYTES:
        return None
    # onnx-ir would map the whole file, and refuses one that has a second name, as the data of a split model has.
    with Path(tensor.path).open("rb") as file:
        file.seek(tensor.offset or 0)
        elements = np.frombuffer(file.read(tensor.nbytes), dtype=tensor.dtype.numpy().newbyteorder("<"))
    return elements.astype(tensor.dtype.numpy()).reshape(tensor.shape.numpy())


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None for a sparse one, and for one that breaks ONNX's rules."""
    if len(node.attributes) != 1 or len(node.outputs) != 1 or "sparse_value" in node.attributes:
        return None
    try:
        return ir.convenience.get_const_tensor(node.outputs[0])
    except ValueError:  # an attribute that Constant does not have
        return None


FILL_LIMIT_BYTES = 2**30
"""Constant fills become weights up to this sum, so that the model can still be saved as one file; in memory each is one
element."""
GROWTH_LIMIT_BYTES = 2**20
"""Other results may not be larger than this, unless they replace at least as many bytes of constants."""
_MOVING = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "NonZero", "Range", "Reshape", "ScatterND",
    "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
_EXACT = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "Max", "Min", "Mul", "Neg", "Not", "Or", "Sign", "Sqrt", "Sub", "Xor",
})  # fmt: skip
_EXACT_FOR_INTEGERS = frozenset({"CumSum", "Mod", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"})
# What the evaluator raises on a node that is malformed; such a node stays as it is, for the runtime to refuse.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError, AssertionError)


def fold_constants(graph: ir.Graph, opset: int) -> None:
    """Folds the nodes of a sorted graph, in place; subgraphs stay as they are, but read what was folded outside."""
    fill_bytes_left = FILL_LIMIT_BYTES
    for node in graph:
        if node.domain != "" or any(output.is_graph_output() for output in node.outputs):
            continue
        if node.op_type == "Identity" and _constant(node.inputs[0]) is not None:
            assert node.inputs[0] is not None
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            graph.remove(node, safe=True)
            continue
        tensors = _folded(node, opset, fill_bytes_left)
        if tensors is None:
            continue
        if node.op_type == "ConstantOfShape":
            fill_bytes_left -= tensors[0].nbytes
        for output, tensor in zip(node.outputs, tensors, strict=True):
            if not output.name:
                continue
            initializer = ir.Value(
                name=output.name,
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(tensor.shape.numpy()),
                const_value=tensor,
            )
            graph.register_initializer(initializer)
            output.replace_all_uses_with(initializer)
        graph.remove(node, safe=True)


def evaluate(node: ir.Node, opset: int, inputs: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...] | None:
    """The outputs of a node of the default domain; None when it is not among the exact operators, or malformed."""
    op_type = node.op_type
    integers = all(array is None or array.dtype.kind in "biu" for array in inputs)
    if op_type not in _MOVING and op_type not in _EXACT and not (op_type in _EXACT_FOR_INTEGERS and integers):
        return None
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    try:
        with np.errstate(all="ignore"):
            result = load_op("", op_type, opset).eval(*inputs, n_outputs=len(node.outputs), **attributes)
    except _MALFORMED:
        return None
    arrays = tuple(np.asarray(array) for array in (result if isinstance(result, tuple | list) else (result,)))
    return arrays if all(array.dtype.kind in "biuf" for array in arrays) else None


def _constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initialiser that cannot be overridden."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value


def _folded(node: ir.Node, opset: int, fill_bytes_left: int) -> Sequence[ir.TensorProtocol] | None:
    if node.op_type == "Constant":
        tensor = constant_tensor(node)
        return None if tensor is None else (tensor,)
    tensors = [_constant(value) for value in node.inputs]
    if not tensors or any(t is None and value is not None for t, value in zip(tensors, node.inputs, strict=True)):
        return None
    given = [tensor for tensor in tensors if tensor is not None]
    # A large constant that others read as well would be stored twice.
    if any(value is not None and len(value.uses()) > 1 and _is_large(value.const_value) for value in node.inputs):
        return None
    arrays = [None if tensor is None else constant_array(tensor) for tensor in tensors]
    if sum(array is not None for array in arrays) < len(given):
        return None
    if node.op_type == "ConstantOfShape":
        return _fill(node, arrays[0], fill_bytes_left)
    limit_bytes = max(GROWTH_LIMIT_BYTES, sum(tensor.nbytes for tensor in given))
    if _largest_size(node, arrays) > limit_bytes:  # before memory is taken for it
        return None
    results = evaluate(node, opset, arrays)
    if results is None or len(results) != len(node.outputs) or sum(array.nbytes for array in results) > limit_bytes:
        return None
    return [ir.Tensor(array, name=output.name) for output, array in zip(node.outputs, results, strict=True)]


def _largest_size(node: ir.Node, arrays: Sequence[NDArray[Any] | None]) -> float:
    """A bound of the elements of the result, for operators whose result may be larger than all of their inputs."""
    given = [array for array in arrays if array is not None]
    try:
        if node.op_type in ("Expand", "Tile"):
            return float(np.prod(given[1], dtype=np.float64)) * max(given[0].size, 1)
        if node.op_type == "Range":
            start, limit, delta = (float(array.item()) for array in given)
            return (limit - start) / delta
        if node.op_type == "Gather":
            return float(given[1].size * given[0].size / given[0].shape[node.attributes.get_int("axis", 0)])
        if node.op_type in _EXACT or node.op_type == "Where":
            return math.prod(np.broadcast_shapes(*(array.shape for array in given)))
    except _MALFORMED:
        return math.inf
    return 0.0


def _is_large(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.nbytes > GROWTH_LIMIT_BYTES


def _fill(node: ir.Node, shape: NDArray[Any] | None, limit_bytes: int) -> Sequence[ir.TensorProtocol] | None:
    if shape is None:
        return None
    dims = tuple(int(size) for size in shape.ravel())
    value = node.attributes.get_tensor("value")
    fill = np.zeros(1, dtype=np.float32) if value is None else value.numpy()
    dtype = ir.DataType.FLOAT if value is None else value.dtype
    if min(dims, default=0) < 0 or int(np.prod(dims)) * dtype.itemsize > limit_bytes:
        return None
    return (ir.Tensor(np.broadcast_to(fill.reshape(()), dims), dtype=dtype, name=node.outputs[0].name),)
