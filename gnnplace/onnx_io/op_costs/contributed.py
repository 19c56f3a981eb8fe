"""Operators that ONNX Runtime adds to ONNX: fused, quantised and blocked ones of optimised models, by its ContribOperators.md.

Keys are `domain::Type`. A fused operator costs what its parts cost. Packed weights count their bytes as they are stored, and two FLOPs
for each number that is unpacked.
"""

import math
from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.elementwise import ELEMENTWISE_FLOPS, MOVED_BYTES
from gnnplace.onnx_io.op_costs.matrix import MATRIX_FLOPS
from gnnplace.onnx_io.op_costs.reduction import REDUCTION_FLOPS, SOFTMAX_FLOPS

_MS, _BLOCKED, _CHANNELS_LAST = "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"
CONTRIBUTED_INTEGER_PRODUCTS = frozenset(
    f"{_MS}::{name}"
    for name in (
        "DynamicQuantizeMatMul",
        "MatMulInteger16",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
    )
)
"""Operators that multiply integers, although their scales are floats."""
_QUANTISE, _DEQUANTISE, _UNPACK, _ROTATE = 5.0, 2.0, 2.0, 3.0
_ACTIVATIONS: Mapping[str, float] = {
    "": 0,
    "identity": 0,
    "relu": 1,
    "tanh": 1,
    "leakyrelu": 2,
    "clip": 2,
    "silu": 5,
    "swiglu": 7,
}
_OTHER_ACTIVATION = 4.0  # a sigmoid


def _activation(call: Call) -> float:
    """FLOPs per element of the activation that the op applies to its output."""
    name = call.text("activation", call.text("activation_type", ""))
    return _ACTIVATIONS.get(name.lower(), _OTHER_ACTIVATION)


def _depth(call: Call, position: int = 0) -> int:
    """Number of products per element of a matrix product whose first factor is the input at `position`."""
    return call.input(position).size_along(-2 if call.number("transA", 0) else -1)


def _product(more: float = 0.0, bias: int | None = None) -> Rule:
    """A matrix product with `more` FLOPs per element of the output, a scale and an activation if the node has them, and a bias."""

    def flops(call: Call) -> float:
        scale = call.node.attributes.get_float("alpha", 1.0) != 1.0
        each = 2.0 * _depth(call) + more + scale + _activation(call) + (bias is not None and call.has(bias))
        return each * call.output().size

    return flops


def _packed_product(bias: int | None) -> Rule:
    """A product with packed weights `[K, N]`, which are unpacked once."""

    def flops(call: Call) -> float:
        depth = call.number("K", 0) or call.input().size_along(-1)
        return _product(bias=bias)(call) + _UNPACK * depth * call.output().size_along(-1)

    return flops


def _quantising_product(call: Call) -> float:
    """Quantises the first factor, multiplies integers, and scales the result."""
    return _product(_DEQUANTISE, bias=4)(call) + 7.0 * call.input().size


def _convolution(call: Call) -> float:
    """A convolution with a bias, a sum and an activation if the node has them."""
    window = math.prod(call.input(1).shape[1:])
    return (2.0 * window + call.has(2) + call.has(3) + _activation(call)) * call.output().size


def _transposed(weights: int, bias: int) -> Rule:
    return lambda call: (
        2.0 * call.input().size * math.prod(call.input(weights).shape[1:]) + call.has(bias) * call.output().size
    )


def _scores(scores: float, width: float, value_width: float, *, biased: bool) -> float:
    """Scores, scaling, softmax and the weighted sum of values; masks save nothing."""
    return scores * (2 * width + 2 * value_width + 1 + biased + SOFTMAX_FLOPS)


