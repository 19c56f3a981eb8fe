"""The policy of Mirhoseini et al. 2017, section 3.2: an encoder LSTM over op groups and an attentional decoder LSTM.

The encoder reads the embeddings of the groups in topological order; the decoder emits one device at each step, and its input is the
learned vector of the device chosen at the step before. Attention is that of Bahdanau et al. 2015 (`v . tanh(W1 h_j + W2 s_t)`). As
in the controller that Mirhoseini et al. published with their next planner (TensorFlow, `grappler/hierarchical_controller.py`), the
context goes to the softmax and not back into the decoder.

Departures: devices that a group may not use have probability 0; the encoder reads in one direction, that controller's in both;
initial weights are torch's defaults.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from gnnplace.planners.papers.learning import gumbel_noise, in_pieces
from gnnplace.planners.papers.seq2seq.op_groups import OpGroups


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Settings that both planners share, small enough for thousands of placements in minutes on one core.

    "The published controller" is that of the authors' hierarchical planner of 2018; the paper itself does not state these numbers.
    """

    hidden: int = 64
    """`H`, width of the LSTMs; the published controller 512."""
    attention_width: int = 8
    """`A`, width of the hidden layer of attention; the published controller `H`."""
    type_width: int = 16
    """Width of the learned vector of an op type."""
    least_groups_per_device: int = 16
    """Bounds the size of a group, see `group_units`; 0: no limit, as in the paper."""
    num_placements: int = 10
    """`K`, placements per update."""
    learning_rate: float = 3e-3
    """Rate of Adam; the published controller 0.1, with logits between -1 and 1."""
    baseline_decay: float = 0.9
    """Weight of the old baseline in the new one; the published controller 0.9."""
    max_grad_norm: float = 1.0
    """Largest norm of the gradient; the published controller 1.0."""
    failing_ratio: float = 10.0
    """Runtime of a failing placement over the mean of the first ones that ran; the published controller 100 s."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


PUBLISHED = Seq2SeqConfig(hidden=512, attention_width=512, type_width=64, least_groups_per_device=0, learning_rate=1e-3)
"""Widths of LSTMs and attention from the published controller, and the paper's colocation rule without a limit. The width of
the type vectors, `K` and the learning rate (logits are not bounded) come from neither."""


class Seq2SeqPolicy(nn.Module):
    """A distribution over placements of one problem's groups; its weights belong to that problem."""

    def __init__(self, groups: OpGroups, config: Seq2SeqConfig = Seq2SeqConfig()) -> None:
        super().__init__()
        self.mask = torch.from_numpy(groups.action_mask)  # [G, D]
        self._types = torch.from_numpy(groups.type_shares)
        self._rest = torch.cat([torch.from_numpy(groups.output_sizes), torch.from_numpy(groups.adjacency)], dim=1)
        num_devices, hidden = self.mask.shape[1], config.hidden
        self.type_vectors = nn.Linear(self._types.shape[1], config.type_width, bias=False)
        self.encoder = nn.LSTM(config.type_width + self._rest.shape[1], hidden)
        self.device_vectors = nn.Embedding(num_devices + 1, hidden)  # the last row precedes the first decision
        self.decoder = nn.LSTM(hidden, hidden)
        self.memory_key = nn.Linear(hidden, config.attention_width, bias=False)
        self.query_key = nn.Linear(hidden, config.attention_width, bias=False)
        self.score = nn.Linear(config.attention_width, 1, bias=False)
        self.device_logits = nn.Linear(2 * hidden, num_devices)

    def encode(self) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """States `[G, H]` of all groups, their attention keys `[G, A]`, and the last hidden and cell state `[1, H]`."""
        states, last = self.encoder(torch.cat([self.type_vectors(self._types), self._rest], dim=1))
        return states, self.memory_key(states), last

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`[G, K]` devices in `count` placements, drawn step by step, all placements at once."""
        num_groups, num_devices = self.mask.shape
        states, keys, last = self.encode()
        hidden, cell = (state.expand(count, -1) for state in last)
        weights = [getattr(self.decoder, f"{part}_l0") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        noise = gumbel_noise(num_groups, count, num_devices, generator)
        decisions = torch.empty(num_groups, count, dtype=torch.int64)
        previous = torch.full((count,), num_devices)
        for group in range(num_groups):
            hidden, cell = torch.lstm_cell(self.device_vectors(previous), (hidden, cell), *weights)
            logits = self._logits(states, keys, hidden[None], self.mask[group, None, None])
            previous = (logits[0] + noise[group]).argmax(dim=-1)
            decisions[group] = previous
        return decisions

    def log_probs(self, decisions: Tensor) -> Tensor:
        """`[G, K, D]` log probability of every device at every step, given the decisions `[G, K]` before it."""
        (states, keys, last), count = self.encode(), decisions.shape[1]
        first = torch.full((1, count), self.mask.shape[1])
        fed = self.device_vectors(torch.cat([first, decisions[:-1]]))
        outputs, _ = self.decoder(fed, tuple(state[:, None].expand(1, count, -1).contiguous() for state in last))
        logits = partial(self._logits, states, keys)
        return in_pieces(logits, outputs, self.mask[:, None], 0, count * keys.numel()).log_softmax(dim=-1)

    def _logits(self, states: Tensor, keys: Tensor, outputs: Tensor, mask: Tensor) -> Tensor:
        """`[T, K, D]` from the decoder's outputs `[T, K, H]`; minus infinity where `mask` `[T, 1, D]` is false."""
        scores = self.score(torch.tanh(self.query_key(outputs)[:, :, None] + keys)).squeeze(-1)
        gathered = torch.softmax(scores, dim=-1) @ states
        logits: Tensor = self.device_logits(torch.cat([outputs, gathered], dim=-1))
        return logits.masked_fill(~mask, -torch.inf)
