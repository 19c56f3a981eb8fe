"""Policies without training: scores of moves that are linear in the features of the schedule."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.policy.decisions import no_decisions
from gnnplace.policy.network import PolicyInputs, PolicyNetwork, PolicyParts
from gnnplace.policy.pair_features import CONTEXT, PAIR
from gnnplace.policy.pair_scores import HeadParts

PRIOR: Mapping[str, float] = {
    "is_current": 2.0,
    "slack_kept": 10.0,
    "path_change": -1.0,
    "transfer_change": -0.5,
    "load_after": -1.0,
    "fits": 2.0,
}
"""Weights by hand: an op with slack stays where it is; a critical one goes where the longest path, the transfers or the busiest
device get shorter."""


def begin_as_prior(network: PolicyNetwork) -> None:
    """Makes the scores of moves those of `PRIOR`; the network learns from there on."""
    names = PAIR._fields[: network.head.num_pair]
    with torch.no_grad():
        network.head.linear.weight.copy_(torch.tensor([[PRIOR.get(name, 0.0) for name in names]]))
        network.head.score.weight.zero_()


@dataclass(frozen=True)
class LinearPolicy:
    """Scores of moves by fixed weights of pair features; it builds no schedules and has nothing to train."""

    weights: Mapping[str, float]
    """Weights by the names of pair features; others are 0."""

    decides = False

    def parts(self, inputs: PolicyInputs, nodes: Tensor, edges: Tensor) -> PolicyParts:
        """The parts for compiled code; the encoder's features `nodes` and `edges` do not matter."""
        linear = np.array([self.weights.get(name, 0.0) for name in PAIR._fields], dtype=np.float32)

        def nothing(rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
            return np.zeros((rows, 1), dtype=np.float32)

        moves = HeadParts(
            linear, nothing(len(PAIR)), nothing(len(CONTEXT)), np.zeros(1, dtype=np.float32),
            nothing(len(inputs.features.nodes)), nothing(len(inputs.devices)),
        )  # fmt: skip
        return PolicyParts(moves, no_decisions())
