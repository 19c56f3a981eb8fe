"""Types of values: types as ONNX Runtime writes them, and map types.

onnx-ir has no map types. Reading a model moves them from its values into the values' `meta`, and writing moves them back.
The `meta` also has the type that a value has between parts, where the model states more than follows from its inputs.
"""

from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir
from onnx import TensorProto

_MAP_TYPE = "gnnplace.map_type"  # key of a value's map type in its `meta`
_CROSSING_TYPE = "gnnplace.crossing_type"


def type_text(found: onnx.TypeProto | int | None) -> str:
    """A type or element type as ONNX Runtime writes it, such as `seq(tensor(float))`; empty if unknown."""
    if isinstance(found, int):
        return str(TensorProto.DataType.Name(found)).lower()
    kind = None if found is None else found.WhichOneof("value")
    if found is None or kind is None:
        return ""
    if kind == "map_type":
        return f"map({type_text(found.map_type.key_type)},{type_text(found.map_type.value_type)})"
    return f"{kind.removesuffix('_type').replace('sequence', 'seq')}({type_text(getattr(found, kind).elem_type)})"


def type_from_text(text: str) -> onnx.TypeProto:
    """The type that ONNX Runtime writes as `text`: the inverse of `type_text`."""
    kind, _, rest = text.partition("(")
    inner = rest[:-1]
    match kind:
        case "seq":
            return onnx.helper.make_sequence_type_proto(type_from_text(inner))
        case "optional":
            return onnx.helper.make_optional_type_proto(type_from_text(inner))
        case "map":
            key, _, value = inner.partition(",")
            return onnx.helper.make_map_type_proto(TensorProto.DataType.Value(key.upper()), type_from_text(value))
    return onnx.helper.make_tensor_type_proto(TensorProto.DataType.Value(inner.upper()), None)


def _holds_map(found: onnx.TypeProto) -> bool:
    """Whether the type is a map, or a sequence or optional of maps."""
    kind = found.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _holds_map(getattr(found, kind).elem_type)
    return bool(kind == "map_type")


def detach_map_types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Removes map types from the values of a graph, and returns them by value name."""
    taken: dict[str, onnx.TypeProto] = {}
    for info in (*graph.input, *graph.output, *graph.value_info):
        if _holds_map(info.type):
            taken[info.name] = onnx.TypeProto.FromString(info.type.SerializeToString())
            info.ClearField("type")
    return taken


def attach_map_types(graph: ir.Graph, taken: Mapping[str, onnx.TypeProto]) -> None:
    """Keeps detached map types in the `meta` of the values of the same graph."""
    produced = (value for node in graph for value in node.outputs)
    for value in (*graph.inputs, *produced) if taken else ():
        if (found := taken.get(str(value.name))) is not None:
            value.meta[_MAP_TYPE] = found


def kept_type(value: ir.Value) -> onnx.TypeProto | None:
    """The map type in the `meta` of a value; None if it has none."""
    found: onnx.TypeProto | None = value.meta.get(_MAP_TYPE)
    return found


def set_type(value: ir.Value, found: onnx.TypeProto) -> None:
    """Gives a value a type unless it has one; map types go into its `meta`."""
    if _holds_map(found):
        value.meta[_MAP_TYPE] = found
    elif value.type is None:
        value.type = ir.serde.deserialize_type_proto_for_type(found)


def restore_map_types(graph: onnx.GraphProto, values: Iterable[ir.Value]) -> None:
    """Writes the kept map types of `values` into the inputs and outputs of a graph."""
    kept = {value.name: found for value in values if (found := kept_type(value)) is not None}
    for info in (*graph.input, *graph.output) if kept else ():
        if info.name in kept:
            info.type.CopyFrom(kept[info.name])


def set_crossing_type(value: ir.Value, found: onnx.TypeProto) -> None:
    """Keeps the type of a value as an input or output of a part."""
    value.meta[_CROSSING_TYPE] = found


def write_crossing_types(graph: onnx.GraphProto, borders: Iterable[ir.Value]) -> None:
    """Writes the kept types of `borders` into the inputs and outputs of a part."""
    kept = {value.name: value.meta[_CROSSING_TYPE] for value in borders if _CROSSING_TYPE in value.meta}
    for info in (*graph.input, *graph.output) if kept else ():
        if info.name in kept:
            info.type.CopyFrom(kept[info.name])
