"""Models from ONNX's text form and arrays."""

import numpy as np
import onnx

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>\n'


def parsed(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """The model of a text behind `HEAD`, with these initialisers."""
    proto = onnx.parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    return proto
