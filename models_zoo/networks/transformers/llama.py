"""A Llama-style decoder - rotary positions, grouped queries, gated layers - that reads a prompt or decodes a token."""

from dataclasses import dataclass

from transformers import LlamaConfig, LlamaForCausalLM

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork
from models_zoo.networks.transformers.decoding import decode_network, prefill_network


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


def _make_prefill(settings: Settings) -> TorchNetwork:
    return prefill_network(_network(settings), settings.batch, settings.length)


def _make_decode(settings: Settings) -> TorchNetwork:
    return decode_network(_network(settings), settings.batch, settings.length)


_SMALL = Settings(layers=2, hidden=16, heads=4, shared=2, gated=24, vocabulary=50, positions=8, batch=2, length=6)
_SOURCE = "Zhang et al. 2024 (TinyLlama), table 2; LlamaConfig"
_STAGES = StageRule(
    (
        (r"network\.model\.layers\.(\d+)\.", r"\1"),
        (r"network\.model\.(embed_tokens|rotary_emb)\.", 0),
        (r"network\.(model\.norm|lm_head)\.", "last"),
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