def _self_attention(past: int | None, attention_bias: int | None) -> Rule:
    """The projections of queries, keys and values, and attention over these and past keys; the input is `[B, S, width]`."""

    def flops(call: Call) -> float:
        weights, heads = call.input(1).shape, max(call.number("num_heads", 1), 1)
        tokens = call.input().size // max(call.input().size_along(-1), 1)
        projected = weights[-1] if weights else 0
        sizes = call.node.attributes.get_ints("qkv_hidden_sizes", (projected // 3,) * 3)
        lengths = call.input().size_along(1) if len(call.input().shape) == 3 else tokens
        keys = lengths + (0 if past is None or not call.has(past) else call.input(past).size_along(3))
        biased = attention_bias is not None and call.has(attention_bias)
        projections = tokens * projected * (2.0 * call.input().size_along(-1) + call.has(2))
        return projections + _scores(float(tokens * keys * heads), sizes[0] / heads, sizes[-1] / heads, biased=biased)

    return flops


def _multi_head_attention(past: int) -> Rule:
    """Attention of projected queries `[B, S, heads * width]`, also packed with keys and values `[B, S, heads, 3, width]`."""

    def flops(call: Call) -> float:
        heads = max(call.number("num_heads", 1), 1)
        query, key, value = call.input().shape, call.input(1).shape, call.input(2).shape
        if len(query) == 5:
            tokens, width, keys = query[0] * query[1], float(query[4]), query[1]
        else:
            tokens, width = math.prod(query[:2]), query[-1] / heads if query else 0.0
            keys = key[2] if len(key) == 4 else key[1] if len(key) in (3, 5) else 0
        value_width = value[3] if len(value) == 4 else value[2] / heads if len(value) == 3 else width
        keys += call.input(past).size_along(2) if call.has(past) else 0
        return _scores(float(tokens * keys * heads), width, value_width, biased=call.has(5 if past == 6 else 4))

    return flops


def _group_query_attention(call: Call) -> float:
    """Attention whose heads share keys and values; the cache, of any length, counts as full, a local window limits it."""
    heads, shared = max(call.number("num_heads", 1), 1), max(call.number("kv_num_heads", 1), 1)
    query = (*call.input().shape, 1, 1, 1)[:3]
    packs_all = not call.has(1)
    width = query[2] / (heads + 2 * shared if packs_all else heads)
    past, present = call.input(3), call.output(1)
    keys = present.size_along(2) if len(present.shape) == 4 else query[1] + (past.size_along(2) if call.has(3) else 0)
    window = call.number("local_window_size", -1)
    keys = min(keys, window) if window > 0 else keys
    tokens = query[0] * query[1]
    rotated = _ROTATE * tokens * width * (heads + shared) if call.number("do_rotary", 0) else 0.0
    return rotated + _scores(float(tokens * keys * heads), width, width, biased=call.has(10))


def _experts(*weights: int) -> Rule:
    """The `k` experts of each token, whose matrices are the inputs at `weights`, `[experts, ...]`, several numbers to a byte if packed."""

    def flops(call: Call) -> float:
        tokens = call.input().size // max(call.input().size_along(-1), 1)
        per_expert = sum(math.prod(call.input(position).shape[1:]) for position in weights if call.has(position))
        packed = 8 / call.number("expert_weight_bits", 4) if call.node.op_type == "QMoE" else 1.0
        return 2.0 * tokens * call.number("k", 1) * per_expert * packed

    return flops


def _per_output(flops: float, *optional: int) -> Rule:
    """FLOPs per element of the output, and one more for each of these inputs that is present."""
    return lambda call: (flops + sum(map(call.has, optional)) + _activation(call)) * call.output().size


def _quantised_pool(call: Call) -> float:
    window = math.prod(call.node.attributes.get_ints("kernel_shape", (1,)))
    return _DEQUANTISE * call.input().size + (window + _QUANTISE) * call.output().size


def _quantised_mean(call: Call) -> float:
    return (_DEQUANTISE + 1) * call.input().size + _QUANTISE * call.output().size


_PRODUCTS: Mapping[str, Rule] = {
    **dict.fromkeys(("FusedMatMul", "FusedMatMulActivation", "SparseToDenseMatMul", "TransposeMatMul"), _product()),
    "MatMulInteger16": _product(),
    "MatMulIntegerToFloat": _product(_DEQUANTISE, bias=6),
    "DynamicQuantizeMatMul": _quantising_product,
    "MatMulNBits": _packed_product(bias=5),
    "MatMulBnb4": _packed_product(bias=None),
    "MatMulFpQ4": _packed_product(bias=None),
    "MatMulBlockQuantizedFp4Weight": _packed_product(bias=5),
    "MatMulBlockQuantizedFp8Weight": _packed_product(bias=4),
    "FusedGemm": _product(bias=2),
    "GemmFloat8": _product(bias=2),
    "GemmFastGelu": _product(9.0, bias=2),
    "QGemm": _product(_QUANTISE, bias=6),
    **dict.fromkeys(("FusedConv", "NhwcConv", "NhwcFusedConv"), _convolution),
    "ConvTransposeWithDynamicPads": _transposed(weights=1, bias=3),
    "QLinearConv": MATRIX_FLOPS["QLinearConv"],
    "Attention": _self_attention(past=4, attention_bias=5),
    "QAttention": _self_attention(past=8, attention_bias=None),
    "PackedAttention": _self_attention(past=None, attention_bias=5),
    "DecoderMaskedSelfAttention": _self_attention(past=4, attention_bias=5),
    "MultiHeadAttention": _multi_head_attention(past=6),
    "DecoderMaskedMultiHeadAttention": _multi_head_attention(past=5),
    "GroupQueryAttention": _group_query_attention,
    "SparseAttention": _group_query_attention,
    "LinearAttention": MATRIX_FLOPS["LinearAttention"],
    "CausalConvWithState": MATRIX_FLOPS["CausalConvWithState"],
    "MoE": _experts(2, 4, 6),
    "QMoE": _experts(2, 5, 8),
}
_OTHERS: Mapping[str, Rule] = {
    "SkipLayerNormalization": _per_output(8.0 + 1, 4),
    "SkipSimplifiedLayerNormalization": _per_output(4.0 + 1, 3),
    # up to three embeddings and their sum, then a normalisation
    "EmbedLayerNormalization": _per_output(8.0 + 1, 4),
    "GroupNorm": _per_output(8.0),
    "SkipGroupNorm": _per_output(8.0 + 1, 4),
    "BiasAdd": _per_output(2.0),
    "BiasGelu": _per_output(5.0 + 1),
    "BiasSplitGelu": _per_output(5.0 + 3),
    "BiasSoftmax": _per_output(SOFTMAX_FLOPS + 1),
    "FastGelu": _per_output(9.0, 1),
    "Gelu": _per_output(5.0),
    "QuickGelu": _per_output(6.0),
    "RotaryEmbedding": _per_output(_ROTATE),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _per_output(2 * _DEQUANTISE + 1 + _QUANTISE)),
    "QLinearLeakyRelu": _per_output(_DEQUANTISE + 2 + _QUANTISE),
    "QLinearSigmoid": _per_output(_DEQUANTISE + 4 + _QUANTISE),
    "QLinearSoftmax": _per_output(_DEQUANTISE + SOFTMAX_FLOPS + _QUANTISE),
    **dict.fromkeys(("QLinearConcat", "QLinearWhere"), _per_output(_DEQUANTISE + _QUANTISE)),
    "QLinearAveragePool": _quantised_pool,
    **dict.fromkeys(("QLinearGlobalAveragePool", "QLinearReduceMean"), _quantised_mean),
    "QuantizeLinear": ELEMENTWISE_FLOPS["QuantizeLinear"],
    "DequantizeLinear": ELEMENTWISE_FLOPS["DequantizeLinear"],
    "GatherBlockQuantized": _per_output(_UNPACK),
    "NhwcMaxPool": REDUCTION_FLOPS["MaxPool"],
    **dict.fromkeys(("ExpandDims", "GatherND", "Pad", "TorchEmbedding", "Trilu"), _per_output(0.0)),
}
_IN_BLOCKS: Mapping[str, Rule] = {
    "Conv": _convolution,
    **{
        name: REDUCTION_FLOPS[name]
        for name in ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Upsample")
    },
    **dict.fromkeys(("ReorderInput", "ReorderOutput"), _per_output(0.0)),
}
_STANDARD: Mapping[str, Rule] = {**MATRIX_FLOPS, **REDUCTION_FLOPS}
_WITH_CHANNELS_LAST: Mapping[str, Rule] = {
    **{
        name: _STANDARD[name]
        for name in (
            "AveragePool", "BatchNormalization", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample",
            "InstanceNormalization", "LRN", "LpPool", "MaxPool", "MaxUnpool", "QLinearConv", "Resize",
        )
    },
    "Conv": _convolution,
    "ConvTranspose": _transposed(weights=1, bias=2),
    "QLinearConvTranspose": _transposed(weights=3, bias=8),
    "QLinearAveragePool": _quantised_pool,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _per_output(0.0)),
}  # fmt: skip

