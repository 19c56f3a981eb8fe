"""Shape inference from the inputs through the graph, node by node: ONNX's own inference with a fallback.

Inference by node, with the values of small integer tensors, finds shapes that inference over a whole model leaves open.
It continues after an unknown node, and stays linear in the size of the graph.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.onnx_io.folding import constant_tensor, evaluate, subgraphs
from gnnplace.onnx_io.shapes.control_flow import ScanLayout, branches_taken, trip_count
from gnnplace.onnx_io.shapes.node_types import (
    SMALL,
    declared_type,
    output_types,
    small_array,
    small_constants,
    tensor_type,
    with_shape,
)
from gnnplace.onnx_io.shapes.tensor_info import Dimensions, TensorInfo

Types = list[onnx.TypeProto | None]


def infer_shapes(model: ir.Model, dimensions: Dimensions) -> tuple[Mapping[ir.Value, TensorInfo], tuple[str, ...]]:
    """Every tensor of a normalised model and its subgraphs at the given dimensions, and the warnings.

    Where inference has no answer, a tensor takes its declared shape, otherwise the shape of the op's largest input, as
    in an elementwise op. A single unknown size makes the tensor as large as that input.
    """
    walk = _Walk({"": 1, **model.opset_imports}, dimensions.values)
    for value in model.graph.inputs:
        if isinstance(value.type, ir.TensorType):
            walk.bind(value, tensor_type(value.type.dtype, dimensions.input_shapes[value]))
        else:
            walk.bind(value, declared_type(value))
    walk.graph(model.graph)
    if not walk.guessed:
        return walk.tensors, ()
    others = f" and {len(walk.guessed) - 1} more" if len(walk.guessed) > 1 else ""
    warning = (
        f"tensor {walk.guessed[0]!r}{others}: the shape depends on the data or on an unknown op, or the op cannot take these sizes; "
        "the size of the largest input of the op is taken"
    )
    return walk.tensors, (warning,)


@dataclass
class _Walk:
    """One pass over a graph and its subgraphs that settles the outputs of every visited node."""

    opsets: Mapping[str, int]
    dims: Mapping[str, int]
    types: dict[ir.Value | None, onnx.TypeProto] = field(default_factory=dict)
    values: dict[ir.Value, NDArray[Any]] = field(default_factory=dict)
    tensors: dict[ir.Value, TensorInfo] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)

    def graph(self, graph: ir.Graph) -> None:
        """Visits the nodes of a graph; its inputs must be bound."""
        self.values.update(small_constants(graph.initializers.values()))
        for value in graph.initializers.values():
            if value.const_value is not None:
                self.bind(value, tensor_type(value.const_value.dtype, value.const_value.shape.numpy()))
        for node in graph:
            outputs = self._node(node)
            inputs = [self.tensors[value] for value in node.inputs if value is not None]
            for output, found in zip(node.outputs, outputs, strict=True):
                self.bind(output, found, inputs)
            self._follow_values(node)

    def bind(self, value: ir.Value, found: onnx.TypeProto | None, inputs: Sequence[TensorInfo] = ()) -> None:
        """Settles the type of a value: the type found, completed by the declared type and by the op's `inputs`."""
        settled = self._settle(value, found, inputs)
        self.types[value] = settled
        elements = settled.tensor_type
        known = settled.HasField("tensor_type") and elements.elem_type != onnx.TensorProto.UNDEFINED
        self.tensors[value] = TensorInfo(
            ir.DataType(elements.elem_type) if known else None,
            tuple(axis.dim_value for axis in elements.shape.dim),
            self.values.get(value),
        )

    def _settle(self, value: ir.Value, found: onnx.TypeProto | None, inputs: Sequence[TensorInfo]) -> onnx.TypeProto:
        elements = onnx.TypeProto.Tensor() if found is None else found.tensor_type
        has_shape = elements.elem_type and elements.HasField("shape")
        if found is not None and has_shape and all(axis.HasField("dim_value") for axis in elements.shape.dim):
            return found
        candidates = [t for t in (found, declared_type(value)) if t is not None and t.WhichOneof("value") is not None]
        if candidates and not candidates[0].HasField("tensor_type"):
            return candidates[0]
        largest = max(inputs, key=lambda tensor: tensor.size, default=TensorInfo(ir.DataType.FLOAT, ()))
        stated = [candidate.tensor_type.elem_type for candidate in candidates if candidate.tensor_type.elem_type]
        dtype = ir.DataType(stated[0]) if stated else largest.dtype or ir.DataType.FLOAT
        rows = [
            [axis.dim_value if axis.HasField("dim_value") else self.dims.get(axis.dim_param) for axis in shape.dim]
            for shape in (t.tensor_type.shape for t in candidates if t.tensor_type.HasField("shape"))
        ]
        if rows and len(rows[0]) == len(rows[-1]):
            sizes = [first if first is not None else second for first, second in zip(rows[0], rows[-1], strict=True)]
        else:
            sizes = rows[0] if rows else list(largest.shape)
        if value.name and (not rows or None in sizes):
            self.guessed.append(value.name)
        if None in sizes:
            known = math.prod(size for size in sizes if size is not None)
            sizes[sizes.index(None)] = max(1, largest.size // max(known, 1))
        return tensor_type(dtype, [1 if size is None else size for size in sizes])

    def _follow_values(self, node: ir.Node) -> None:
        """Computes the values of small outputs from shapes and small constants."""
        if node.domain != "" or any(self.tensors[output].size > SMALL for output in node.outputs):
            return
        for output, result in zip(node.outputs, self._small_results(node) or (), strict=False):
            info = self.tensors[output]
            if info.dtype is not None and info.dtype.numpy() == result.dtype and info.shape == result.shape:
                self.values[output] = result
                self.tensors[output] = TensorInfo(info.dtype, info.shape, result)

    def _small_results(self, node: ir.Node) -> Sequence[NDArray[Any]] | None:
        if node.op_type == "Constant":
            tensor = constant_tensor(node)
            array = None if tensor is None else small_array(tensor)
            return None if array is None else (array,)
        source = node.inputs[0] if node.inputs else None
        if source is None:
            return None
        shape = self.tensors[source].shape
        if node.op_type == "Shape":
            start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
            return (np.array(shape[start:end], dtype=np.int64),)
        if node.op_type == "Size":
            return (np.array(math.prod(shape), dtype=np.int64),)
        if any(value is not None and value not in self.values for value in node.inputs):
            return None
        if node.op_type == "Identity":
            return (self.values[source],)
        inputs = [None if value is None else self.values[value] for value in node.inputs]
        return evaluate(node, self.opsets[""], inputs)

    def _node(self, node: ir.Node) -> Types:
        """One type per output of the node; None where it is unknown."""
        visit = {"If": self._if, "Loop": self._loop, "Scan": self._scan}.get(node.op_type)
        if visit is not None and node.domain == "":
            return [*visit(node), *[None] * len(node.outputs)][: len(node.outputs)]
        for body in subgraphs(node):
            self._body(body, [])
        return output_types(node, self.opsets, self.types, self.values)

    def _body(self, body: ir.Graph, inputs: Sequence[onnx.TypeProto | None]) -> Types:
        """Types of the outputs of a subgraph for these `inputs`; further inputs have their declared types."""
        for position, value in enumerate(body.inputs):
            self.bind(value, inputs[position] if position < len(inputs) else None)
        self.graph(body)
        return [self.types.get(value) for value in body.outputs]

    def _if(self, node: ir.Node) -> Types:
        """The outputs of the branch that runs; the larger outputs if both can run."""
        for branch in subgraphs(node):
            self._body(branch, [])
        results = zip(*(branch.outputs for branch in branches_taken(node, self.tensors)), strict=False)
        larger = [max(values, key=lambda value: self.tensors[value].bytes) for values in results]
        return [self.types[value] for value in larger]

    def _loop(self, node: ir.Node) -> Types:
        """The outputs after the first trip; stacked ones have a row per trip, or one row if the trip count is unknown."""
        carried = [self.types.get(value) for value in node.inputs[2:]]
        counter, condition = tensor_type(ir.DataType.INT64, ()), tensor_type(ir.DataType.BOOL, ())
        results = self._body(node.attributes["body"].as_graph(), [counter, condition, *carried])[1:]
        trips = trip_count(node, self.opsets[""], self.tensors)
        rows = 1 if trips is None else trips
        stacked = [with_shape(found, lambda shape: (rows, *shape)) for found in results[len(carried) :]]
        return [*results[: len(carried)], *stacked]

    def _scan(self, node: ir.Node) -> Types:
        """The states after the first step, and stacked outputs with a row per step."""
        layout = ScanLayout.of(node, self.opsets[""])
        stack = layout.batch_and_steps(self.tensors)
        batch, num_states = stack[:-1], len(layout.states)
        fed = [with_shape(self.types.get(value), lambda shape: shape[len(batch) :]) for value in layout.states]
        for index, value in enumerate(layout.sequences):
            fed.append(with_shape(self.types.get(value), partial(layout.step, index)))
        results = self._body(node.attributes["body"].as_graph(), fed)
        outputs = [with_shape(found, lambda shape: (*batch, *shape)) for found in results[:num_states]]
        for index, found in enumerate(results[num_states:]):
            outputs.append(with_shape(found, partial(layout.stacked, index, stack)))
        return outputs
