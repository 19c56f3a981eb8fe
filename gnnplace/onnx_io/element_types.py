"""Element types of tensors, including those that numpy lacks."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

NARROW = {
    "bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20,
    "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26,
}  # fmt: skip
"""ONNX's number of each element type that numpy lacks and `ml_dtypes` adds."""


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether `ml_dtypes` defines the dtype."""
    return dtype.isbuiltin == 2


@cache
def numpy_dtype(element: str) -> np.dtype[Any]:
    """The numpy dtype of an element type, such as `float` or `float8e4m3fn`; strings are objects."""
    return helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(element.upper()))


def to_raw(array: NDArray[Any]) -> tuple[int, bytes]:
    """ONNX's number of the element type, and the elements as ONNX stores them (less than eight bits: packed)."""
    proto = numpy_helper.from_array(array)
    return proto.data_type, proto.raw_data


def from_raw(element_type: int, shape: Sequence[int], raw: bytes) -> NDArray[Any]:
    """The array with this element type, shape and stored elements: the inverse of `to_raw`."""
    return np.asarray(numpy_helper.to_array(TensorProto(data_type=element_type, dims=shape, raw_data=raw)))
