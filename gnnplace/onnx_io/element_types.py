"""Element types by the names that ONNX Runtime has for them; those that numpy lacks are numpy's by way of `ml_dtypes`.

Processes that measure import this, so it loads ONNX where it needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NARROW", "from_raw", "is_narrow", "numpy_dtype", "to_raw"]

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
