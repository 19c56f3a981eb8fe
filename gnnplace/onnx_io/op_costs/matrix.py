"""Convolutions and matrix products, and their quantised forms: FLOPs are twice the multiply-accumulates."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.reduction import SOFTMAX_FLOPS

__all__ = ["INTEGER_PRODUCTS", "MATRIX_FLOPS", "SEQUENCE_FLOPS", "einsum_flops"]


INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
"""Operators whose products are of integers, though their scales are floats."""


def _convolution(weights: int, bias: int | None) -> Rule:
    """Each output element sums the window of its channel group: `weights` is `[M, C / group, k...]`."""

    def flops(call: Call) -> float:
        window = math.prod(call.input(weights).shape[1:])
        has_bias = bias is not None and call.has(bias)
        return (2.0 * window + has_bias) * call.output().size

    return flops


def _transposed_convolution(call: Call) -> float:
    """Each input element is spread over a window: weights are `[C, M / group, k...]`."""
    return 2.0 * call.input().size * math.prod(call.input(1).shape[1:]) + call.has(2) * call.output().size


def _deformable_convolution(call: Call) -> float:
    """Every value that the window reads is interpolated between four, by 8 FLOPs, and masked by 1 more."""
    kernel = math.prod(call.input(1).shape[2:])
    positions = call.output().size // max(call.size_along(0) * call.input(1).shape[0], 1)
    sampled = call.size_along(0) * call.size_along(1) * positions * kernel
    window = math.prod(call.input(1).shape[1:])
    return 2.0 * window * call.output().size + call.has(3) * call.output().size + (8.0 + call.has(4)) * sampled


def _causal_convolution(call: Call) -> float:
    activation = 5.0 if call.text("activation", "none") != "none" else 0.0
    return (2.0 * math.prod(call.input(1).shape[1:]) + call.has(2) + activation) * call.output().size


def _matrix_product(call: Call) -> float:
    return 2.0 * call.output().size * call.size_along(-1)


def _gemm(call: Call) -> float:
    """`alpha A B + beta C`; scaling by 1 is free."""
    depth = call.size_along(0 if call.number("transA", 0) else 1)
    return (2.0 * depth + call.has(2)) * call.output().size


def _einsum(call: Call) -> float:
    shapes = [() if tensor is None else tensor.shape for tensor in call.inputs]
    return einsum_flops(call.text("equation", ""), shapes, call.output().size)


def einsum_flops(equation: str, shapes: list[tuple[int, ...]], output_size: int) -> float:
    """FLOPs of an Einsum evaluated in one nest of loops: a product per further operand, and a sum unless none is due.

    >>> einsum_flops("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], 2 * 3 * 5)
    240.0
    """
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes: Counter[str] = Counter()
    for term, shape in zip(terms, shapes, strict=False):
        letters = re.sub(r"\.\.\.", "", term)
        ellipsis = [f".{i}" for i in range(len(shape) - len(letters), 0, -1)] if "..." in term else []
        before = term.split("...")[0]
        labels = [*before, *ellipsis, *letters[len(before) :]]
        for label, size in zip(labels, shape, strict=False):
            sizes[label] = max(sizes[label], size)
    loops = math.prod(sizes.values())
    return float(loops * (len(terms) - 1 + (loops > output_size)))


MATRIX_FLOPS: Mapping[str, Rule] = {
    "Conv": _convolution(weights=1, bias=2),
    "ConvInteger": _convolution(weights=1, bias=None),
    "QLinearConv": _convolution(weights=3, bias=8),
    "ConvTranspose": _transposed_convolution,
    "DeformConv": _deformable_convolution,
    "CausalConvWithState": _causal_convolution,
    "MatMul": _matrix_product,
    "MatMulInteger": _matrix_product,
    "QLinearMatMul": _matrix_product,
    "Gemm": _gemm,
    "Einsum": _einsum,
}


def _heads(call: Call, position: int, attribute: str) -> tuple[int, int, int, int]:
    """Batch, heads, length and width of a head, of `[B, heads, length, width]` or `[B, length, heads * width]`."""
    shape = call.input(position).shape
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    heads = max(call.number(attribute, 1), 1)
    batch, length, width = shape if len(shape) == 3 else (1, 1, shape[-1] if shape else 0)
    return batch, heads, length, width // heads


def _attention(call: Call) -> float:
    """Scores, scaling, softmax and the weighted sum, over past and new keys; a causal mask saves nothing."""
    batch, heads, queries, width = _heads(call, 0, "q_num_heads")
    keys = _heads(call, 1, "kv_num_heads")[2]
    if call.has(4) and len(call.input(4).shape) == 4:
        keys += call.input(4).shape[2]
    value_width = _heads(call, 2, "kv_num_heads")[3]
    scores = float(batch * heads * queries * keys)
    return scores * (2 * width + 2 * value_width + 1 + call.has(3) + SOFTMAX_FLOPS)


def _linear_attention(call: Call) -> float:
    """For each token and head: the state is decayed, corrected, updated by an outer product, and read by the query."""
    batch, heads, tokens, width = _heads(call, 0, "q_num_heads")
    _, states, _, value_width = _heads(call, 2, "kv_num_heads")
    rule = call.text("update_rule", "gated_delta")
    per_state = 2 + ("gated" in rule) + 2 * ("delta" in rule)
    return float(batch * tokens * width * value_width * (per_state * states + 2 * heads))


def _recurrent(gates: int, elementwise: int) -> Rule:
    """Two matrix products for each gate and step, and `elementwise` FLOPs for each element of the new state."""

    def flops(call: Call) -> float:
        directions, _, width = (*call.input(1).shape, 1, 1, 1)[:3]
        hidden = (*call.input(2).shape, 1, 1, 1)[2]
        steps = call.size_along(0) * call.size_along(1)  # [T, B, F] or, by layout, [B, T, F]
        bias = 2 * gates if call.has(3) else 0
        return float(directions * steps * hidden * (gates * 2 * (width + hidden) + bias + elementwise))

    return flops


SEQUENCE_FLOPS: Mapping[str, Rule] = {
    "Attention": _attention,
    "LinearAttention": _linear_attention,
    # sums of the two products, activations (a sigmoid is 4), and the products and sums of the new state
    "RNN": _recurrent(gates=1, elementwise=1 + 1),
    "GRU": _recurrent(gates=3, elementwise=3 + 2 * 4 + 1 + 5),
    "LSTM": _recurrent(gates=4, elementwise=4 + 3 * 4 + 1 + 5),
}
