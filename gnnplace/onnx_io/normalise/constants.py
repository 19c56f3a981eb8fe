"""The elements of constants, where they may be looked at: external data beyond a few bytes is never read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["READABLE", "constant_array", "constant_tensor"]

READABLE = frozenset({
    ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64,
    ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE,
})  # fmt: skip
"""Dtypes that numpy has itself."""

_EXTERNAL_READ_BYTES = 1024


def constant_array(tensor: ir.TensorProtocol) -> NDArray[Any] | None:
    """The elements of a constant; None for dtypes that are not `READABLE` and for external data beyond 1 KiB."""
    if tensor.dtype not in READABLE:
        return None
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor.numpy()
    if tensor.nbytes > _EXTERNAL_READ_BYTES:
        return None
    # onnx-ir would map the whole file, and refuses one that has a second name, as the data of a split model has.
    with Path(tensor.path).open("rb") as file:
        file.seek(tensor.offset or 0)
        elements = np.frombuffer(file.read(tensor.nbytes), dtype=tensor.dtype.numpy().newbyteorder("<"))
    return elements.astype(tensor.dtype.numpy()).reshape(tensor.shape.numpy())


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None for a sparse one, and for one that breaks ONNX's rules."""
    if len(node.attributes) != 1 or len(node.outputs) != 1 or "sparse_value" in node.attributes:
        return None
    try:
        return ir.convenience.get_const_tensor(node.outputs[0])
    except ValueError:  # an attribute that Constant does not have
        return None
