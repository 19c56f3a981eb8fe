"""Reductions, normalisations, pooling, resizing, losses, sorting, transforms: mostly FLOPs per input element."""

import math
from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule

SOFTMAX_FLOPS = 5.0
"""FLOPs per element: maximum, difference, exponential, sum, quotient."""

_PER_INPUT_ELEMENT: Mapping[str, float] = {
    **dict.fromkeys(
        ("ArgMax", "ArgMin", "CumProd", "CumSum", "Hardmax", "NonZero", "ReduceMax", "ReduceMean", "ReduceMin",
         "ReduceProd", "ReduceSum", "GlobalAveragePool", "GlobalMaxPool", "TfIdfVectorizer", "Multinomial",
         "Col2Im", "MaxUnpool", "NegativeLogLikelihoodLoss"),
        1.0,
    ),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare", "GlobalLpPool"), 2.0),
    "ReduceLogSumExp": 4, "Softmax": SOFTMAX_FLOPS, "LogSoftmax": SOFTMAX_FLOPS, "LpNormalization": 3,
    # mean and variance (4), then difference, quotient, scale and shift
    "LayerNormalization": 8, "GroupNormalization": 8, "InstanceNormalization": 8, "MeanVarianceNormalization": 7,
    "RMSNormalization": 4, "SimplifiedLayerNormalization": 4,
    "SoftmaxCrossEntropyLoss": SOFTMAX_FLOPS + 1,
}  # fmt: skip


def _per_input_element(flops: float) -> Rule:
    return lambda call: flops * call.input().size


def _pool(flops: float) -> Rule:
    return lambda call: flops * math.prod(call.node.attributes.get_ints("kernel_shape", (1,))) * call.output().size


def _batch_normalisation(call: Call) -> float:
    """A scale and a shift at inference, which runtimes merge from four; also statistics in training."""
    by_outputs = call.opset < 14 and sum(tensor is not None for tensor in call.outputs) > 1
    training = bool(call.number("training_mode", 0)) or by_outputs
    return (8.0 if training else 2.0) * call.output().size


def _interpolation(call: Call, dimensions: int, mode: str) -> float:
    """A product and a sum per output element and neighbour; nothing if the nearest neighbour is copied."""
    taps = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(mode, 0)
    return 2.0 * taps**dimensions * call.output().size if taps else 0.0


def _resize(call: Call) -> float:
    changed = sum(a != b for a, b in zip(call.input().shape, call.output().shape, strict=False))
    return _interpolation(call, changed, call.text("mode", "nearest"))


def _non_maximum_suppression(call: Call) -> float:
    """Per batch and class: a sort by score, and the overlap (12 FLOPs) of each kept box with all boxes."""
    batches, boxes = (*call.input().shape, 1, 1)[:2]
    classes = (*call.input(1).shape, 1, 1)[1]
    limit = call.input(2).value
    kept = boxes if limit is None or limit.size == 0 else min(int(limit.ravel()[0]), boxes)
    return float(batches * classes * (boxes * math.log2(max(boxes, 2)) + 12 * kept * boxes))


def _fourier(call: Call) -> float:
    """A fast Fourier transform per row: `5 n log2 n` for complex elements."""
    axis = call.number("axis", 1 if call.opset < 20 else -2)
    stated = call.input(2).value if call.opset >= 20 else None
    if stated is not None and stated.size == 1:
        axis = int(stated.ravel()[0])
    length = call.input().size_along(axis)
    rows = call.output().size / 2 / max(call.output().size_along(axis), 1)
    return 5.0 * rows * length * math.log2(max(length, 2))


def _short_time_fourier(call: Call) -> float:
    """A window and a fast Fourier transform per frame; the output is `[B, frames, bins, 2]`."""
    batch, frames, bins = (*call.output().shape, 1, 1, 1)[:3]
    length = call.input(2).size or 2 * (bins - 1)
    return batch * frames * (length + 5.0 * length * math.log2(max(length, 2)))


REDUCTION_FLOPS: Mapping[str, Rule] = {
    **{op_type: _per_input_element(flops) for op_type, flops in _PER_INPUT_ELEMENT.items()},
    "AveragePool": _pool(1),
    "MaxPool": _pool(1),
    "LpPool": _pool(2),
    "BatchNormalization": _batch_normalisation,
    # a sum of squares over neighbouring channels, then scale, shift, power and quotient
    "LRN": lambda call: (2.0 * call.number("size", 1) + 4.0) * call.output().size,
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": lambda call: _interpolation(call, len(call.output().shape[3:]) + 1, call.text("mode", "linear")),
    # the mean of samples that are interpolated between four neighbours
    "RoiAlign": lambda call: 9.0 * max(call.number("sampling_ratio", 0), 1) ** 2 * call.output().size,
    # every region is assumed to cover the whole image
    "MaxRoiPool": lambda call: float(
        (*call.input(1).shape, 0)[0] * call.input().size // max(call.input().size_along(0), 1)
    ),
    # comparisons of a sort of all elements
    "Unique": lambda call: call.input().size * math.log2(max(call.input().size, 2)),
    # comparisons of each element with a heap of the best `k`
    "TopK": lambda call: call.input().size * math.log2(max(call.output().size_along(call.number("axis", -1)), 2)),
    "NonMaxSuppression": _non_maximum_suppression,
    # elimination: two thirds of the cubed side length per matrix
    "Det": lambda call: 2.0 / 3.0 * call.input().size * call.input().size_along(-1),
    "DFT": _fourier,
    "STFT": _short_time_fourier,
    # a matrix-vector product per grid point
    "AffineGrid": lambda call: 2.0 * call.input().size_along(-1) * call.output().size,
}
