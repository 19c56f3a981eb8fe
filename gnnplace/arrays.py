"""Names of array types, read-only copies, and grouping by row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """A read-only copy of `values` as a contiguous array of `dtype`."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def csr(rows: IntArray, values: IntArray, num_rows: int) -> tuple[IntArray, IntArray]:
    """Values grouped by row in their order (CSR): offsets `[num_rows + 1]` and values `[len(rows)]`.

    >>> offsets, values = csr(np.array([1, 0, 1]), np.array([7, 8, 9]), 2)
    >>> offsets.tolist(), values.tolist()
    ([0, 1, 3], [8, 7, 9])
    """
    order = np.argsort(rows, kind="stable")
    offsets = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=offsets[1:])
    return frozen(offsets, np.int64), frozen(values[order], np.int64)
