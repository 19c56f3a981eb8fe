"""Convolutions, matrix products, attention, recurrent layers: FLOPs are mostly twice the multiply-accumulates."""

import math
from collections import Counter
from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.reduction import SOFTMAX_FLOPS

INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
"""Operators that multiply integers, although their scales are floats."""


def _convolution(weights: int, bias: int | None) -> Rule:
    """Each output element sums the window of its channel group: `weights` is `[M, C / group, k...]`."""
    return lambda call: (2.0 * _window(call, weights) + (bias is not None and call.has(bias))) * call.output().size


def _window(call: Call, weights: int = 1) -> int:
    return math.prod(call.input(weights).shape[1:])


def _deformable_convolution(call: Call) -> float:
    """Every value of a window is interpolated between four values (8 FLOPs) and masked (1 FLOP)."""
    kernel = math.prod(call.input(1).shape[2:])
    positions = call.output().size // max(call.input().size_along(0) * call.input(1).shape[0], 1)
    sampled = call.input().size_along(0) * call.input().size_along(1) * positions * kernel
    return (2.0 * _window(call) + call.has(3)) * call.output().size + (8.0 + call.has(4)) * sampled


def _causal_convolution(call: Call) -> float:
    activation = 5.0 if call.text("activation", "none") != "none" else 0.0
    return (2.0 * _window(call) + call.has(2) + activation) * call.output().size


def _gemm(call: Call) -> float:
    """`alpha A B + beta C`; scaling by 1 is free."""
    depth = call.input().size_along(0 if call.number("transA", 0) else 1)
    return (2.0 * depth + call.has(2)) * call.output().size


def _einsum(call: Call) -> float:
    """One nest of loops: a product per further operand, and a sum if the loops exceed the output."""
    terms = call.text("equation", "").replace(" ", "").split("->")[0].split(",")
    sizes: Counter[str] = Counter()
    for term, tensor in zip(terms, call.inputs, strict=False):
        shape = () if tensor is None else tensor.shape
        before, ellipsis, after = term.partition("...")
        hidden = len(shape) - len(before) - len(after) if ellipsis else 0
        labels = [*before, *(f".{axis}" for axis in range(hidden, 0, -1)), *after]
        for label, size in zip(labels, shape, strict=False):
            sizes[label] = max(sizes[label], size)
    loops = math.prod(sizes.values())
    return float(loops * (len(terms) - 1 + (loops > call.output().size)))


def _heads(call: Call, position: int, attribute: str) -> tuple[int, int, int, int]:
    """Batch, heads, length and head width of an input `[B, heads, length, width]` or `[B, length, heads * width]`."""
    shape = call.input(position).shape
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    heads = max(call.number(attribute, 1), 1)
    batch, length, width = shape if len(shape) == 3 else (1, 1, shape[-1] if shape else 0)
    return batch, heads, length, width // heads


def _attention(call: Call) -> float:
    """Scores, scaling, softmax and the weighted sum over past and new keys; a causal mask saves nothing."""
    batch, heads, queries, width = _heads(call, 0, "q_num_heads")
    keys = _heads(call, 1, "kv_num_heads")[2]
    if call.has(4) and len(call.input(4).shape) == 4:
        keys += call.input(4).shape[2]
    value_width = _heads(call, 2, "kv_num_heads")[3]
    scores = float(batch * heads * queries * keys)
    return scores * (2 * width + 2 * value_width + 1 + call.has(3) + SOFTMAX_FLOPS)


def _linear_attention(call: Call) -> float:
    """Decays, corrects and updates the state by an outer product, and reads it by the query, per token and head."""
    batch, heads, tokens, width = _heads(call, 0, "q_num_heads")
    _, states, _, value_width = _heads(call, 2, "kv_num_heads")
    rule = call.text("update_rule", "gated_delta")
    per_state = 2 + ("gated" in rule) + 2 * ("delta" in rule)
    return float(batch * tokens * width * value_width * (per_state * states + 2 * heads))


def _recurrent(gates: int, elementwise: int) -> Rule:
    """Two matrix products per gate and step, and `elementwise` FLOPs per element of the new state."""

    def flops(call: Call) -> float:
        directions, _, width = (*call.input(1).shape, 1, 1, 1)[:3]
        hidden = (*call.input(2).shape, 1, 1, 1)[2]
        steps = call.input().size_along(0) * call.input().size_along(1)  # [T, B, F] or, by layout, [B, T, F]
        bias = 2 * gates if call.has(3) else 0
        return float(directions * steps * hidden * (gates * 2 * (width + hidden) + bias + elementwise))

    return flops


MATRIX_FLOPS: Mapping[str, Rule] = {
    "Conv": _convolution(weights=1, bias=2),
    "ConvInteger": _convolution(weights=1, bias=None),
    "QLinearConv": _convolution(weights=3, bias=8),
    # each input element contributes to a window of outputs: weights are `[C, M / group, k...]`
    "ConvTranspose": lambda call: 2.0 * call.input().size * _window(call) + call.has(2) * call.output().size,
    "DeformConv": _deformable_convolution,
    "CausalConvWithState": _causal_convolution,
    **dict.fromkeys(
        ("MatMul", "MatMulInteger", "QLinearMatMul"),
        lambda call: 2.0 * call.output().size * call.input().size_along(-1),
    ),
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Attention": _attention,
    "LinearAttention": _linear_attention,
    # sums of the two products, activations (a sigmoid is 4), and the products and sums of the new state
    "RNN": _recurrent(gates=1, elementwise=1 + 1),
    "GRU": _recurrent(gates=3, elementwise=3 + 2 * 4 + 1 + 5),
    "LSTM": _recurrent(gates=4, elementwise=4 + 3 * 4 + 1 + 5),
}
