"""BERT with its masked-language-model head."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

_IGNORED = -100
"""Target of a token that the loss leaves out, torch's default."""


@dataclass(frozen=True)
class Settings:
    """Devlin et al. (2019), section 3, and the library's `BertConfig`; dropout is 0.

    Texts of 128 tokens are those of the first 90 % of pre-training (appendix A.2); the batch is our choice (the
    paper's is 256, over many devices).
    """

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 30522
    length: int = 128
    batch: int = 32


class Bert(nn.Module):
    """`tokens [B, T]`, `segments [B, T]` of 0 and 1, and `mask [B, T]` of tokens that are there, to `logits [B, T, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.network = BertForMaskedLM(
            BertConfig(
                vocab_size=settings.vocabulary,
                hidden_size=settings.hidden,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                intermediate_size=4 * settings.hidden,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        """Logits of the token that stands at every position."""
        logits: Tensor = self.network(input_ids=tokens, token_type_ids=segments, attention_mask=mask).logits
        return logits


def _loss(logits: Tensor, hidden: Tensor) -> Tensor:
    """The loss over the hidden tokens."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), hidden.flatten(), ignore_index=_IGNORED)


def _make(settings: Settings) -> TorchNetwork:
    """Two segments in each text, padded with token 0; 15 % of the tokens are hidden, the first always."""
    shape = (settings.batch, settings.length)
    lengths = torch.randint(settings.length // 2, settings.length + 1, (settings.batch, 1))
    place = torch.arange(settings.length)
    mask = (place < lengths).long()
    tokens = torch.randint(2, settings.vocabulary, shape)
    chosen = ((torch.rand(shape) < 0.15) & (place < lengths)) | (place == 0)
    return TorchNetwork(
        Bert(settings),
        inputs={
            "tokens": torch.where(chosen, 1, tokens) * mask,
            "segments": (place >= lengths // 2).long() * mask,
            "mask": mask,
        },
        outputs=("logits",),
        targets={"hidden": torch.where(chosen, tokens, _IGNORED)},
        loss=_loss,
        optimizer="adam",
    )


def _recipe(size: str, settings: Settings, trains: bool) -> Recipe:
    return Recipe(
        name=f"bert_{size}",
        summary=f"BERT-{size}, an encoder that predicts hidden tokens",
        make=_make,
        settings=settings,
        small=Settings(layers=2, hidden=16, heads=2, vocabulary=50, length=8, batch=2),
        source="Devlin et al. 2019, section 3; BertConfig()",
        trains=trains,
        stages=StageRule(
            (
                (r"network\.bert\.encoder\.layer\.(\d+)\.", r"\1"),
                (r"network\.bert\.embeddings\.", 0),
                (r"network\.cls\.", "last"),
            )
        ),
    )


RECIPES = (
    _recipe("base", Settings(), trains=True),
    _recipe("large", Settings(layers=24, hidden=1024, heads=16, batch=8), trains=False),
)
"""BERT-large has no training step here: with its moments it would not be built on a small machine."""
