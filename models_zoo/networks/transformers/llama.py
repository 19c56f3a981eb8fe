"""A Llama-style decoder - rotary positions, grouped queries, gated layers - that reads a prompt or decodes a token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork
from models_zoo.networks.transformers.cache import cache_names, filled_cache, state_pairs, tensors_of

__all__ = ["RECIPES", "Decode", "Prefill", "Settings"]


@dataclass(frozen=True)
class Settings:
    """Zhang et al. (2024), TinyLlama, table 2, at every width; 8 of its 22 layers, since all weigh 4.4 GB."""

    layers: int = 8
    hidden: int = 2048
    heads: int = 32
    shared: int = 4
    """Heads of keys and values."""
    gated: int = 5632
    """Width of the gated layer."""
    vocabulary: int = 32000
    positions: int = 2048
    batch: int = 1
    length: int = 512
    """Tokens of a prompt; where single tokens are decoded, those already in the cache."""


def _network(settings: Settings) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=settings.vocabulary,
            hidden_size=settings.hidden,
            intermediate_size=settings.gated,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.shared,
            max_position_embeddings=settings.positions,
            rms_norm_eps=1e-5,
        )
    )


class Prefill(nn.Module):
    """`tokens [B, T]` to `logits [B, 1, V]` of the next token, and keys and values `[B, G, T, D]` of every layer."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.network = _network(settings)

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Logits, then key and value of each layer."""
        found = self.network(input_ids=tokens, use_cache=True, logits_to_keep=1)
        return (found.logits, *tensors_of(found.past_key_values))


class Decode(nn.Module):
    """`tokens [B, 1]` at `position [1]`, with caches `[B, G, P, D]`, to `logits [B, 1, V]` and the caches after it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.network = _network(settings)

    def forward(self, tokens: Tensor, position: Tensor, **past: Tensor) -> tuple[Tensor, ...]:
        """Logits, the next position, then key and value of each layer."""
        cache = filled_cache(self.network.config, position, tuple(past.values()))
        found = self.network(input_ids=tokens, position_ids=position[None], past_key_values=cache, use_cache=True)
        return (found.logits, position + 1, *tensors_of(cache))


def _make_prefill(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Prefill(settings),
        inputs={"tokens": torch.randint(settings.vocabulary, (settings.batch, settings.length))},
        outputs=("logits", *cache_names("present", settings.layers)),
    )


def _make_decode(settings: Settings) -> TorchNetwork:
    network = Decode(settings)  # before the caches are drawn: one seed gives it the weights of the prefill
    shape = (settings.batch, settings.shared, settings.positions, settings.hidden // settings.heads)
    filled = (torch.arange(settings.positions) < settings.length)[:, None]
    past = {name: torch.randn(shape) * filled for name in cache_names("past", settings.layers)}
    return TorchNetwork(
        network,
        inputs={
            "tokens": torch.randint(settings.vocabulary, (settings.batch, 1)),
            "position": torch.tensor([settings.length]),
            **past,
        },
        outputs=("logits", "next_position", *cache_names("present", settings.layers)),
        state={"position": "next_position", **state_pairs(settings.layers)},
    )


_SMALL = Settings(layers=2, hidden=16, heads=4, shared=2, gated=24, vocabulary=50, positions=8, batch=2, length=6)
_SOURCE = "Zhang et al. 2024 (TinyLlama), table 2; LlamaConfig"
_STAGES = StageRule(
    (
        (r"network\.model\.layers\.(\d+)\.", r"\1"),
        (r"network\.model\.(embed_tokens|rotary_emb)\.", 0),
        (r"network\.(model\.norm|lm_head)\.", Settings().layers - 1),
    )
)

RECIPES = (
    Recipe(
        name="llama_prefill",
        summary="a Llama-style decoder reads a prompt and leaves its key-value cache",
        make=_make_prefill,
        settings=Settings(),
        small=_SMALL,
        source=_SOURCE,
        stages=_STAGES,
    ),
    Recipe(
        name="llama_decode",
        summary="a Llama-style decoder decodes one token with its key-value cache",
        make=_make_decode,
        settings=Settings(batch=8, length=1024),
        small=_SMALL,
        source=_SOURCE,
        stages=_STAGES,
    ),
)
