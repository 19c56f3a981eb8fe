"""Placeto's network (Addanki et al. 2019, policy network): messages both ways, pooling around the current unit, device logits."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from gnnplace.arrays import IntArray
from gnnplace.planners.papers.placeto.features import NUM_PLAIN_FEATURES

__all__ = ["Aggregator", "PlacetoNetwork", "adjacency"]


def adjacency(edges: IntArray, units: int) -> tuple[Tensor, Tensor]:
    """Sparse `[U, U]` matrices whose row `v` sums over the units that `v` reads from, and over those that read from it.

    >>> import numpy as np
    >>> read_from, read_by = adjacency(np.array([[0, 0], [1, 2]]), units=3)  # 0 -> 1, 2
    >>> read_from.to_dense().tolist(), read_by.to_dense().tolist()
    ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    """
    ones = torch.ones(edges.shape[1])
    ends = torch.from_numpy(edges)
    return tuple(  # type: ignore[return-value]
        torch.sparse_coo_tensor(rows, ones, (units, units), check_invariants=False).coalesce()
        for rows in (ends.flip(0), ends)
    )


class Aggregator(nn.Module):
    """`relu(g(sum relu(f(x))))`, in two halves around the sum.

    >>> aggregator = Aggregator(width=3, layers=1)
    >>> total = aggregator.send(torch.ones(4, 3)).sum(dim=0)
    >>> aggregator.receive(total).shape
    torch.Size([3])
    """

    def __init__(self, width: int, layers: int) -> None:
        """`f` and `g` have this many layers of the same width, with ReLU between them."""
        super().__init__()
        self.before, self.after = (_perceptron([width] * (layers + 1)) for _ in range(2))

    def send(self, nodes: Tensor) -> Tensor:
        """What is summed."""
        return torch.relu(self.before(nodes))

    def receive(self, total: Tensor) -> Tensor:
        """What becomes of a sum."""
        return torch.relu(self.after(total))


class PlacetoNetwork(nn.Module):
    """Embeds a whole graph and answers for one unit of it; the number of devices is fixed by the last layer.

    As in the authors' code, the width is that of the features, a node that has no neighbour on a side gets no message from
    there, and weights begin after Glorot and Bengio 2010. Departure: pools are means, an option of that code; the paper sums.

    >>> import numpy as np
    >>> network, neighbours = PlacetoNetwork(devices=2, layers=1, rounds=2), adjacency(np.array([[0], [1]]), units=2)
    >>> features, current = torch.zeros(2, 5, NUM_PLAIN_FEATURES + 2), torch.zeros(5, dtype=torch.int64)
    >>> network.embed(neighbours, features).shape  # two units, five decisions
    torch.Size([2, 5, 14])
    >>> network.forward(neighbours, features, current, torch.zeros(5, 3, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, devices: int, layers: int, rounds: int) -> None:
        """Weights from torch's current generator; `layers` of each of `f` and `g`."""
        super().__init__()
        width = NUM_PLAIN_FEATURES + devices
        self.rounds = rounds
        self.own = _perceptron([width] * (layers + 2))
        self.along, self.against = Aggregator(width, layers), Aggregator(width, layers)
        self.ancestors, self.descendants = Aggregator(2 * width, layers), Aggregator(2 * width, layers)
        self.parallel = Aggregator(2 * width, layers)
        hidden = [16 * width, 8 * width] if layers > 1 else [8 * width]
        self.head = _perceptron([8 * width, *hidden, devices])

    def forward(self, neighbours: tuple[Tensor, Tensor], features: Tensor, current: Tensor, sets: Tensor) -> Tensor:
        """Logits `[R, D]` of where to put units `current` `[R]`.

        `features` are `[U, R, F]`; `neighbours` come from `adjacency`; `sets` `[R, 3, U]` are 1 for the ancestors, the
        descendants and the parallel units of the current one.
        """
        embeddings = self.embed(neighbours, features)
        rows = torch.arange(len(current))
        pools = self.ancestors, self.descendants, self.parallel
        shares = sets / sets.sum(dim=2, keepdim=True).clamp(min=1.0)
        pooled = [
            pool.receive(torch.bmm(members, pool.send(embeddings).transpose(0, 1)).squeeze(1))
            for pool, members in zip(pools, (shares[:, [kind]] for kind in range(3)), strict=True)
        ]
        logits: Tensor = self.head(torch.cat([*pooled, embeddings[current, rows]], dim=1))
        return logits

    def embed(self, neighbours: tuple[Tensor, Tensor], features: Tensor) -> Tensor:
        """`[U, R, 2 F]`: rounds of `x <- x0 + relu(g(sum relu(f(x))))` from predecessors, then from successors, side by side."""
        first = self.own(features)
        swept = []
        for direction, matrix in zip((self.along, self.against), neighbours, strict=True):
            is_reached = torch.zeros(len(first), 1, 1)
            is_reached[matrix.indices()[0]] = 1.0
            nodes = first
            for _ in range(self.rounds):
                total = torch.sparse.mm(matrix, direction.send(nodes).flatten(1)).view_as(nodes)
                nodes = first + is_reached * direction.receive(total)
            swept.append(nodes)
        return torch.cat(swept, dim=2)


def _perceptron(widths: list[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        nn.init.xavier_uniform_(layers[-2].weight)  # type: ignore[arg-type]
        nn.init.zeros_(layers[-2].bias)  # type: ignore[arg-type]
    return nn.Sequential(*layers[:-1])
