"""Element types by the names that ONNX Runtime has for them; those that numpy lacks are numpy's by way of `ml_dtypes`.

Processes that measure import this, so it loads ONNX where it needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = [
    "NARROW",
    "attach",
    "from_raw",
    "holds_map",
    "is_narrow",
    "keep",
    "kept_type",
    "numpy_dtype",
    "put_back",
    "set_aside",
    "to_raw",
]


NARROW = {
    "bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20,
    "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26,
}  # fmt: skip
"""ONNX's number for each element type that numpy lacks."""


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether it is a type that numpy lacks and `ml_dtypes` adds."""
    return dtype.isbuiltin == 2


def numpy_dtype(element: str) -> np.dtype[Any]:
    """The dtype of arrays of an element type; strings are objects.

    >>> numpy_dtype("float"), numpy_dtype("float8e4m3fn"), numpy_dtype("string")
    (dtype('float32'), dtype(float8_e4m3fn), dtype('O'))
    """
    from onnx_ir import DataType

    return DataType[element.upper()].numpy()


def to_raw(array: NDArray[Any]) -> tuple[int, bytes]:
    r"""The number of the element type, and the elements as ONNX stores them: those of less than eight bits packed.

    >>> import ml_dtypes
    >>> to_raw(np.array([1, 2, 3], dtype=ml_dtypes.uint4))
    (21, b'!\x03')
    """
    from onnx import numpy_helper

    proto = numpy_helper.from_array(array)
    return proto.data_type, proto.raw_data


def from_raw(element_type: int, shape: Sequence[int], raw: bytes) -> NDArray[Any]:
    """The array that `to_raw` was given."""
    from onnx import TensorProto, numpy_helper

    return np.asarray(numpy_helper.to_array(TensorProto(data_type=element_type, dims=shape, raw_data=raw)))


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
