"""Values whose type follows from no rule of ONNX, as behind operators of other domains: who they are, and their types once known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.split import MAX_IR_VERSION
from gnnplace.onnx_io.value_types import holds_map, keep, kept_type

__all__ = ["TypeText", "state_types", "with_untyped_outputs"]

TypeText = tuple[str, Sequence[int | str | None]]
"""A type and a shape as ONNX Runtime writes them, such as `tensor(float)` and `['N', 4]`."""

_MADE_UP = "unk__"  # how ONNX Runtime calls sizes that it does not know


def with_untyped_outputs(model: OnnxModel) -> bytes | None:
    """The model with every value of unknown type as one more output, for a runtime to tell; None when all are known."""
    values = _untyped(model.model.graph)
    if not values:
        return None
    proto = ir.to_proto(model.model)
    proto.ir_version = min(MAX_IR_VERSION, proto.ir_version)
    given = {output.name for output in proto.graph.output}
    for value in values:
        if value.name not in given:
            proto.graph.output.add(name=value.name)
    return bytes(proto.SerializeToString())


def state_types(model: OnnxModel, found: Mapping[str, TypeText]) -> None:
    """Writes types and shapes into the model's values that have none."""
    for value in _untyped(model.model.graph):
        if str(value.name) not in found:
            continue
        text, shape = found[str(value.name)]
        told = _type_proto(text)
        if holds_map(told):
            keep(value, told)
            continue
        value.type = ir.serde.deserialize_type_proto_for_type(told)
        if isinstance(value.type, ir.TensorType) and shape:  # empty says scalar, or unknown
            value.shape = ir.Shape([_size(size) for size in shape])


def _untyped(graph: ir.Graph) -> list[ir.Value]:
    return [
        value
        for node in graph
        for value in node.outputs
        if value.name and value.type is None and kept_type(value) is None
    ]


def _type_proto(text: str) -> onnx.TypeProto:
    """The type that ONNX Runtime writes so."""
    kind, _, rest = text.partition("(")
    inner = rest[:-1]
    if kind == "seq":
        return onnx.helper.make_sequence_type_proto(_type_proto(inner))
    if kind == "optional":
        return onnx.helper.make_optional_type_proto(_type_proto(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        return onnx.helper.make_map_type_proto(onnx.TensorProto.DataType.Value(key.upper()), _type_proto(value))
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(inner.upper()), None)


def _size(size: int | str | None) -> int | str | None:
    made_up = isinstance(size, str) and size.startswith(_MADE_UP)
    return None if made_up or (isinstance(size, int) and size < 0) else size
