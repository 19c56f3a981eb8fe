"""A recurrent language model: stacked LSTM layers between an embedding and a softmax, unrolled in time."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Two layers and batch 64 as in Mirhoseini et al. (2017), section 4.1; the rest after the models named there.

    The width is that of LSTM-2048-512 of Jozefowicz et al. (2016), without its projection; the vocabulary is that of
    Penn Treebank, and the steps are those of the small model, as in Zaremba et al. (2014). Dropout is 0.
    """

    layers: int = 2
    hidden: int = 2048
    vocabulary: int = 10000
    batch: int = 64
    steps: int = 20


class Rnnlm(nn.Module):
    """`tokens [B, T]` to `logits [B, T, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.hidden
        self.embedding = nn.Embedding(settings.vocabulary, width)
        self.layers = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(settings.layers))
        self.softmax = nn.Linear(width, settings.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        zeros = torch.zeros(tokens.shape[0], self.softmax.in_features)
        states = [(zeros, zeros)] * len(self.layers)
        tops = []
        for word in self.embedding(tokens).unbind(1):
            x = word
            for index, cell in enumerate(self.layers):
                states[index] = cell(x, states[index])
                x = states[index][0]
            tops.append(x)
        logits: Tensor = self.softmax(torch.stack(tops, 1))
        return logits


def _loss(logits: Tensor, following: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def _make(settings: Settings) -> TorchNetwork:
    tokens = torch.randint(settings.vocabulary, (settings.batch, settings.steps + 1))
    return TorchNetwork(
        Rnnlm(settings),
        inputs={"tokens": tokens[:, :-1].contiguous()},
        outputs=("logits",),
        targets={"following": tokens[:, 1:].contiguous()},
        loss=_loss,
    )


def _recipe(layers: int) -> Recipe:
    return Recipe(
        name=f"rnnlm_{layers}",
        summary=f"language model of {layers} LSTM layers",
        make=_make,
        settings=Settings(layers=layers),
        small=Settings(layers=layers, hidden=16, vocabulary=50, batch=2, steps=2),
        source="Mirhoseini et al. 2017, section 4.1",
        trains=True,
        stages=StageRule(
            ((r"layers\.(\d+)\.", r"\1"), (r"embedding\.", 0), (r"softmax\.", "last")),
        ),
    )


RECIPES = tuple(_recipe(layers) for layers in (2, 4, 8))
