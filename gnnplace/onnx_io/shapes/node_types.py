"""ONNX's own type inference for one node, and the types of values that a model does not state."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.onnx_io.folding import captured_values, constant_array
from gnnplace.onnx_io.model import op_schema
from gnnplace.onnx_io.value_types import kept_type, set_crossing_type, set_type

SMALL = 1024
"""Largest number of elements of a tensor whose value is computed."""

Shape = tuple[int, ...]


def output_types(
    node: ir.Node,
    opsets: Mapping[str, int],
    types: Mapping[ir.Value | None, onnx.TypeProto],
    values: Mapping[ir.Value, NDArray[Any]],
) -> list[onnx.TypeProto | None]:
    """ONNX's inference for one node: the type of each output, None if unknown.

    `opsets` are the operator versions by domain, `types` those of values so far, and `values` known elements of inputs.
    """
    nothing: list[onnx.TypeProto | None] = [None] * len(node.outputs)
    schema = op_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    inputs = [value for value in node.inputs if value is not None]
    if schema is None or any(value not in types for value in inputs):
        return nothing
    outer = [value for value in captured_values(node) if value in types]
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.serde.serialize_node(node),
            {str(value.name): types[value] for value in (*inputs, *outer)},
            {str(value.name): onnx.numpy_helper.from_array(values[value]) for value in inputs if value in values},
            opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError):
        return nothing
    return [_without_negative(found.get(output.name)) if output.name else None for output in node.outputs]


def _without_negative(found: onnx.TypeProto | None) -> onnx.TypeProto | None:
    """A type whose negative sizes are unknown; ONNX infers those of a window that is larger than what it slides over."""
    if found is not None:
        for axis in found.tensor_type.shape.dim if found.HasField("tensor_type") else ():
            if axis.dim_value < 0:
                axis.ClearField("dim_value")
    return found


def annotate_types(model: ir.Model) -> None:
    """Adds types and shapes that the model does not state, keeping its symbolic dimensions; in place.

    Only values of the main graph get types. They may become inputs of a part, and runtimes require types there and
    refuse other shapes. A stated shape may contradict the inputs, for example if only a batch size was made symbolic.
    Then all stated shapes are ignored except those of inputs and outputs. Sizes that are stated and do not follow from the inputs,
    such as the number of results of NonZero in a traced run, count for costs; parts do not state them.
    """
    agreed, followed = _annotate(model)
    if not agreed:
        for node in model.graph:
            for output in node.outputs:
                if not output.is_graph_output():
                    output.shape = None
        _, followed = _annotate(model)
    if not followed:
        _annotate_crossings(model)


def _annotate(model: ir.Model) -> tuple[bool, bool]:
    """One pass; returns whether all stated shapes agree with the inferred ones, and whether all stated sizes are inferred."""
    agreed = followed = True
    opsets, types, constants = _known_at_first(model)
    for node in model.graph:
        for output, found in zip(node.outputs, output_types(node, opsets, types, constants), strict=True):
            if found is not None:
                set_type(output, found)
                if output.type is not None and output.shape is None:
                    output.shape = ir.serde.deserialize_type_proto_for_shape(found)
            if (declared := declared_type(output)) is not None:
                types[output] = declared
                agreed = agreed and (found is None or not _contradicts(found, declared))
                followed = followed and _following(found, declared) == declared
    return agreed, followed


def _annotate_crossings(model: ir.Model) -> None:
    """Keeps the types that parts state where they differ from those of the model."""
    opsets, types, constants = _known_at_first(model)
    for node in model.graph:
        for output, found in zip(node.outputs, output_types(node, opsets, types, constants), strict=True):
            if (declared := declared_type(output)) is not None:
                types[output] = _following(found, declared)
                if types[output] != declared:
                    set_crossing_type(output, types[output])


def _following(found: onnx.TypeProto | None, declared: onnx.TypeProto) -> onnx.TypeProto:
    """A stated tensor type with the sizes that inference found; behind an op that it does not know, with the rank alone."""
    if not declared.HasField("tensor_type"):
        return declared
    sure, stated = onnx.TypeProto(), declared.tensor_type.shape.dim
    sure.CopyFrom(declared)
    if found is None:
        for axis in sure.tensor_type.shape.dim:
            axis.ClearField("dim_value")
        return sure
    sure.tensor_type.ClearField("shape")
    if found.tensor_type.HasField("shape"):
        sure.tensor_type.shape.CopyFrom(found.tensor_type.shape)
        for axis, other in zip(sure.tensor_type.shape.dim, stated, strict=False):
            if axis.WhichOneof("value") is None and other.dim_param:
                axis.dim_param = other.dim_param
    return sure


def _known_at_first(
    model: ir.Model,
) -> tuple[Mapping[str, int], dict[ir.Value | None, onnx.TypeProto], Mapping[ir.Value, NDArray[Any]]]:
    """Operator versions by domain, types of inputs and weights, and the elements of small constants."""
    opsets = {"": 1, **model.opset_imports}
    types: dict[ir.Value | None, onnx.TypeProto] = {}
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        if (declared := declared_type(value)) is not None:
            types[value] = declared
    constants = small_constants(value for value in model.graph.initializers.values() if not value.is_graph_input())
    return opsets, types, constants


def _contradicts(found: onnx.TypeProto, stated: onnx.TypeProto) -> bool:
    """Whether a stated size is a number where inference gives another number or a named dimension."""
    pairs = zip(found.tensor_type.shape.dim, stated.tensor_type.shape.dim, strict=False)
    return any(
        other.HasField("dim_value")
        and bool(axis.dim_param or (axis.HasField("dim_value") and axis.dim_value != other.dim_value))
        for axis, other in pairs
    )


def declared_type(value: ir.Value) -> onnx.TypeProto | None:
    """The type and shape that the model states for a value; None if it states no type."""
    if value.type is None:
        return kept_type(value)
    found = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(found, value.shape)
    return found


def tensor_type(dtype: ir.DataType, shape: Iterable[int]) -> onnx.TypeProto:
    """The ONNX type of a tensor."""
    return onnx.helper.make_tensor_type_proto(dtype.value, list(shape))


def with_shape(found: onnx.TypeProto | None, change: Callable[[Shape], Shape]) -> onnx.TypeProto | None:
    """The same tensor type with another shape; other types stay unchanged."""
    if found is None or not found.HasField("tensor_type"):
        return found
    sizes = tuple(axis.dim_value for axis in found.tensor_type.shape.dim)
    return tensor_type(ir.DataType(found.tensor_type.elem_type), change(sizes))


def small_constants(values: Iterable[ir.Value]) -> dict[ir.Value, NDArray[Any]]:
    """The elements of small initialisers; for an input, its default."""
    arrays = ((value, small_array(value.const_value)) for value in values if value.const_value is not None)
    return {value: array for value, array in arrays if array is not None}


def small_array(tensor: ir.TensorProtocol) -> NDArray[Any] | None:
    """The elements of a small tensor; None if it is large or unreadable."""
    return constant_array(tensor) if tensor.size <= SMALL else None
