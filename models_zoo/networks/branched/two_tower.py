"""Two encoders whose outputs are compared: with the same weights for pairs of texts, or each its own for retrieval."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class SentenceSettings:
    """Reimers and Gurevych (2019), section 3, on BERT-base: mean pooling, and the cosine of two texts; dropout is 0."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 30522
    length: int = 128
    batch: int = 16


@dataclass(frozen=True)
class RetrievalSettings:
    """Yi et al. (2019), section 4: watched videos and a seed on one side, a candidate on the other.

    Widths of the layers, the shared table of videos and the temperature are the paper's. It does not say how large
    tables, embeddings and batches of its model are; those here are our choice, and the candidate's tower is half as wide.
    """

    videos: int = 200_000
    channels: int = 50_000
    embedding: int = 128
    history: int = 50
    """Watched videos of a user."""
    query: int = 1024
    """First layer of the query's tower; the next have a half and an eighth of it: 1024, 512, 128."""
    item: int = 512
    """First layer of the candidate's tower; it ends as wide as the query's."""
    temperature: float = 0.05
    batch: int = 2048


class SentencePair(nn.Module):
    """`first [B, T]` and `second [B, T]`, with masks of their tokens, to `similarity [B]`."""

    def __init__(self, settings: SentenceSettings) -> None:
        super().__init__()
        self.encoder = BertModel(
            BertConfig(
                vocab_size=settings.vocabulary,
                hidden_size=settings.hidden,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                intermediate_size=4 * settings.hidden,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            ),
            add_pooling_layer=False,
        )

    def forward(self, first: Tensor, first_mask: Tensor, second: Tensor, second_mask: Tensor) -> Tensor:
        """Cosine of the texts' embeddings."""
        return nn.functional.cosine_similarity(self._embed(first, first_mask), self._embed(second, second_mask))

    def _embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """`[B, H]`: the mean over the tokens that are there."""
        states: Tensor = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        present = mask.unsqueeze(-1).float()
        return (states * present).sum(1) / present.sum(1)


class Retrieval(nn.Module):
    """`watched [B, N]`, `seed [B]`, `candidate [B]` and `channel [B]` to `logits [B, B]`, every query by every item."""

    def __init__(self, settings: RetrievalSettings) -> None:
        super().__init__()
        width, end = settings.embedding, settings.query // 8
        self.temperature = settings.temperature
        self.videos = nn.Embedding(settings.videos, width)
        self.channels = nn.Embedding(settings.channels, width)
        self.query = _tower(2 * width, settings.query, settings.query // 2, end)
        self.item = _tower(2 * width, settings.item, settings.item // 2, end)

    def forward(self, watched: Tensor, seed: Tensor, candidate: Tensor, channel: Tensor) -> Tensor:
        """Cosines of the towers' outputs over the temperature; the diagonal holds the pairs that belong together."""
        query = self.query(torch.cat([self.videos(watched).mean(1), self.videos(seed)], 1))
        item = self.item(torch.cat([self.videos(candidate), self.channels(channel)], 1))
        query, item = nn.functional.normalize(query), nn.functional.normalize(item)
        return query @ item.T / self.temperature


def _tower(*widths: int) -> nn.Sequential:
    """Linear layers with a ReLU between."""
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def _tokens(settings: SentenceSettings) -> tuple[Tensor, Tensor]:
    """Texts of at least half the length, padded with token 0, and which tokens are there."""
    lengths = torch.randint(settings.length // 2, settings.length + 1, (settings.batch, 1))
    mask = (torch.arange(settings.length) < lengths).long()
    return torch.randint(1, settings.vocabulary, mask.shape) * mask, mask


def _make_pair(settings: SentenceSettings) -> TorchNetwork:
    (first, first_mask), (second, second_mask) = _tokens(settings), _tokens(settings)
    return TorchNetwork(
        SentencePair(settings),
        inputs={"first": first, "first_mask": first_mask, "second": second, "second_mask": second_mask},
        outputs=("similarity",),
    )


def _sampled_softmax(logits: Tensor, frequency: Tensor) -> Tensor:
    """Each query against the batch's items, corrected by how often an item is in a batch (equation 4 of the paper)."""
    return nn.functional.cross_entropy(logits - frequency.log(), torch.arange(len(frequency)))


def _make_retrieval(settings: RetrievalSettings) -> TorchNetwork:
    batch = settings.batch
    return TorchNetwork(
        Retrieval(settings),
        inputs={
            "watched": torch.randint(settings.videos, (batch, settings.history)),
            "seed": torch.randint(settings.videos, (batch,)),
            "candidate": torch.randint(settings.videos, (batch,)),
            "channel": torch.randint(settings.channels, (batch,)),
        },
        outputs=("logits",),
        targets={"frequency": torch.rand(batch).clamp(min=0.01)},
        loss=_sampled_softmax,
    )


RECIPES = (
    Recipe(
        name="two_tower_siamese",
        summary="BERT-base on two texts with the same weights, and their cosine",
        make=_make_pair,
        settings=SentenceSettings(),
        small=SentenceSettings(layers=2, hidden=16, heads=2, vocabulary=50, length=6, batch=2),
        source="Reimers and Gurevych 2019, section 3",
        stages=StageRule(((r"encoder\.encoder\.layer\.(\d+)\.", r"\1"), (r"encoder\.embeddings\.", 0))),
    ),
    Recipe(
        name="two_tower_retrieval",
        summary="retrieval of videos: a tower for the user, a tower for the video",
        make=_make_retrieval,
        settings=RetrievalSettings(),
        small=RetrievalSettings(videos=50, channels=20, embedding=8, history=3, query=32, item=16, batch=4),
        source="Yi et al. 2019, section 4",
        trains=True,
        stages=StageRule(((r"(videos|query)\.", 0), (r"(channels|item)\.", 1))),
    ),
)
