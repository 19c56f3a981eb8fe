"""Placeto's network (Addanki et al. 2019, policy network): messages both ways, pooling around the current unit, device logits."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from gnnplace.planners.papers.placeto.features import NUM_PLAIN_FEATURES, DynamicFeatures, StaticInputs, node_features


class Aggregator(nn.Module):
    """`relu(g(sum relu(f(x))))`, split at the sum; `f` and `g` have `layers` layers of the same width, with ReLU between."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.before, self.after = (_perceptron([width] * (layers + 1)) for _ in range(2))

    def send(self, nodes: Tensor) -> Tensor:
        """The terms of the sum."""
        return torch.relu(self.before(nodes))

    def receive(self, total: Tensor) -> Tensor:
        """The result from a sum."""
        return torch.relu(self.after(total))


class PlacetoNetwork(nn.Module):
    """Embeds a whole graph and scores the devices of one unit; the last layer fixes the number of devices.

    As in the authors' code, the width is that of the features, a node without neighbours in a direction gets no message from
    there, and initial weights follow Glorot and Bengio 2010. Departure: pools are means, an option of that code; the paper sums.
    """

    def __init__(self, devices: int, layers: int, rounds: int) -> None:
        super().__init__()
        width = NUM_PLAIN_FEATURES + devices
        self.rounds = rounds
        self.own = _perceptron([width] * (layers + 2))
        self.along, self.against = Aggregator(width, layers), Aggregator(width, layers)
        self.ancestors, self.descendants = Aggregator(2 * width, layers), Aggregator(2 * width, layers)
        self.parallel = Aggregator(2 * width, layers)
        hidden = [16 * width, 8 * width] if layers > 1 else [8 * width]
        self.head = _perceptron([8 * width, *hidden, devices])

    def log_probs(self, static: StaticInputs, dynamic: DynamicFeatures, steps: Tensor, mask: Tensor) -> Tensor:
        """`[R, D]` log probabilities of the devices at `steps` `[R]`, from the `R` columns of `dynamic`."""
        current = torch.from_numpy(static.visited)[steps]
        features = node_features(static, dynamic, current, steps)
        logits: Tensor = self(static.neighbours, features, current, static.pools[steps])
        return logits.masked_fill(~mask, -1e9).log_softmax(dim=1)

    def forward(self, neighbours: tuple[Tensor, Tensor], features: Tensor, current: Tensor, sets: Tensor) -> Tensor:
        """Logits `[R, D]` of the devices of units `current` `[R]`.

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
