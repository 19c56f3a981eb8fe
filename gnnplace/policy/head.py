"""Scores of (unit, device) pairs with shared weights, so any number of devices works."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnplace.policy.pair_features import PAIR_FEATURES

__all__ = ["PairHead", "masked_logits"]

PRIOR = {
    "is_current": 2.0,
    "slack_kept": 10.0,
    "path_change": -1.0,
    "transfer_change": -0.5,
    "load_after": -1.0,
    "fits": 2.0,
}
"""What an untrained policy believes: an op with slack stays where it is, a critical one goes where the longest path, the
transfers or the busiest device get shorter."""


def masked_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """The logits `[..., D]` with minus infinity where `mask` is false: probability exactly 0."""
    return logits.masked_fill(~mask, -torch.inf)


class PairHead(nn.Module):
    """A score per device for one unit.

    The score is a linear function of the pair's features, which starts as `PRIOR` and is learned like everything else,
    plus a two-layer network that also sees the embeddings and starts at 0.
    """

    def __init__(self, hidden: int, device_features: int, context_features: int) -> None:
        """Weights for embeddings of width `hidden`."""
        super().__init__()
        pair_features = len(PAIR_FEATURES)
        self._context_features = context_features
        self.prior = nn.Linear(pair_features, 1, bias=False)
        self.unit = nn.Linear(hidden + context_features, hidden)
        self.graph = nn.Linear(hidden, hidden, bias=False)
        self.pair = nn.Linear(pair_features + device_features, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        with torch.no_grad():
            self.prior.weight.copy_(torch.tensor([[PRIOR.get(name, 0.0) for name in PAIR_FEATURES]]))
            self.score.weight.zero_()

    def forward(
        self, unit: Tensor, graph: Tensor, devices: Tensor, pair: Tensor, context: Tensor, mask: Tensor
    ) -> Tensor:
        """Masked logits `[R, D]` of `R` questions.

        `unit` `[R, H]` and `graph` `[R, H]` are embeddings, `devices` `[D, F]`, `pair` `[R, D, F]`, `context` `[R, F]`, `mask` `[R, D]`.
        """
        hidden = self._hidden(unit, graph, devices, pair, context)
        return masked_logits((self.prior(pair) + self.score(hidden)).squeeze(-1), mask)

    def parts(self, unit: Tensor, graph: Tensor, devices: Tensor) -> tuple[Tensor, ...]:
        """What `forward` comes down to for embeddings `[U, H]` of all units and `[H]` of the graph, and devices `[D, F]`.

        Weights of the linear score `[F]`, of pair `[F, H]` and context `[C, H]` in the hidden layer, and of its score
        `[H]`; then what units `[U, H]` and devices `[D, H]` add to the hidden layer, whatever is asked.
        """
        of_unit, of_context = torch.split(self.unit.weight, [unit.shape[-1], self._context_features], dim=1)
        of_pair, of_device = self._pair_weights(devices)
        units = nn.functional.linear(unit, of_unit, self.unit.bias) + self.graph(graph)
        return self.prior.weight[0], of_pair.T, of_context.T, self.score.weight[0], units, devices @ of_device.T

    def _hidden(self, unit: Tensor, graph: Tensor, devices: Tensor, pair: Tensor, context: Tensor) -> Tensor:
        about = self.unit(torch.cat([unit, context], dim=-1)) + self.graph(graph)
        # In place, since at R = 500 and D = 8 fresh memory costs as much as the arithmetic.
        of_pair, of_device = self._pair_weights(devices)
        hidden = nn.functional.linear(pair, of_pair).add_(nn.functional.linear(devices, of_device))
        return hidden.add_(about[:, None, :]).relu_()

    def _pair_weights(self, devices: Tensor) -> list[Tensor]:
        """The linear layer over [pair, device] in two parts, since devices are the same for all questions."""
        return list(torch.split(self.pair.weight, [len(PAIR_FEATURES), devices.shape[-1]], dim=1))
