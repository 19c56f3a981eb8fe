"""Constant folding, and the helpers that it shares with shape inference: subgraphs, captured values, constants."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference.ops import load_op

FILL_LIMIT_BYTES = 2**30
"""Largest total of constant fills that become weights, so that the model still fits in one file; each takes the memory
of one element."""
GROWTH_LIMIT_BYTES = 2**20
"""Largest size of other results, unless they replace at least as many bytes of constants."""
_EXTERNAL_READ_BYTES = 1024
_READABLE = frozenset({
    ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
    ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
})  # fmt: skip
_MOVING = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "NonZero", "Reshape", "ScatterND",
    "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
_EXACT = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Div", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "Mul", "Neg", "Not", "Or", "Sqrt", "Sub", "Xor",
})  # fmt: skip
# With floats, runtimes add up a Range, order zeros by sign or not, and give NaN another sign.
_EXACT_FOR_INTEGERS = frozenset({
    "CumSum", "Max", "Min", "Mod", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Sign",
})  # fmt: skip
_EXACT_IN_DOUBLES = 2**53
"""Integers from here on differ, as ONNX Runtime computes some of these operators in doubles."""
# Errors of the evaluator on a malformed node, which stays in the model for the runtime to refuse.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError, AssertionError)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the attributes of a node, such as If, Loop and Scan; not the graphs inside those."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def captured_values(node: ir.Node) -> tuple[ir.Value, ...]:
    """Values that the subgraphs of `node`, at any depth, read and do not define; each once, in order of first use.

    Unlike `onnx_ir.analysis.analyze_implicit_usage` this includes outer values that a subgraph returns.
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
    """The inputs of `node` that are present, then the values that its subgraphs capture; each once."""
    inputs = (value for value in node.inputs if value is not None)
    return tuple(dict.fromkeys((*inputs, *captured_values(node))))


def constant_array(tensor: ir.TensorProtocol) -> NDArray[Any] | None:
    """The elements of a constant; None for dtypes that numpy lacks and for external data beyond 1 KiB."""
    if tensor.dtype not in _READABLE:
        return None
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor.numpy()
    # A copy, since the array of onnx-ir keeps the whole file mapped.
    return None if tensor.nbytes > _EXTERNAL_READ_BYTES else readable(tensor).numpy().copy()


