"""T5: an encoder that reads a text, and a decoder that attends to it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Raffel et al. (2020), section 3.1.1 (base) and 3.7 (small), and the library's `T5Config`; dropout is 0.

    512 tokens to read and 114 to write are those of the paper's pre-training (section 3.1.4); the
    batch is our choice.
    """

    layers: int = 12
    """Layers of the encoder, and of the decoder."""
    hidden: int = 768
    heads: int = 12
    key: int = 64
    """Width of a head."""
    vocabulary: int = 32128
    batch: int = 4
    source: int = 512
    target: int = 114


class T5(nn.Module):
    """`source [B, S]`, `mask [B, S]` of tokens that are there, and `target [B, T]` to `logits [B, T, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        config = T5Config(
            vocab_size=settings.vocabulary,
            d_model=settings.hidden,
            d_kv=settings.key,
            d_ff=4 * settings.hidden,
            num_layers=settings.layers,
            num_heads=settings.heads,
            dropout_rate=0.0,
            attn_implementation="eager",
        )
        self.network = T5ForConditionalGeneration(config)

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Logits of the next token at every position of the target."""
        found = self.network(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False)
        logits: Tensor = found.logits
        return logits


def _make(settings: Settings) -> TorchNetwork:
    """Texts of at least half the length, padded with token 0; targets begin with token 0."""
    lengths = torch.randint(settings.source // 2, settings.source + 1, (settings.batch, 1))
    mask = (torch.arange(settings.source) < lengths).long()
    target = torch.randint(1, settings.vocabulary, (settings.batch, settings.target))
    target[:, 0] = 0
    return TorchNetwork(
        T5(settings),
        inputs={"source": torch.randint(1, settings.vocabulary, mask.shape) * mask, "mask": mask, "target": target},
        outputs=("logits",),
    )


def _stages(layers: int) -> StageRule:
    """The encoder's layers, then the decoder's; their embedding is with the first, what every layer reads is there too."""
    return StageRule(
        (
            *((rf"network\.decoder\.block\.{layer}\.", layers + layer) for layer in range(layers)),
            (r"network\.encoder\.block\.(\d+)\.", r"\1"),
            (r"network\.encoder\.final_layer_norm\.", layers - 1),
            (r"network\.(decoder\.final_layer_norm|lm_head)\.", "last"),
            (r"network\.decoder\.embed_tokens\.", layers),
            (r"network\.(shared|encoder\.embed_tokens)\.", 0),
        )
    )


def _recipe(size: str, settings: Settings) -> Recipe:
    return Recipe(
        name=f"t5_{size}",
        summary=f"T5-{size}, an encoder and a decoder of text",
        make=_make,
        settings=settings,
        small=Settings(layers=2, hidden=16, heads=2, key=8, vocabulary=50, batch=2, source=8, target=5),
        source="Raffel et al. 2020, section 3; T5Config",
        stages=_stages(settings.layers),
    )


RECIPES = (_recipe("small", Settings(layers=6, hidden=512, heads=8)), _recipe("base", Settings()))
