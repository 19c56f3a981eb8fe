"""Generated inputs that a model accepts, and models from ONNX's text form."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.shapes.tensor_info import axis_names


def model_from_text(text: str) -> bytes:
    """The bytes of the `.onnx` file that the text describes; see `onnx.parser` for its grammar."""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def probe_model(num_floats: int, source: str, target: str) -> bytes:
    """A model of one op: the tensor `target` is the negative of `source`, both of `num_floats` float32 numbers."""
    return wide_probe_model(num_floats, [source], [target])


def wide_probe_model(num_floats: int, sources: Sequence[str], targets: Sequence[str]) -> bytes:
    """A model of one op for each of the tensors `targets`, which read all of `sources`: the negative of one, or a sum of several."""
    tensor, shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([num_floats])
    read = [ir.Value(name=name, shape=shape, type=tensor) for name in sources]
    nodes, written = [], []
    for number, target in enumerate(targets):
        inputs = read[number :: len(targets)] or read[:1]
        node = ir.node("Neg" if len(inputs) == 1 else "Sum", inputs=inputs, name=f"probe {number}")
        node.outputs[0].name, node.outputs[0].shape, node.outputs[0].type = target, shape, tensor
        nodes.append(node)
        written.append(node.outputs[0])
    graph = ir.Graph(read, written, nodes=nodes, opset_imports={"": 13}, name="probe")
    return bytes(ir.to_proto(ir.Model(graph, ir_version=8)).SerializeToString())


def sample_inputs(model: OnnxModel, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """One array per input without a default, at the model's dimensions: those that the model has, else random ones.

    Floats are uniform in [0, 1), so that logarithms and roots are finite. Integers are 0, a valid index of every axis;
    an integer scalar is 1, as it may be the trip count of a loop. Booleans are true, since most are masks.

    Raises:
        UnsupportedModel: an input is not a tensor, or is complex.
    """
    if model.inputs is not None:
        return dict(model.inputs)
    return {
        str(value.name): _sample(value, model, rng) for value in model.model.graph.inputs if not value.is_initializer()
    }


def _sample(value: ir.Value, model: OnnxModel, rng: np.random.Generator) -> NDArray[Any]:
    if not isinstance(value.type, ir.TensorType):
        raise UnsupportedModel(
            f"input {value.name!r} of {model.path.name} is no tensor but {value.type}; measuring needs tensors"
        )
    shape = tuple(axis if isinstance(axis, int) else model.dims.get(axis, 1) for axis in axis_names(value))
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
