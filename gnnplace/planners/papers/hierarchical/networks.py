"""Embeddings of ops and groups, and the networks that read them: grouper and placer (Mirhoseini et al. 2018).

Departures: the paper's op is a unit here, a free op or a colocation group; a graph holds bytes and no shapes, so the sizes of
outputs are their bytes; amounts enter the networks as logarithms, because they span ten orders of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, multinomial, nn
from torch.utils.checkpoint import checkpoint

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem

__all__ = [
    "MAX_NEIGHBOURS",
    "MAX_OUTPUTS",
    "Chooser",
    "Memory",
    "Placer",
    "UnitTraits",
    "group_embeddings",
    "placer_inputs",
    "squashed",
    "unit_embeddings",
    "unit_traits",
]


MAX_OUTPUTS = 5
"""Outputs whose sizes are listed; as in the authors' code (TensorFlow, `hierarchical_controller.py`)."""
MAX_NEIGHBOURS = 10
"""Neighbours that are listed, each as a position and a direction; as in the authors' code."""


@dataclass(frozen=True, eq=False)
class UnitTraits:
    """The three vectors of every unit, before compression."""

    type_counts: FloatArray  # [U, K] ops of each type that occurs in the graph, types in alphabetic order
    output_bytes: FloatArray  # [U, MAX_OUTPUTS] of the first outputs; 0 where there are fewer
    num_outputs: FloatArray  # [U]
    neighbours: FloatArray  # [U, 2 * MAX_NEIGHBOURS] (topological position from 1, 1 after or -1 before); 0 for none
    edges: IntArray  # [2, E] producing and consuming unit, each pair once


def unit_traits(problem: Problem) -> UnitTraits:
    """The traits of a problem's units."""
    graph, units = problem.graph, problem.num_units
    types, type_of_op = np.unique(np.array(graph.op_types, dtype=object).astype(str), return_inverse=True)
    type_counts = np.zeros((units, len(types)))
    np.add.at(type_counts, (problem.unit_of_op, type_of_op), 1.0)
    owner = problem.unit_of_op[graph.tensor_producer]
    by_owner = np.argsort(owner, kind="stable")
    num_outputs = np.bincount(owner, minlength=units)
    slot = np.arange(len(owner)) - np.repeat(np.cumsum(num_outputs) - num_outputs, num_outputs)
    listed = slot < MAX_OUTPUTS
    output_bytes = np.zeros((units, MAX_OUTPUTS))
    output_bytes[owner[by_owner][listed], slot[listed]] = graph.tensor_bytes[by_owner][listed]
    edges = problem.unit_edges
    return UnitTraits(type_counts, output_bytes, num_outputs.astype(np.float64), _neighbours(edges, units), edges)


def unit_embeddings(traits: UnitTraits) -> FloatArray:
    """`[U, F]` input of the grouper: op types, output sizes and number of outputs, adjacency."""
    neighbours = traits.neighbours.copy()
    neighbours[:, ::2] /= max(1, len(neighbours))
    amounts = np.concatenate([traits.type_counts, traits.output_bytes, traits.num_outputs[:, None]], axis=1)
    return np.concatenate([_compressed(amounts), neighbours], axis=1)


def group_embeddings(traits: UnitTraits, groups: IntArray, num_groups: int) -> FloatArray:
    """`[M, G, K + MAX_OUTPUTS + 1 + G]` of `M` groupings `[M, U]`, before the compression of `placer_inputs`.

    For each group: the count of each op type, the summed output sizes and number of outputs, and a 1 at `i` when the group has
    an edge to another group `i`.
    """
    count, kinds = len(groups), traits.type_counts.shape[1]
    embeddings = np.zeros((count, num_groups, kinds + MAX_OUTPUTS + 1 + num_groups))
    rows = np.arange(count)[:, None]
    amounts = np.concatenate([traits.type_counts, traits.output_bytes, traits.num_outputs[:, None]], axis=1)
    np.add.at(embeddings[:, :, : kinds + MAX_OUTPUTS + 1], (rows, groups), amounts[None])
    adjacency = embeddings[:, :, kinds + MAX_OUTPUTS + 1 :]
    adjacency[rows, groups[:, traits.edges[0]], groups[:, traits.edges[1]]] = 1.0
    own = np.arange(num_groups)
    adjacency[:, own, own] = 0.0
    return embeddings


