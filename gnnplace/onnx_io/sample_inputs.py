"""Made-up inputs that any model accepts, for measuring: time depends on shapes, hardly ever on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.model import OnnxModel

__all__ = ["sample_inputs"]


def sample_inputs(model: OnnxModel, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """One array per input that must be given, at the model's chosen dimensions.

    Floats are uniform in [0, 1), so that logarithms and roots of them are finite. Integers are 0, an index that every
    axis has; a scalar is 1, as it may say how often a loop runs. Booleans are true, since most are masks.

    Raises:
        UnsupportedModel: an input is no tensor, or is complex.
    """
    return {
        str(value.name): _sample(value, model, rng) for value in model.model.graph.inputs if not value.is_initializer()
    }


def _sample(value: ir.Value, model: OnnxModel, rng: np.random.Generator) -> NDArray[Any]:
    if not isinstance(value.type, ir.TensorType):
        raise UnsupportedModel(
            f"input {value.name!r} of {model.path.name} is no tensor but {value.type}; measuring needs tensors"
        )
    shape = _shape(value, model)
    dtype = value.type.dtype
    if dtype == ir.DataType.STRING:
        return np.full(shape, "a", dtype=object)
    if dtype == ir.DataType.BOOL:
        return np.ones(shape, dtype=np.bool_)
    if dtype.is_integer():
        return np.full(shape, 0 if shape else 1, dtype=dtype.numpy())
    if dtype.is_floating_point():
        return rng.random(shape).astype(dtype.numpy())
    raise UnsupportedModel(f"input {value.name!r} of {model.path.name} is {dtype.name}; expected real numbers")


def _shape(value: ir.Value, model: OnnxModel) -> tuple[int, ...]:
    sizes = []
    for position, axis in enumerate(value.shape or ()):
        size = axis if isinstance(axis, int) else axis.value
        unnamed = not isinstance(size, str) or not size
        name = f"{value.name}.{position}" if unnamed else str(size)
        sizes.append(size if isinstance(size, int) and size >= 0 else model.dims.get(name, 1))
    return tuple(sizes)
