"""Models in ONNX's text form, as the bytes of a file."""

from __future__ import annotations

import onnx

__all__ = ["model_from_text"]


def model_from_text(text: str) -> bytes:
    """The bytes of the `.onnx` file that the text describes; see `onnx.parser` for its grammar.

    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    >>> onnx.load_from_string(model_from_text(text)).graph.node[0].op_type
    'Relu'
    """
    return bytes(onnx.parser.parse_model(text).SerializeToString())
