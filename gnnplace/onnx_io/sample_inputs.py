"""Models in ONNX's text form, as the bytes of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.model import OnnxModel

__all__ = ["model_from_text", "probe_model", "sample_inputs"]


def model_from_text(text: str) -> bytes:
    """The bytes of the `.onnx` file that the text describes; see `onnx.parser` for its grammar.

    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    >>> onnx.load_from_string(model_from_text(text)).graph.node[0].op_type
    'Relu'
    """
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def probe_model(num_floats: int, source: str, target: str) -> bytes:
    """A model of one op: the tensor `target` is the negative of `source`, both of `num_floats` float32 numbers."""
    tensor, shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([num_floats])
    read = ir.Value(name=source, shape=shape, type=tensor)
    node = ir.node("Neg", inputs=[read], name="probe")
    written = node.outputs[0]
    written.name, written.shape, written.type = target, shape, tensor
    graph = ir.Graph([read], [written], nodes=[node], opset_imports={"": 13}, name="probe")
    return bytes(ir.to_proto(ir.Model(graph, ir_version=8)).SerializeToString())


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