CONTRIBUTED_FLOPS: Mapping[str, Rule] = {
    f"{domain}::{name}": rule
    for domain, table in (
        (_MS, {**_PRODUCTS, **_OTHERS}), (_BLOCKED, _IN_BLOCKS), (_CHANNELS_LAST, _WITH_CHANNELS_LAST)
    )
    for name, rule in table.items()
}  # fmt: skip
"""FLOPs by domain and op type."""


def _embedded(call: Call) -> float:
    """Reads as many rows of two or three tables as the output has, and writes it; ids and masks are small."""
    tables = 2 + call.has(4)
    ids = sum(call.input(position).bytes for position in (0, 1, 7, 8))
    return ids + call.output_bytes + tables * call.output().bytes


def _rows(call: Call) -> float:
    """The rows of packed weights that the indices name, with their share of the scales."""
    share = call.output().size / max(call.input().size, 1)
    return call.input(1).bytes + call.output_bytes + min(share, 1.0) * (call.input_bytes - call.input(1).bytes)


CONTRIBUTED_BYTES: Mapping[str, Rule] = {
    f"{_MS}::EmbedLayerNormalization": _embedded,
    f"{_MS}::GatherBlockQuantized": _rows,
    f"{_MS}::GatherND": MOVED_BYTES["GatherND"],
    f"{_MS}::TorchEmbedding": lambda call: 2.0 * call.output_bytes + call.input(1).bytes,
    f"{_MS}::ExpandDims": lambda call: 0.0,
}
"""Moved bytes by domain and op type, where they differ from all inputs and outputs."""
