"""Language models with random recurrent cells, as a search over architectures tries them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

MEMBERS = 32
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "identity": nn.Identity, "sigmoid": nn.Sigmoid}


@dataclass(frozen=True)
class Settings:
    """Pham et al. (2018), section 3.1 and appendix A; width and batch from the authors' script for the final model."""

    member: int = 0
    """Which random cell; counts from 0."""
    nodes: int = 12
    hidden: int = 748
    vocabulary: int = 10000
    batch: int = 64
    steps: int = 4
    """Unrolled in time. The paper takes 35; 4 already make a training step of well over a thousand ops."""


@dataclass(frozen=True)
class Choice:
    """The choices of the search for one node of a cell."""

    previous: int
    """The node that it reads; -1 in the first, which reads the word and the last output."""
    activation: str


def random_cell(member: int, nodes: int) -> tuple[Choice, ...]:
    """The choices of a member, each drawn uniformly: an earlier node to read, and one of four activations.

    >>> random_cell(0, nodes=2)
    (Choice(previous=-1, activation='sigmoid'), Choice(previous=0, activation='identity'))
    """
    rng = np.random.default_rng(member)
    names = list(ACTIVATIONS)
    return tuple(
        Choice(int(rng.integers(node)) if node else -1, names[int(rng.integers(len(names)))]) for node in range(nodes)
    )


class Node(nn.Module):
    """`x [B, I]` and `carried [B, H]` to `[B, H]`: a gate lets through what the activation makes or what is carried."""

    def __init__(self, inputs: int, width: int, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * width, bias=False)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor, carried: Tensor) -> Tensor:
        """A highway connection (Zilly et al. 2017)."""
        gate, h = self.linear(x).chunk(2, 1)
        made: Tensor = self.activation(h)
        return carried + torch.sigmoid(gate) * (made - carried)


class Cell(nn.Module):
    """`x [B, H]` and the last output `[B, H]` to the next: the mean of the nodes that no other node reads."""

    def __init__(self, choices: tuple[Choice, ...], width: int) -> None:
        super().__init__()
        self.previous = tuple(choice.previous for choice in choices)
        self.loose = tuple(sorted(set(range(len(choices))) - set(self.previous)))
        self.nodes = nn.ModuleList(
            Node(width if index else 2 * width, width, choice.activation) for index, choice in enumerate(choices)
        )

    def forward(self, x: Tensor, last: Tensor) -> Tensor:
        """One step in time."""
        found: list[Tensor] = []
        for node, previous in zip(self.nodes, self.previous, strict=True):
            if previous < 0:
                found.append(node(torch.cat((x, last), 1), last))
            else:
                found.append(node(found[previous], found[previous]))
        ends = [found[index] for index in self.loose]
        return sum(ends[1:], ends[0]) / len(ends)


class LanguageModel(nn.Module):
    """`tokens [B, T]` to `logits [B, T, V]`; the softmax shares the embedding's weight. Dropout is 0."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(settings.vocabulary, settings.hidden)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.cell = Cell(random_cell(settings.member, settings.nodes), settings.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        words = self.embedding(tokens)
        last = torch.zeros_like(words[:, 0])
        tops = []
        for x in words.unbind(1):
            last = self.cell(x, last)
            tops.append(last)
        return nn.functional.linear(torch.stack(tops, 1), self.embedding.weight)


def _loss(logits: Tensor, following: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def _make(settings: Settings) -> TorchNetwork:
    tokens = torch.randint(settings.vocabulary, (settings.batch, settings.steps + 1))
    return TorchNetwork(
        LanguageModel(settings),
        inputs={"tokens": tokens[:, :-1].contiguous()},
        outputs=("logits",),
        targets={"following": tokens[:, 1:].contiguous()},
        loss=_loss,
    )


def _recipe(member: int) -> Recipe:
    return Recipe(
        name=f"ptb_cell_{member:02d}",
        summary=f"language model with random recurrent cell {member}",
        make=_make,
        settings=Settings(member=member),
        small=Settings(member=member, nodes=6, hidden=16, vocabulary=50, batch=2, steps=2),
        source="Pham et al. 2018, section 3.1; Addanki et al. 2019, section 4.1",
        trains=True,
        stages=StageRule(
            (
                (r"cell\.nodes\.(\d+)\.", r"\1"),
                (r"embedding\.", 0),
            ),
        ),
    )


RECIPES = tuple(_recipe(member) for member in range(MEMBERS))
