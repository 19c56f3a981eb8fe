"""Types that hold maps, which onnx-ir does not have: kept beside its values, and put back where a model is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir

__all__ = ["attach", "holds_map", "keep", "kept_type", "put_back", "set_aside"]

_KEY = "gnnplace.map_type"


def holds_map(found: onnx.TypeProto) -> bool:
    """The type is a map, or a sequence or optional of maps."""
    kind = found.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return holds_map(getattr(found, kind).elem_type)
    return bool(kind == "map_type")


def set_aside(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """Takes such types off the values of a graph, so that onnx-ir can read it; by name."""
    taken: dict[str, onnx.TypeProto] = {}
    for info in (*graph.input, *graph.output, *graph.value_info):
        if holds_map(info.type):
            taken[info.name] = onnx.TypeProto.FromString(info.type.SerializeToString())
            info.ClearField("type")
    return taken


def attach(graph: ir.Graph, taken: Mapping[str, onnx.TypeProto]) -> None:
    """Keeps types that were set aside beside the values of the same graph."""
    produced = (value for node in graph for value in node.outputs)
    for value in (*graph.inputs, *produced) if taken else ():
        if (found := taken.get(str(value.name))) is not None:
            keep(value, found)


def keep(value: ir.Value, found: onnx.TypeProto) -> None:
    """Keeps the type of one value."""
    value.meta[_KEY] = found


def kept_type(value: ir.Value) -> onnx.TypeProto | None:
    """The type that is kept beside a value; None for values of other types."""
    found: onnx.TypeProto | None = value.meta.get(_KEY)
    return found


def put_back(graph: onnx.GraphProto, values: Iterable[ir.Value]) -> None:
    """Writes the kept types of some values into the inputs and outputs of a graph."""
    kept = {value.name: found for value in values if (found := kept_type(value)) is not None}
    for info in (*graph.input, *graph.output) if kept else ():
        if info.name in kept:
            info.type.CopyFrom(kept[info.name])
