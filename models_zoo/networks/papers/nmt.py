"""Neural machine translation: two stacks of LSTM layers with attention between them, unrolled in time."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

State = tuple[Tensor, Tensor]
FIRST_RESIDUAL = 2
"""Layers from the third on add their input to their output (Wu et al. 2016, section 3.1)."""


@dataclass(frozen=True)
class Settings:
    """Wu et al. (2016), sections 3 and 8.3; depths and batch as in Mirhoseini et al. (2017, 2018)."""

    layers: int = 2
    """Layers of the encoder and of the decoder."""
    hidden: int = 1024
    vocabulary: int = 32000
    """Word pieces of each language."""
    batch: int = 64
    steps: int = 12
    """Words of a source and of a target sentence. Sentences of news are more than twice as long; 12 words already
    make a training step of some 12,000 ops at 8 layers, and every further word adds a thousand."""

    @property
    def memory_width(self) -> int:
        """Width of the encoder's output: a single layer hands on both of its directions."""
        return 2 * self.hidden if self.layers == 1 else self.hidden


class Encoder(nn.Module):
    """`tokens [B, S]` to `memory [B, S, M]` (`memory_width`), and the state that each layer ends in.

    The first layer reads in both directions, and hands on the state of the one that ends at the first word.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.hidden
        self.embedding = nn.Embedding(settings.vocabulary, width)
        self.reverse = nn.LSTMCell(width, width)
        self.layers = nn.ModuleList(
            nn.LSTMCell(2 * width if index == 1 else width, width) for index in range(settings.layers)
        )

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[State]]:
        """The memory of the attention and the initial state of the decoder."""
        words = list(self.embedding(tokens).unbind(1))
        zeros = torch.zeros_like(words[0])
        reverse, state = _unroll(self.reverse, words[::-1], (zeros, zeros))
        states = [state]
        xs, _ = _unroll(self.layers[0], words, (zeros, zeros))
        xs = [torch.cat(both, 1) for both in zip(xs, reverse[::-1], strict=True)]
        for index, layer in enumerate(self.layers[1:], start=1):
            hs, state = _unroll(layer, xs, (zeros, zeros))
            xs = [h + x for h, x in zip(hs, xs, strict=True)] if index >= FIRST_RESIDUAL else hs
            states.append(state)
        return torch.stack(xs, 1), states


class Attention(nn.Module):
    """`query [B, H]` and `memory [B, S, M]` to `context [B, M]` (Bahdanau et al. 2015, section A.1.2)."""

    def __init__(self, width: int, memory_width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(memory_width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        for linear in (self.query, self.key):
            nn.init.xavier_uniform_(linear.weight, nn.init.calculate_gain("tanh"))

    def keys(self, memory: Tensor) -> Tensor:
        """`[B, S, H]`, the same for every word of the target."""
        found: Tensor = self.key(memory)
        return found

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor) -> Tensor:
        """The mean of the memory, weighted by how well each word's key fits the query."""
        weights = torch.softmax(self.score(torch.tanh(self.query(query).unsqueeze(1) + keys)), 1)
        return (weights.transpose(1, 2) @ memory).squeeze(1)


class Decoder(nn.Module):
    """`tokens [B, T]` to `[B, T, H]`; every layer reads the context beside its input."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.hidden
        self.embedding = nn.Embedding(settings.vocabulary, width)
        self.attention = Attention(width, settings.memory_width)
        self.layers = nn.ModuleList(nn.LSTMCell(width + settings.memory_width, width) for _ in range(settings.layers))

    def forward(self, tokens: Tensor, memory: Tensor, states: list[State]) -> Tensor:
        """The output of the top layer for each word of the target but the first."""
        keys = self.attention.keys(memory)
        tops = []
        for word in self.embedding(tokens).unbind(1):
            context = self.attention(states[0][0], keys, memory)
            x = word
            for index, layer in enumerate(self.layers):
                states[index] = layer(torch.cat((x, context), 1), states[index])
                h = states[index][0]
                x = h + x if index >= FIRST_RESIDUAL else h
            tops.append(x)
        return torch.stack(tops, 1)


class Nmt(nn.Module):
    """`source [B, S]` and `target [B, T]` to `logits [B, T, V]` of the word that follows each of the target.

    GNMT at any depth, with float weights. The context of a word comes from the first decoder layer's output for the
    word before. Departures: decoder layers start from the states of encoder layers, sentences all have the same
    length and need no mask, and dropout is 0.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.encoder = Encoder(settings)
        self.decoder = Decoder(settings)
        self.softmax = nn.Linear(settings.hidden, settings.vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of the next word at every position of the target."""
        memory, states = self.encoder(source)
        logits: Tensor = self.softmax(self.decoder(target, memory, states))
        return logits


def _unroll(cell: nn.Module, xs: list[Tensor], state: State) -> tuple[list[Tensor], State]:
    """The cell's output for each input, and its last state."""
    hs = []
    for x in xs:
        state = cell(x, state)
        hs.append(state[0])
    return hs, state


def _loss(logits: Tensor, following: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def _make(settings: Settings) -> TorchNetwork:
    source = torch.randint(settings.vocabulary, (settings.batch, settings.steps))
    target = torch.randint(settings.vocabulary, (settings.batch, settings.steps + 1))
    return TorchNetwork(
        Nmt(settings),
        inputs={"source": source, "target": target[:, :-1].contiguous()},
        outputs=("logits",),
        targets={"following": target[:, 1:].contiguous()},
        loss=_loss,
    )


def _recipe(layers: int) -> Recipe:
    return Recipe(
        name=f"nmt_{layers}",
        summary=f"translation with attention between {layers} and {layers} LSTM layers",
        make=_make,
        settings=Settings(layers=layers),
        small=Settings(layers=min(layers, FIRST_RESIDUAL + 1), hidden=16, vocabulary=50, batch=2, steps=2),
        source="Wu et al. 2016, section 3; Mirhoseini et al. 2018, section 3",
        trains=True,
        stages=StageRule(
            (
                (r"(?:encoder|decoder)\.layers\.(\d+)\.", r"\1"),
                (r"encoder\.reverse\.", 0),
                (r"(?:encoder|decoder)\.embedding\.", 0),
                (r"decoder\.attention\.", "last"),
                (r"softmax\.", "last"),
            ),
        ),
    )


RECIPES = tuple(_recipe(layers) for layers in (2, 4, 8))
