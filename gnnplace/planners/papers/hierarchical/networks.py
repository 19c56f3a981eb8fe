"""Embeddings of ops and groups, and the networks that read them: grouper and placer (Mirhoseini et al. 2018).

Departures: the paper's op is a unit here, a free op or a colocation group; a graph holds bytes and no shapes, so the sizes of
outputs are their bytes; amounts enter the networks as logarithms, because they span ten orders of magnitude.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor, multinomial, nn

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.learning import first_values, gumbel_noise, in_pieces

MAX_OUTPUTS = 5
"""Outputs whose sizes are listed; as in the authors' code (TensorFlow, `hierarchical_controller.py`)."""
MAX_NEIGHBOURS = 10
"""Neighbours that are listed, each as a position and a direction; as in the authors' code."""


@dataclass(frozen=True, eq=False)
class UnitTraits:
    """The vectors of every unit, before compression."""

    amounts: FloatArray
    """`[U, A]` number of ops of each type in alphabetic order, bytes of the first `MAX_OUTPUTS` outputs, number of outputs."""
    neighbours: FloatArray  # [U, 2 * MAX_NEIGHBOURS] (topological position from 1, 1 after or -1 before); 0 for none
    edges: IntArray  # [2, E] producing and consuming unit, each pair once


def unit_traits(problem: Problem) -> UnitTraits:
    """The traits of a problem's units."""
    graph, units = problem.graph, problem.num_units
    types, type_of_op = np.unique(np.array(graph.op_types, dtype=object).astype(str), return_inverse=True)
    type_counts = np.zeros((units, len(types)))
    np.add.at(type_counts, (problem.unit_of_op, type_of_op), 1.0)
    owner = problem.unit_of_op[graph.tensor_producer]
    output_bytes = first_values(owner, graph.tensor_bytes, units, MAX_OUTPUTS)
    num_outputs = np.bincount(owner, minlength=units)
    amounts = np.concatenate([type_counts, output_bytes, num_outputs[:, None]], axis=1)
    return UnitTraits(amounts, _neighbours(problem.unit_edges, units), problem.unit_edges)


def unit_embeddings(traits: UnitTraits) -> FloatArray:
    """`[U, F]` input of the grouper: op types, output sizes and number of outputs, adjacency."""
    neighbours = traits.neighbours.copy()
    neighbours[:, ::2] /= max(1, len(neighbours))
    return np.concatenate([_compressed(traits.amounts), neighbours], axis=1)


def group_embeddings(traits: UnitTraits, groups: IntArray, num_groups: int) -> FloatArray:
    """`[M, G, A + G]` input of the placer, from `M` groupings `[M, U]`.

    For each group: the sums of its units' amounts, compressed, and a 1 at `i` where the group has an edge to another group `i`.
    """
    rows, own = np.arange(len(groups))[:, None], np.arange(num_groups)
    amounts = np.zeros((len(groups), num_groups, traits.amounts.shape[1]))
    np.add.at(amounts, (rows, groups), traits.amounts[None])
    adjacency = np.zeros((len(groups), num_groups, num_groups))
    adjacency[rows, groups[:, traits.edges[0]], groups[:, traits.edges[1]]] = 1.0
    adjacency[:, own, own] = 0.0
    return np.concatenate([_compressed(amounts), adjacency], axis=2)


def _compressed(amounts: FloatArray) -> FloatArray:
    """Decimal logarithms: 1 becomes 0.3, a megabyte 6."""
    return np.log10(1.0 + amounts)


def _neighbours(edges: IntArray, units: int) -> FloatArray:
    """Consumers first, then producers, each in topological order."""
    here, there = np.concatenate([edges, edges[::-1]], axis=1)
    direction = np.repeat([1.0, -1.0], edges.shape[1])
    columns = [first_values(here, values, units, MAX_NEIGHBOURS) for values in (there + 1, direction)]
    return np.stack(columns, axis=2).reshape(units, 2 * MAX_NEIGHBOURS)


