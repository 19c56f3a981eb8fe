"""Elementwise operators, and operators that only move data: FLOPs per element of the first output, moved bytes."""

from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule

_PER_ELEMENT: Mapping[str, float] = {
    # one operation
    **dict.fromkeys(
        (
            "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd",
            "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Cos", "Cosh", "Div", "Equal", "Erf",
            "Exp", "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Mod", "Mul",
            "Neg", "Not", "Or", "Pow", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
            "Range", "Reciprocal", "Relu", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Tan", "Tanh", "Where", "Xor",
        ),
        1.0,
    ),
    # activations, by their formulas in the specification
    "LeakyRelu": 2, "PRelu": 2, "ThresholdedRelu": 2, "Clip": 2, "Shrink": 3, "Softsign": 3, "Softplus": 3, "Elu": 3,
    "Celu": 6, "Selu": 4, "Sigmoid": 4, "HardSigmoid": 4, "HardSwish": 5, "Mish": 5, "Swish": 6, "SwiGLU": 7,
    # quantisation: scale, zero point, rounding, saturation
    "QuantizeLinear": 5, "DequantizeLinear": 2, "DynamicQuantizeLinear": 7,
    # a random number and a comparison
    "Bernoulli": 2,
    # rotation of a pair: two products and a sum per element
    "RotaryEmbedding": 3,
    # windows of signal processing, by the cosine terms of their formulas
    "HannWindow": 4, "HammingWindow": 4, "BlackmanWindow": 8, "MelWeightMatrix": 4,
}  # fmt: skip


def _per_element(flops: float) -> Rule:
    return lambda call: flops * call.output().size


def _gelu(call: Call) -> float:
    """`x / 2 (1 + erf(x / sqrt 2))`, or its approximation with tanh and a cube."""
    return (9 if call.text("approximate", "none") == "tanh" else 5) * call.output().size


def _dropout(call: Call) -> float:
    """Nothing at inference; a mask and a product in training."""
    training = call.input(2).value
    is_training = call.has(2) and (training is None or training.any())
    return 3.0 * call.output().size if is_training else 0.0


ELEMENTWISE_FLOPS: Mapping[str, Rule] = {
    **{op_type: _per_element(flops) for op_type, flops in _PER_ELEMENT.items()},
    # one operation per element and further input
    **dict.fromkeys(("Max", "Min", "Sum"), lambda call: (len(call.inputs) - 1) * call.output().size),
    "Mean": lambda call: len(call.inputs) * call.output().size,
    "Gelu": _gelu,
    "Dropout": _dropout,
}
"""FLOPs by op type, by a rule that takes the node."""

VIEWS = frozenset({
    "BitCast", "Constant", "Flatten", "Identity", "Optional", "OptionalGetElement", "OptionalHasElement", "Reshape",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape",
    "Size", "Squeeze", "Unsqueeze",
})  # fmt: skip
"""Operators that move no data: only shapes and references change."""

COPYING = frozenset({
    "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape", "DepthToSpace", "Expand", "EyeLike",
    "Gather", "GatherElements", "GatherND", "ImageDecoder", "OneHot", "Pad", "RegexFullMatch", "ReverseSequence",
    "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "SplitToSequence", "StringConcat",
    "StringNormalizer", "StringSplit", "TensorScatter", "Tile", "Transpose", "Trilu",
})  # fmt: skip
"""Operators that move data without computing."""


def _gathered(call: Call) -> float:
    """Reads and writes the elements of the output, and reads all inputs except the first."""
    return 2.0 * call.output_bytes + (call.input_bytes - call.input().bytes)


def _scatter(call: Call) -> float:
    """Copies the whole input, then reads and writes the updates."""
    return call.input_bytes + call.output_bytes + call.input(2).bytes


def _rois(call: Call) -> float:
    """Reads four pixels per sample of an output element, and all inputs except the image."""
    samples = max(call.number("sampling_ratio", 0), 1) ** 2
    return call.output_bytes * (1 + 4 * samples) + (call.input_bytes - call.input().bytes)


MOVED_BYTES: Mapping[str, Rule] = {
    **dict.fromkeys(VIEWS, lambda call: 0.0),
    **dict.fromkeys(("CenterCropPad", "Gather", "GatherElements", "GatherND", "Slice"), _gathered),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter),
    **dict.fromkeys(("EyeLike", "RandomNormalLike", "RandomUniformLike"), lambda call: float(call.output_bytes)),
    "Dropout": lambda call: call.input_bytes + call.output_bytes if _dropout(call) else 0.0,
    "RoiAlign": _rois,
}
"""Moved bytes by op type, where they differ from all inputs and outputs."""
