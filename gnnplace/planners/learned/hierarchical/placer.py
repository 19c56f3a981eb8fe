"""The placer: from group embeddings to devices, by a sequence-to-sequence network with attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint

__all__ = ["Memory", "Placer", "squashed"]


_ATTENTION_NUMBERS = 1 << 26
"""Numbers that attention may keep for the gradient (256 MB); above, it is made anew in the backward pass, in pieces."""


class Memory(NamedTuple):
    """What the encoder leaves for the decoder."""

    keys: Tensor  # [B, G, H] attended to
    hidden: Tensor  # [1, B, H]
    cell: Tensor  # [1, B, H]


def squashed(activations: Tensor, temperature: float, tanh_constant: float) -> Tensor:
    """Logits `C tanh(l / T)`, Mirhoseini et al. 2018, equation (1): no device ever becomes impossible.

    >>> squashed(torch.tensor([0.0, 1000.0]), temperature=10.0, tanh_constant=5.0).tolist()
    [0.0, 5.0]
    """
    return tanh_constant * torch.tanh(activations / temperature)


class Placer(nn.Module):
    """Bidirectional LSTM encoder over groups; LSTM decoder that emits one group's device per step, in the same order.

    The Placer of Mirhoseini et al. 2018 in the shape of the authors' code: half of the width in each direction of the encoder,
    content-based attention `v tanh(W1 e + W2 d)` whose keys are also what is summed, the previous device's embedding as input.

    >>> placer = Placer(features=3, devices=2, hidden=4, temperature=10.0, tanh_constant=5.0)
    >>> mask = torch.tensor([[[True, True], [False, True]]])  # the second group may only go to device 1
    >>> devices, log_probs, entropy = placer.draw(torch.zeros(1, 2, 3), mask, 4, Generator().manual_seed(0))
    >>> devices.shape, devices[:, 1].tolist()
    (torch.Size([4, 2]), [1, 1, 1, 1])
    >>> memory = placer.encode(torch.zeros(1, 2, 3), copies=4)
    >>> again = placer.log_probs(memory, mask.expand(4, -1, -1), devices).gather(2, devices[:, :, None])
    >>> torch.allclose(again.sum(dim=(1, 2)), log_probs)
    True
    >>> placer.sample(memory, mask.expand(4, -1, -1), Generator().manual_seed(0)).equal(devices)
    True
    """

    def __init__(self, features: int, devices: int, hidden: int, temperature: float, tanh_constant: float) -> None:
        """Weights from torch's current generator."""
        super().__init__()
        self.temperature, self.tanh_constant = temperature, tanh_constant
        self.encoder = nn.LSTM(features, hidden // 2, bidirectional=True, batch_first=True)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.before = nn.Embedding(devices + 1, hidden)  # the last row stands before the first decision
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(2 * hidden, devices, bias=False)

    def draw(
        self, embeddings: Tensor, mask: Tensor, copies: int, generator: Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Devices `[M * copies, G]` for groupings `[M, G, F]`, each sequence's log probability `[M * copies]`, its steps' entropy.

        `mask` `[M, G, D]` is true where a group may go.
        """
        memory, mask = self.encode(embeddings, copies), mask.repeat_interleave(copies, dim=0)
        devices = self.sample(memory, mask, generator)
        # Gradients come from a second pass, in which all steps are computed at once because the devices are known.
        log_probs = self.log_probs(memory, mask, devices)
        entropy = -(log_probs.exp() * log_probs).sum(dim=(1, 2))
        return devices, log_probs.gather(2, devices[:, :, None]).squeeze(2).sum(dim=1), entropy

    def encode(self, embeddings: Tensor, copies: int) -> Memory:
        """The memory of groupings `[M, G, F]`, each `copies` times in a row."""
        states, (hidden, cell) = self.encoder(embeddings)
        keys, hidden, cell = self.key(states), *(part.transpose(0, 1).flatten(1) for part in (hidden, cell))
        keys, hidden, cell = (part.repeat_interleave(copies, dim=0) for part in (keys, hidden, cell))
        return Memory(keys, hidden[None], cell[None])

    @torch.no_grad()
    def sample(self, memory: Memory, mask: Tensor, generator: Generator) -> Tensor:
        """`[B, G]` devices, drawn one after the other; `mask` is `[B, G, D]`."""
        rows, groups, devices = mask.shape
        # The largest of logits plus Gumbel noise is a draw from their softmax.
        noise = torch.empty(groups, rows, devices).exponential_(generator=generator).clamp_min(1e-30).log()
        state, chosen = (memory.hidden, memory.cell), torch.full((rows, groups + 1), devices)
        for group in range(groups):
            outputs, state = self.decoder(self.before(chosen[:, group - 1, None]), state)
            logits = self._logits(outputs, memory.keys, mask[:, group, None])[:, 0]
            chosen[:, group] = (logits - noise[group]).argmax(dim=1)
        return chosen[:, :-1]

    def log_probs(self, memory: Memory, mask: Tensor, devices: Tensor) -> Tensor:
        """`[B, G, D]` log probabilities of each group's devices, given the devices `[B, G]` of the groups before it."""
        first = torch.full_like(devices[:, :1], mask.shape[2])
        previous = self.before(torch.cat([first, devices[:, :-1]], dim=1))
        outputs, _ = self.decoder(previous, (memory.hidden, memory.cell))
        steps = max(1, _ATTENTION_NUMBERS // max(1, memory.keys.numel()))
        if steps >= outputs.shape[1]:
            return self._logits(outputs, memory.keys, mask).log_softmax(dim=2)
        pieces = zip(torch.split(outputs, steps, dim=1), torch.split(mask, steps, dim=1), strict=True)
        logits = [checkpoint(self._logits, some, memory.keys, allowed, use_reentrant=False) for some, allowed in pieces]
        return torch.cat(logits, dim=1).log_softmax(dim=2)

    def _logits(self, outputs: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """`[B, T, D]` from the decoder's outputs `[B, T, H]`."""
        scores = self.score(torch.tanh(self.query(outputs)[:, :, None] + keys[:, None])).squeeze(3)  # [B, T, G]
        context = torch.bmm(torch.softmax(scores, dim=2), keys)
        logits = squashed(self.output(torch.cat([outputs, context], dim=2)), self.temperature, self.tanh_constant)
        return logits.masked_fill(~mask, -1e9)