def readable(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The tensor, without onnx-ir's refusal to read external files with several hard links, as a split model has."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    shape, name = tensor.shape, tensor.name  # onnx-ir checks only files below a base folder
    return ir.ExternalTensor(tensor.path, tensor.offset, tensor.length, tensor.dtype, shape=shape, name=name)


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None if it is sparse or malformed."""
    if len(node.attributes) != 1 or len(node.outputs) != 1 or "sparse_value" in node.attributes:
        return None
    try:
        return ir.convenience.get_const_tensor(node.outputs[0])
    except ValueError:  # an attribute that Constant does not have
        return None


def fold_constants(graph: ir.Graph, opset: int) -> None:
    """Folds the nodes of a sorted graph, in place; subgraphs stay as they are, but read folded values."""
    fill_bytes_left = FILL_LIMIT_BYTES
    of_bodies = _names_in_bodies(graph)  # a body would read its own value in place of a weight of that name
    for node in graph:
        if node.domain != "" or any(output.is_graph_output() for output in node.outputs):
            continue
        source = node.inputs[0] if node.inputs else None
        is_copied = node.op_type == "Identity" and source is not None and source.name not in of_bodies
        if source is not None and is_copied and _constant(source) is not None:
            node.outputs[0].replace_all_uses_with(source)
            graph.remove(node, safe=True)
            continue
        tensors = _folded(node, opset, fill_bytes_left)
        if tensors is None:
            continue
        if node.op_type == "ConstantOfShape":
            fill_bytes_left -= tensors[0].nbytes
        for output, tensor in zip(node.outputs, tensors, strict=True):
            if output.name:
                element, shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
                initializer = ir.Value(name=output.name, type=element, shape=shape, const_value=tensor)
                graph.register_initializer(initializer)
                output.replace_all_uses_with(initializer)
        graph.remove(node, safe=True)


def evaluate(node: ir.Node, opset: int, inputs: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...] | None:
    """The outputs of a node of the default domain; None if its operator is not exact or the node is malformed."""
    op_type = node.op_type
    is_exact = op_type in _EXACT or (op_type in _EXACT_FOR_INTEGERS and all(map(_is_exact, inputs)))
    if not (is_exact or op_type in _MOVING) or _has_doubtful_shape(node, inputs):
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


def _is_exact(array: NDArray[Any] | None) -> bool:
    """Whether the elements are integers that doubles can represent."""
    if array is None or array.size == 0 or array.dtype.kind == "b":
        return True
    return array.dtype.kind in "iu" and max(int(array.max()), -int(array.min())) < _EXACT_IN_DOUBLES


def _has_doubtful_shape(node: ir.Node, inputs: Sequence[NDArray[Any] | None]) -> bool:
    """Whether ONNX Runtime and ONNX's reference give different shapes: NonZero of a scalar, Squeeze of no axes."""
    if node.op_type == "NonZero":
        return inputs[0] is not None and inputs[0].ndim == 0
    if node.op_type != "Squeeze":
        return False
    axes = inputs[1] if len(inputs) > 1 else None
    return (axes is not None and axes.size == 0) or not node.attributes.get_ints("axes", (0,))


def _names_in_bodies(graph: ir.Graph) -> set[str | None]:
    """Names of the values that the bodies of the nodes, at any depth, define."""
    names: set[str | None] = set()
    open_graphs = [body for node in graph for body in subgraphs(node)]
    while open_graphs:
        body = open_graphs.pop()
        names.update(value.name for value in (*body.inputs, *body.initializers.values()))
        for inner in body:
            names.update(output.name for output in inner.outputs)
            open_graphs.extend(subgraphs(inner))
    return names


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of an initialiser that no caller can override."""
    return value.const_value if value.is_initializer() and not value.is_graph_input() else None


def _folded(node: ir.Node, opset: int, fill_bytes_left: int) -> Sequence[ir.TensorProtocol] | None:
    """The tensors that replace the outputs of a node; None if it must stay."""
    if node.op_type == "Constant":
        tensor = constant_tensor(node)
        return None if tensor is None else (tensor,)
    present = [value for value in node.inputs if value is not None]
    tensors = [tensor for value in present if (tensor := _constant(value)) is not None]
    if not node.inputs or len(tensors) < len(present):
        return None
    # A large constant with several readers would be stored twice.
    pairs = zip(present, tensors, strict=True)
    if any(len(value.uses()) > 1 and tensor.nbytes > GROWTH_LIMIT_BYTES for value, tensor in pairs):
        return None
    arrays = [None if value is None else constant_array(value.const_value) for value in node.inputs]  # type: ignore[arg-type]
    if sum(array is not None for array in arrays) < len(tensors):
        return None
    if node.op_type == "ConstantOfShape":
        return _fill(node, arrays[0], fill_bytes_left)
    limit_bytes = max(GROWTH_LIMIT_BYTES, sum(tensor.nbytes for tensor in tensors))
    if _most_bytes(node, arrays) > limit_bytes:  # before evaluation allocates memory
        return None
    results = evaluate(node, opset, arrays)
    if results is None or len(results) != len(node.outputs) or sum(array.nbytes for array in results) > limit_bytes:
        return None
    return [ir.Tensor(array, name=output.name) for output, array in zip(node.outputs, results, strict=True)]


def _most_bytes(node: ir.Node, arrays: Sequence[NDArray[Any] | None]) -> float:
    """A bound of the bytes of the result, for operators that can enlarge their inputs; otherwise 0."""
    present = [array for array in arrays if array is not None]
    try:
        item_bytes = present[0].itemsize
        if node.op_type in ("Expand", "Tile"):
            return float(np.prod(present[1], dtype=np.float64)) * max(present[0].size, 1) * item_bytes
        if node.op_type == "Range":
            start, limit, delta = (float(array.item()) for array in present)
            return (limit - start) / delta * item_bytes
        if node.op_type == "Gather":
            data, indices = present
            return float(indices.size * data.nbytes / data.shape[node.attributes.get_int("axis", 0)])
        if node.op_type == "GatherND":
            data, indices = present
            inner = data.shape[node.attributes.get_int("batch_dims", 0) + indices.shape[-1] :]
            return float(math.prod((*indices.shape[:-1], *inner)) * item_bytes)
        if node.op_type in _EXACT or node.op_type == "Where":
            size = math.prod(np.broadcast_shapes(*(array.shape for array in present)))
            return size * max(array.itemsize for array in present)
    except _MALFORMED:
        return math.inf
    return 0.0


def _fill(node: ir.Node, shape: NDArray[Any] | None, limit_bytes: int) -> Sequence[ir.TensorProtocol] | None:
    if shape is None:
        return None
    dims = tuple(int(size) for size in shape.ravel())
    value = node.attributes.get_tensor("value")
    fill = np.zeros(1, dtype=np.float32) if value is None else readable(value).numpy()
    dtype = ir.DataType.FLOAT if value is None else value.dtype
    if (
        fill.size != 1
        or min(dims, default=0) < 0
        or math.prod(max(size, 1) for size in dims) * dtype.itemsize > limit_bytes
    ):
        return None
    return (ir.Tensor(np.broadcast_to(fill.reshape(()), dims), dtype=dtype, name=node.outputs[0].name),)
