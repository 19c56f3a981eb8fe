"""Operators that compute nothing: they look at their input differently, or copy parts of it.

Other bytes than "all inputs and all outputs" are stated here, for operators of every kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.elementwise import ELEMENTWISE_FLOPS

__all__ = ["COPYING", "MOVED_BYTES", "VIEWS"]

VIEWS = frozenset({
    "BitCast", "Constant", "Flatten", "Identity", "Optional", "OptionalGetElement", "OptionalHasElement", "Reshape",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape",
    "Size", "Squeeze", "Unsqueeze",
})  # fmt: skip
"""No data moves: shapes and references change."""

COPYING = frozenset({
    "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape", "DepthToSpace", "Expand", "EyeLike",
    "Gather", "GatherElements", "GatherND", "ImageDecoder", "OneHot", "Pad", "RegexFullMatch", "ReverseSequence",
    "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "SplitToSequence", "StringConcat",
    "StringNormalizer", "StringSplit", "TensorScatter", "Tile", "Transpose", "Trilu",
})  # fmt: skip
"""Data moves, and nothing is computed."""


def _nothing(call: Call) -> float:
    del call
    return 0.0


def _what_is_taken(call: Call) -> float:
    """The elements that come out are read and written; the rest of the first input is not touched, indices are read."""
    return 2.0 * call.output_bytes + (call.input_bytes - call.input().bytes)


def _dropout(call: Call) -> float:
    return call.input_bytes + call.output_bytes if ELEMENTWISE_FLOPS["Dropout"](call) else 0.0


def _scatter(call: Call) -> float:
    """The whole input is copied, and the updates are read and written once more."""
    return call.input_bytes + call.output_bytes + call.input(2).bytes


def _rois(call: Call) -> float:
    """What is read of the image is what the regions cover, which is taken as the output's size times the samples."""
    samples = max(call.number("sampling_ratio", 0), 1) ** 2
    return call.output_bytes * (1 + 4 * samples) + (call.input_bytes - call.input().bytes)


MOVED_BYTES: Mapping[str, Rule] = {
    **dict.fromkeys(VIEWS, _nothing),
    **dict.fromkeys(("CenterCropPad", "Gather", "GatherElements", "GatherND", "Slice"), _what_is_taken),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter),
    **dict.fromkeys(("EyeLike", "RandomNormalLike", "RandomUniformLike"), lambda call: float(call.output_bytes)),
    "Dropout": _dropout, "RoiAlign": _rois,
}  # fmt: skip
