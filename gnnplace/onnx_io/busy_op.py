"""An op that takes a chosen time and changes nothing, so that measurements can be tried on a known difference."""

from dataclasses import replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from gnnplace.onnx_io.part import Part

_NAME = "gnnplace.busy"


def busy_model(elements: int) -> bytes:
    """A model of one op, which draws random numbers: its time grows with their number, and no runtime computes it ahead."""
    graph = helper.make_graph([], "busy", [], [])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    _add_busy_op(model, elements)
    content: bytes = model.SerializeToString()
    return content


def with_busy_op(part: Part, elements: int) -> Part:
    """The part with one more op, which draws random numbers that no other op reads."""
    folder = part.data_folder
    if isinstance(part.model, Path):
        model, folder = onnx.load(part.model, load_external_data=False), part.model.parent
    else:
        model = onnx.load_model_from_string(part.model)
    _add_busy_op(model, elements)
    return replace(part, model=model.SerializeToString(), key=(part.key, elements), data_folder=folder)


def _add_busy_op(model: onnx.ModelProto, elements: int) -> None:
    model.graph.node.append(helper.make_node("RandomUniform", [], [_NAME], shape=[elements], seed=0.0))
    model.graph.output.append(helper.make_tensor_value_info(_NAME, TensorProto.FLOAT, [elements]))
