"""Whisper: an encoder of a sound's mel spectrogram, and a decoder of its text."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Radford et al. (2023), table 1: 30 seconds of sound in 3000 frames; tokens are a text of half the context.

    Vocabulary and positions are those of the library's `WhisperConfig`; the batch is our choice.
    """

    layers: int = 6
    """Layers of the encoder, and of the decoder."""
    hidden: int = 512
    heads: int = 8
    mels: int = 80
    frames: int = 3000
    vocabulary: int = 51865
    positions: int = 448
    tokens: int = 224
    batch: int = 4


class Whisper(nn.Module):
    """`sound [B, M, F]` and `tokens [B, T]` to `logits [B, T, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        last = settings.vocabulary - 1
        self.network = WhisperForConditionalGeneration(
            WhisperConfig(
                vocab_size=settings.vocabulary,
                num_mel_bins=settings.mels,
                d_model=settings.hidden,
                encoder_layers=settings.layers,
                encoder_attention_heads=settings.heads,
                encoder_ffn_dim=4 * settings.hidden,
                decoder_layers=settings.layers,
                decoder_attention_heads=settings.heads,
                decoder_ffn_dim=4 * settings.hidden,
                max_source_positions=settings.frames // 2,
                max_target_positions=settings.positions,
                pad_token_id=min(50256, last),
                bos_token_id=min(50256, last),
                eos_token_id=min(50256, last),
                decoder_start_token_id=min(50257, last),
            )
        )

    def forward(self, sound: Tensor, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        found = self.network(input_features=sound, decoder_input_ids=tokens, use_cache=False)
        logits: Tensor = found.logits
        return logits


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Whisper(settings),
        inputs={
            "sound": torch.randn(settings.batch, settings.mels, settings.frames),
            "tokens": torch.randint(settings.vocabulary, (settings.batch, settings.tokens)),
        },
        outputs=("logits",),
    )


def _stages(layers: int) -> StageRule:
    """The encoder's layers, then the decoder's; its embedding is with its first, its head with its last."""
    return StageRule(
        (
            *((rf"network\.model\.decoder\.layers\.{layer}\.", layers + layer) for layer in range(layers)),
            (r"network\.model\.encoder\.layers\.(\d+)\.", r"\1"),
            (r"network\.model\.encoder\.(conv|embed)", 0),
            (r"network\.model\.encoder\.layer_norm\.", layers - 1),
            (r"network\.model\.decoder\.embed_", layers),
            (r"network\.(model\.decoder\.layer_norm|proj_out)\.", "last"),
        )
    )


def _recipe(size: str, settings: Settings) -> Recipe:
    return Recipe(
        name=f"whisper_{size}",
        summary=f"Whisper-{size}, from sound to text",
        make=_make,
        settings=settings,
        small=Settings(layers=2, hidden=16, heads=2, mels=8, frames=12, vocabulary=50, positions=8, tokens=5, batch=2),
        source="Radford et al. 2023 (Whisper), table 1; WhisperConfig",
        stages=_stages(settings.layers),
    )


RECIPES = (_recipe("tiny", Settings(layers=4, hidden=384, heads=6)), _recipe("base", Settings()))
