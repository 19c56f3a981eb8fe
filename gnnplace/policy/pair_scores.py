"""The head compiled, for a search that asks about one placement of one problem after the other.

Between two encodings of the graph most of what goes into a score stays as it is: the unit's part and the device's part are
added up once, and a question costs what its own features do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from torch import Tensor

from gnnplace.arrays import FloatArray
from gnnplace.policy.features import Float32Array
from gnnplace.policy.network import PolicyInputs, PolicyNetwork

__all__ = ["KnownParts", "known_parts", "pair_scores"]


class KnownParts(NamedTuple):
    """Weights, and what they make of an encoding."""

    prior: Float32Array  # [F]
    pair: Float32Array  # [F, H]
    context: Float32Array  # [C, H]
    score: Float32Array  # [H]
    units: Float32Array  # [U, H]
    devices: Float32Array  # [D, H]


def known_parts(network: PolicyNetwork, inputs: PolicyInputs, embeddings: Tensor) -> KnownParts:
    """Of the embeddings `[U, 1, H]` of one placement."""
    parts = network.head.parts(embeddings[:, 0], embeddings[:, 0].mean(dim=0), network.devices(inputs))
    return KnownParts(*(np.ascontiguousarray(part.detach().numpy()) for part in parts))


@njit(cache=True, nogil=True, fastmath=True)
def pair_scores(parts: KnownParts, pair: Float32Array, context: Float32Array) -> FloatArray:
    """`[U, D]` what `PolicyNetwork.logits` gives for every unit, up to rounding and without the mask.

    `pair` is `[U, D, F]`, `context` `[U, C]`.
    """
    units, devices, features = pair.shape
    flat = np.ascontiguousarray(pair).reshape(units * devices, features)
    linear, of_pair = np.dot(flat, parts.prior), np.dot(flat, parts.pair)
    about = parts.units + np.dot(context, parts.context)
    scores = np.empty((units, devices))
    for unit in range(units):
        for device in range(devices):
            row = unit * devices + device
            total = linear[row]
            for index in range(len(parts.score)):
                hidden = of_pair[row, index] + about[unit, index] + parts.devices[device, index]
                total += max(np.float32(0.0), hidden) * parts.score[index]
            scores[unit, device] = total
    return scores
