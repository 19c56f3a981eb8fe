"""What is known of one tensor when the model is read: dtype, shape, size, and the value when it is a small constant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["STRING_BYTES", "TensorInfo"]

STRING_BYTES = 16
"""Bytes taken for one element of a string tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorInfo:
    """A tensor at concrete dimensions.

    >>> TensorInfo(ir.DataType.INT4, (3, 3)).bytes
    5
    """

    dtype: ir.DataType | None
    """None for what is no tensor: a sequence, an optional, a map."""
    shape: tuple[int, ...]
    value: NDArray[Any] | None = None
    """The elements, when they are few and the same at every run."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def size_along(self, axis: int) -> int:
        """Elements along an axis; 1 where there is no such axis, as for a shape that had to be guessed."""
        return self.shape[axis] if -len(self.shape) <= axis < len(self.shape) else 1

    @property
    def bytes(self) -> int:
        """Bytes of the elements, packed; 0 for what is no tensor."""
        if self.dtype is None:
            return 0
        if self.dtype == ir.DataType.STRING:
            return STRING_BYTES * self.size
        return math.ceil(self.size * self.dtype.itemsize)

    @property
    def dtype_name(self) -> str:
        """The dtype as numpy and ml_dtypes write it: `float32`, `bfloat16`, `int8`, ...; `string`; `unknown`."""
        if self.dtype is None:
            return "unknown"
        return "string" if self.dtype == ir.DataType.STRING else self.dtype.numpy().name
