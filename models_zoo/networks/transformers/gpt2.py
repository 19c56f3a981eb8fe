"""GPT-2: the decoder in training, and in its two phases of serving, a prompt and then token after token."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork
from models_zoo.networks.transformers.decoding import decode_network, prefill_network


@dataclass(frozen=True)
class Settings:
    """Radford et al. (2019), table 2, first row, and the library's `GPT2Config`: 124 million parameters; dropout is 0.

    The context of 1024 tokens is the paper's; batches are our choice (the paper's is 512, over many devices).
    """

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    batch: int = 2
    length: int = 1024
    """Tokens of a text or prompt; where single tokens are decoded, those already in the cache."""


def _network(settings: Settings) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=settings.vocabulary,
            n_positions=settings.positions,
            n_embd=settings.hidden,
            n_layer=settings.layers,
            n_head=settings.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=settings.vocabulary - 1,
            eos_token_id=settings.vocabulary - 1,
        )
    )


class Gpt2(nn.Module):
    """`tokens [B, T]` to `logits [B, T, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.network = _network(settings)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        logits: Tensor = self.network(input_ids=tokens, use_cache=False).logits
        return logits


def _loss(logits: Tensor, following: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def _make(settings: Settings) -> TorchNetwork:
    tokens = torch.randint(settings.vocabulary, (settings.batch, settings.length + 1))
    return TorchNetwork(
        Gpt2(settings),
        inputs={"tokens": tokens[:, :-1].contiguous()},
        outputs=("logits",),
        targets={"following": tokens[:, 1:].contiguous()},
        loss=_loss,
        optimizer="adam",
    )


def _make_prefill(settings: Settings) -> TorchNetwork:
    return prefill_network(_network(settings), settings.batch, settings.length)


def _make_decode(settings: Settings) -> TorchNetwork:
    return decode_network(_network(settings), settings.batch, settings.length)


_SMALL = Settings(layers=2, hidden=16, heads=2, vocabulary=50, positions=8, batch=2, length=6)
_SOURCE = "Radford et al. 2019, table 2; GPT2Config()"
_STAGES = StageRule(
    (
        (r"network\.transformer\.h\.(\d+)\.", r"\1"),
        (r"network\.transformer\.w[tp]e\.", 0),
        (r"network\.(transformer\.ln_f|lm_head)\.", "last"),
    )
)
"""The head shares its weight with the embedding, and in a training step its ops go to the stage of that weight."""

RECIPES = (
    Recipe(
        name="gpt2",
        summary="GPT-2 of 124 million parameters on whole texts",
        make=_make,
        settings=Settings(),
        small=_SMALL,
        source=_SOURCE,
        trains=True,
        stages=_STAGES,
    ),
    Recipe(
        name="gpt2_prefill",
        summary="GPT-2 reads a prompt and leaves its key-value cache",
        make=_make_prefill,
        settings=Settings(batch=1),
        small=_SMALL,
        source=_SOURCE,
        stages=_STAGES,
    ),
    Recipe(
        name="gpt2_decode",
        summary="GPT-2 decodes one token with its key-value cache",
        make=_make_decode,
        settings=Settings(batch=16, length=512),
        small=_SMALL,
        source=_SOURCE,
        stages=_STAGES,
    ),
)
