"""The policy of Mirhoseini et al. 2017, section 3.2: an encoder LSTM over op groups and an attentional decoder LSTM.

The encoder reads the embeddings of the groups in topological order; the decoder emits one device at each step, and its input is the
learned vector of the device chosen at the step before. Attention is that of Bahdanau et al. 2015 (`v . tanh(W1 h_j + W2 s_t)`). As
in the controller that Mirhoseini et al. published with their next planner (TensorFlow, `grappler/hierarchical_controller.py`), the
context goes to the softmax and not back into the decoder.

Departures: devices that a group may not use have probability 0; the encoder reads in one direction, that controller's in both;
initial weights are torch's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gnnplace.planners.papers.seq2seq.op_groups import OpGroups

__all__ = ["Memory", "Seq2SeqConfig", "Seq2SeqPolicy", "build_policy"]


_ATTENTION_NUMBERS = 1 << 26
"""Most numbers that attention keeps for the gradient (256 MB); above, the backward pass recomputes it in pieces."""


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of the network, small enough for thousands of placements in minutes on one core."""

    hidden: int = 64
    """`H`, width of the LSTMs; 512 in the published controller, not given in the paper."""
    attention_width: int = 8
    """`A`, width of the hidden layer of attention; `H` in that controller."""
    type_width: int = 16
    """Width of the learned vector of an op type."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Output of the encoder for the decoder."""

    states: Tensor  # [G, H]
    keys: Tensor  # [G, A]
    last: tuple[Tensor, Tensor]  # [1, H] hidden and cell state after the last group


class Seq2SeqPolicy(nn.Module):
    """A distribution over placements of one problem's groups; its weights belong to that problem."""

    def __init__(self, groups: OpGroups, config: Seq2SeqConfig = Seq2SeqConfig()) -> None:
        """Fresh weights from torch's current generator; `build_policy` makes them from a seed."""
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

    def encode(self) -> Memory:
        """Encodes all groups."""
        states, (hidden, cell) = self.encoder(torch.cat([self.type_vectors(self._types), self._rest], dim=1))
        return Memory(states, self.memory_key(states), (hidden, cell))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`[G, K]` devices in `count` placements, drawn step by step, all placements at once."""
        num_groups, num_devices = self.mask.shape
        with torch.no_grad():
            memory = self.encode()
            hidden, cell = (state.expand(count, -1) for state in memory.last)
            weights = [getattr(self.decoder, f"{part}_l0") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            # The largest of logits plus Gumbel noise is a draw from their softmax.
            noise = torch.empty(num_groups, count, num_devices).exponential_(generator=generator)
            noise = -noise.clamp_min(1e-30).log()
            decisions = torch.empty(num_groups, count, dtype=torch.int64)
            previous = torch.full((count,), num_devices)
            for group in range(num_groups):
                hidden, cell = torch.lstm_cell(self.device_vectors(previous), (hidden, cell), *weights)
                logits = self._logits(hidden[None], memory.states, memory.keys, self.mask[group, None, None])
                previous = (logits[0] + noise[group]).argmax(dim=-1)
                decisions[group] = previous
        return decisions

    def log_probs(self, decisions: Tensor) -> Tensor:
        """`[G, K, D]` log probability of every device at every step, given the decisions `[G, K]` before it."""
        memory, count = self.encode(), decisions.shape[1]
        first = torch.full((1, count), self.mask.shape[1])
        fed = self.device_vectors(torch.cat([first, decisions[:-1]]))
        last = tuple(state[:, None].expand(1, count, -1).contiguous() for state in memory.last)
        outputs, _ = self.decoder(fed, last)
        steps = max(1, _ATTENTION_NUMBERS // max(1, count * memory.keys.numel()))
        mask = self.mask[:, None]
        if steps >= len(outputs):
            logits = self._logits(outputs, memory.states, memory.keys, mask)
        else:
            pieces = zip(torch.split(outputs, steps), torch.split(mask, steps), strict=True)
            logits = torch.cat(
                [
                    checkpoint(self._logits, some, memory.states, memory.keys, allowed, use_reentrant=False)
                    for some, allowed in pieces
                ]
            )
        return torch.log_softmax(logits, dim=-1)

    def _logits(self, outputs: Tensor, states: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """`[T, K, D]` from the decoder's outputs `[T, K, H]`; minus infinity where `mask` `[T, 1, D]` is false."""
        scores = self.score(torch.tanh(self.query_key(outputs)[:, :, None] + keys)).squeeze(-1)
        gathered = torch.softmax(scores, dim=-1) @ states
        logits: Tensor = self.device_logits(torch.cat([outputs, gathered], dim=-1))
        return logits.masked_fill(~mask, -torch.inf)


def build_policy(groups: OpGroups, seed: int, config: Seq2SeqConfig = Seq2SeqConfig()) -> Seq2SeqPolicy:
    """A fresh policy whose weights follow from the seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Seq2SeqPolicy(groups, config)
