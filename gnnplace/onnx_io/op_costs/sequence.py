"""Attention and recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping

from gnnplace.onnx_io.op_costs.call import Call, Rule
from gnnplace.onnx_io.op_costs.reduction import SOFTMAX_FLOPS

__all__ = ["SEQUENCE_FLOPS"]


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