class Chooser(nn.Module):
    """Draws one of several options for each row of its input: a group for each op, or in an ablation a device.

    The Grouper of Mirhoseini et al. 2018. Departure: a ReLU between the two layers, which the authors' code lacks.
    """

    def __init__(self, features: int, hidden: int, options: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, options))

    def draw(self, rows: Tensor, mask: Tensor, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """`count` draws `[count, U]` for rows `[U, F]`, and the log probability `[count]` of each whole draw.

        `mask` `[U, options]` is true where an option may be chosen.
        """
        log_probs = self.layers(rows).masked_fill(~mask, -1e9).log_softmax(dim=-1)
        drawn = multinomial(log_probs.detach().exp(), count, replacement=True, generator=generator)
        return drawn.T, log_probs.gather(1, drawn).sum(dim=0)


State = tuple[Tensor, Tensor]
"""Hidden and cell state of an LSTM, `[1, B, H]` each."""


class Placer(nn.Module):
    """Bidirectional LSTM encoder over groups; LSTM decoder that emits one group's device per step, in the same order.

    The Placer of Mirhoseini et al. 2018 in the shape of the authors' code: half of the width in each direction of the encoder,
    content-based attention `v tanh(W1 e + W2 d)` whose keys are also its values, the previous device's embedding as input.
    """

    def __init__(self, features: int, devices: int, hidden: int, temperature: float, tanh_constant: float) -> None:
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
        keys, state = self.encode(embeddings, copies)
        mask = mask.repeat_interleave(copies, dim=0)
        devices = self.sample(keys, state, mask, generator)
        # Gradients come from a second pass, in which all steps are computed at once because the devices are known.
        log_probs = self.log_probs(keys, state, mask, devices)
        entropy = -(log_probs.exp() * log_probs).sum(dim=(1, 2))
        return devices, log_probs.gather(2, devices[:, :, None]).squeeze(2).sum(dim=1), entropy

    def encode(self, embeddings: Tensor, copies: int) -> tuple[Tensor, State]:
        """Keys and values of attention `[B, G, H]`, and the encoder's last state; each of the groupings `[M, G, F]` `copies` times."""
        states, (hidden, cell) = self.encoder(embeddings)
        keys, hidden, cell = self.key(states), *(part.transpose(0, 1).flatten(1) for part in (hidden, cell))
        keys, hidden, cell = (part.repeat_interleave(copies, dim=0) for part in (keys, hidden, cell))
        return keys, (hidden[None], cell[None])

    @torch.no_grad()
    def sample(self, keys: Tensor, state: State, mask: Tensor, generator: Generator) -> Tensor:
        """`[B, G]` devices, drawn one after the other; `mask` is `[B, G, D]`."""
        rows, groups, devices = mask.shape
        noise, chosen = gumbel_noise(groups, rows, devices, generator), torch.full((rows, groups + 1), devices)
        for group in range(groups):
            outputs, state = self.decoder(self.before(chosen[:, group - 1, None]), state)
            logits = self._logits(keys, outputs, mask[:, group, None])[:, 0]
            chosen[:, group] = (logits + noise[group]).argmax(dim=1)
        return chosen[:, :-1]

    def log_probs(self, keys: Tensor, state: State, mask: Tensor, devices: Tensor) -> Tensor:
        """`[B, G, D]` log probabilities of each group's devices, given the devices `[B, G]` of the groups before it."""
        first = torch.full_like(devices[:, :1], mask.shape[2])
        outputs, _ = self.decoder(self.before(torch.cat([first, devices[:, :-1]], dim=1)), state)
        return in_pieces(partial(self._logits, keys), outputs, mask, 1, keys.numel()).log_softmax(dim=2)

    def _logits(self, keys: Tensor, outputs: Tensor, mask: Tensor) -> Tensor:
        """`[B, T, D]` logits `C tanh(l / T)` (equation 1: no device ever becomes impossible) from decoder outputs `[B, T, H]`."""
        scores = self.score(torch.tanh(self.query(outputs)[:, :, None] + keys[:, None])).squeeze(3)  # [B, T, G]
        context = torch.bmm(torch.softmax(scores, dim=2), keys)
        activations = self.output(torch.cat([outputs, context], dim=2))
        logits: Tensor = self.tanh_constant * torch.tanh(activations / self.temperature)
        return logits.masked_fill(~mask, -1e9)