def placer_inputs(embeddings: FloatArray, num_groups: int) -> FloatArray:
    """Input of the placer: group embeddings with compressed amounts and unchanged adjacency."""
    amounts, adjacency = embeddings[..., :-num_groups], embeddings[..., -num_groups:]
    return np.concatenate([_compressed(amounts), adjacency], axis=-1)


def _compressed(amounts: FloatArray) -> FloatArray:
    """Decimal logarithms: 1 becomes 0.3, a megabyte 6."""
    return np.log10(1.0 + amounts)


def _neighbours(edges: IntArray, units: int) -> FloatArray:
    """Consumers first, then producers, each in topological order."""
    listed = np.zeros((units, MAX_NEIGHBOURS, 2))
    filled = np.zeros(units, dtype=np.int64)
    for direction, (here, there) in ((1.0, edges), (-1.0, edges[::-1])):
        for unit, neighbour in zip(here.tolist(), there.tolist(), strict=True):
            if filled[unit] < MAX_NEIGHBOURS:
                listed[unit, filled[unit]] = neighbour + 1, direction
                filled[unit] += 1
    return listed.reshape(units, 2 * MAX_NEIGHBOURS)


class Chooser(nn.Module):
    """Draws one of several options for each row of its input: a group for each op, or in an ablation a device.

    The Grouper of Mirhoseini et al. 2018. Departure: a ReLU between the two layers, which the authors' code lacks.
    """

    def __init__(self, features: int, hidden: int, options: int) -> None:
        """Weights from torch's current generator."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, options))

    def draw(self, rows: Tensor, mask: Tensor, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """`count` draws `[count, U]` for rows `[U, F]`, and the log probability `[count]` of each whole draw.

        `mask` `[U, options]` is true where an option may be chosen.
        """
        log_probs = self.layers(rows).masked_fill(~mask, -1e9).log_softmax(dim=-1)
        drawn = multinomial(log_probs.detach().exp(), count, replacement=True, generator=generator)
        return drawn.T, log_probs.gather(1, drawn).sum(dim=0)


_ATTENTION_NUMBERS = 1 << 26
"""Most numbers that attention keeps for the gradient (256 MB); above, the backward pass recomputes it in pieces."""


class Memory(NamedTuple):
    """Output of the encoder for the decoder."""

    keys: Tensor  # [B, G, H] keys and values of attention
    hidden: Tensor  # [1, B, H]
    cell: Tensor  # [1, B, H]


def squashed(activations: Tensor, temperature: float, tanh_constant: float) -> Tensor:
    """Logits `C tanh(l / T)`, Mirhoseini et al. 2018, equation (1): no device ever becomes impossible."""
    return tanh_constant * torch.tanh(activations / temperature)


class Placer(nn.Module):
    """Bidirectional LSTM encoder over groups; LSTM decoder that emits one group's device per step, in the same order.

    The Placer of Mirhoseini et al. 2018 in the shape of the authors' code: half of the width in each direction of the encoder,
    content-based attention `v tanh(W1 e + W2 d)` whose keys are also its values, the previous device's embedding as input.
    """

    def __init__(self, features: int, devices: int, hidden: int, temperature: float, tanh_constant: float) -> None:
        """Weights from torch's current generator."""
        super().__init__()
        self.temperature, self.tanh_constant = temperature, tanh_constant
        self.encoder = nn.LSTM(features, hidden // 2, bidirectional=True, batch_first=True)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.before = nn.Embedding(devices + 1, hidden)  # the last row precedes the first decision
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
