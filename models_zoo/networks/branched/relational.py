"""A graph network with a matrix per relation: every layer has as many branches as there are relations."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Schlichtkrull et al. (2018), equation 2: relational convolutions; sizes are our choice."""

    layers: int = 3
    relations: int = 8
    width: int = 256
    inputs: int = 128
    nodes: int = 4096
    edges: int = 16384
    """Edges of each relation."""
    classes: int = 16


class RelationalLayer(nn.Module):
    """A mean of messages per relation, each with weights of its own, and the node itself."""

    def __init__(self, inputs: int, outputs: int, relations: int) -> None:
        super().__init__()
        self.itself = nn.Linear(inputs, outputs)
        self.of_relation = nn.ModuleList(nn.Linear(inputs, outputs, bias=False) for _ in range(relations))

    def forward(self, nodes: Tensor, edges: Tensor, degree: Tensor) -> Tensor:
        """`nodes [N, W]` along `edges [R, 2, E]` with in-degrees `degree [R, N, 1]`."""
        total = self.itself(nodes)
        for relation, weights in enumerate(self.of_relation):
            source, target = edges[relation, 0], edges[relation, 1]
            messages = weights(nodes)[source]
            places = target.unsqueeze(1).expand_as(messages)
            total = total + torch.zeros_like(total).scatter_add(0, places, messages) / degree[relation]
        return torch.relu(total)


class Relational(nn.Module):
    """`nodes [N, F]`, `edges [R, 2, E]` and `degree [R, N, 1]` to `logits [N, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        widths = [settings.inputs, *[settings.width] * settings.layers]
        self.layers = nn.ModuleList(
            RelationalLayer(inputs, outputs, settings.relations) for inputs, outputs in pairwise(widths)
        )
        self.head = nn.Linear(settings.width, settings.classes)

    def forward(self, nodes: Tensor, edges: Tensor, degree: Tensor) -> Tensor:
        """Logits of the classes per node."""
        for layer in self.layers:
            nodes = layer(nodes, edges, degree)
        logits: Tensor = self.head(nodes)
        return logits


def _make(settings: Settings) -> TorchNetwork:
    edges = torch.randint(settings.nodes, (settings.relations, 2, settings.edges))
    degree = torch.stack([torch.bincount(targets, minlength=settings.nodes) for targets in edges[:, 1]])
    return TorchNetwork(
        Relational(settings),
        inputs={
            "nodes": torch.randn(settings.nodes, settings.inputs),
            "edges": edges,
            "degree": degree.clamp(min=1).float().unsqueeze(-1),
        },
        outputs=("logits",),
    )


RECIPES = (
    Recipe(
        name="relational",
        summary="relational graph network with eight relations",
        make=_make,
        settings=Settings(),
        small=Settings(layers=2, relations=3, width=6, inputs=5, nodes=10, edges=12, classes=3),
        source="Schlichtkrull et al. 2018, equation 2",
        stages=StageRule(((r"layers\.(\d+)\.", r"\1"), (r"head\.", "last"))),
    ),
)
