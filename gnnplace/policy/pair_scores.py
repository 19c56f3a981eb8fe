"""The head of the policy, compiled for searches that score one placement of one problem after another.

Between two encodings of the graph the contributions of units and devices to a score stay the same: `PolicyNetwork.parts`
computes them once, and `pair_scores` adds those of the pair's own features.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import Float32Array, FloatArray


class HeadParts(NamedTuple):
    """The terms of `PairHead.forward` that pair features do not change."""

    linear: Float32Array  # [F] weights of the linear score
    pair: Float32Array  # [F, H] weights of pair features in the hidden layer
    context: Float32Array  # [C, H] weights of context features in the hidden layer
    score: Float32Array  # [H] weights of the hidden layer in the score
    units: Float32Array  # [U, H] contributions of units to the hidden layer
    devices: Float32Array  # [D, H] contributions of devices to the hidden layer


@njit(cache=True, nogil=True, fastmath=True)
def pair_scores(parts: HeadParts, pair: Float32Array, context: Float32Array) -> FloatArray:
    """`[U, D]` logits of `PolicyNetwork.logits` for every unit, up to rounding and without the mask.

    `pair` is `[U, D, F]`, `context` `[U, C]`; policies of fewer features read the first ones.
    """
    (units, devices, _), (features, _) = pair.shape, parts.pair.shape
    flat = np.ascontiguousarray(pair[:, :, :features]).reshape(units * devices, features)
    linear, of_pair = np.dot(flat, parts.linear), np.dot(flat, parts.pair)
    of_unit = parts.units + np.dot(np.ascontiguousarray(context[:, : len(parts.context)]), parts.context)
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
