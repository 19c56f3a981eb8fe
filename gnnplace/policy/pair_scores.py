"""The head of the policy, compiled for searches that score one placement of one problem after another.

Between two encodings of the graph the contributions of units and devices to a score stay the same: `head_parts` computes them
once, and `pair_scores` adds those of the pair's own features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from torch import Tensor

from gnnplace.arrays import FloatArray
from gnnplace.policy.features import Float32Array
from gnnplace.policy.network import PolicyInputs, PolicyNetwork

__all__ = ["HeadParts", "head_parts", "pair_scores"]


class HeadParts(NamedTuple):
    """Weights of the head, and the contributions of units and devices to its hidden layer."""

    prior: Float32Array  # [F]
    pair: Float32Array  # [F, H]
    context: Float32Array  # [C, H]
    score: Float32Array  # [H]
    units: Float32Array  # [U, H]
    devices: Float32Array  # [D, H]


def head_parts(network: PolicyNetwork, inputs: PolicyInputs, embeddings: Tensor) -> HeadParts:
    """The parts for the embeddings `[U, 1, H]` of one placement."""
    parts = network.head.parts(embeddings[:, 0], embeddings[:, 0].mean(dim=0), network.device_features(inputs))
    return HeadParts(*(np.ascontiguousarray(part.detach().numpy()) for part in parts))


@njit(cache=True, nogil=True, fastmath=True)
def pair_scores(parts: HeadParts, pair: Float32Array, context: Float32Array) -> FloatArray:
    """`[U, D]` logits of `PolicyNetwork.logits` for every unit, up to rounding and without the mask.

    `pair` is `[U, D, F]`, `context` `[U, C]`.
    """
    units, devices, features = pair.shape
    flat = np.ascontiguousarray(pair).reshape(units * devices, features)
    linear, of_pair = np.dot(flat, parts.prior), np.dot(flat, parts.pair)
    of_unit = parts.units + np.dot(context, parts.context)
    scores = np.empty((units, devices))
    for unit in range(units):
        for device in range(devices):
            row = unit * devices + device
            total = linear[row]
            for index in range(len(parts.score)):
                hidden = of_pair[row, index] + of_unit[unit, index] + parts.devices[device, index]
                total += max(np.float32(0.0), hidden) * parts.score[index]
            scores[unit, device] = total
    return scores
