"""The two phases of serving a decoder - a prompt, then token after token - with its key-value cache as plain tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedConfig, PreTrainedModel, StaticCache
from transformers.cache_utils import CacheLayerMixin, StaticLayer

from models_zoo.networks.recipe import TorchNetwork


class Prefill(nn.Module):
    """`tokens [B, T]` to `logits [B, 1, V]` of the next token, and keys and values `[B, A, T, D]` of every layer."""

    def __init__(self, network: PreTrainedModel) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Logits, then key and value of each layer."""
        found = self.network(input_ids=tokens, use_cache=True, logits_to_keep=1)
        return (found.logits, *_tensors_of(found.past_key_values))


class Decode(nn.Module):
    """`tokens [B, 1]` at `position [1]`, with caches `[B, A, P, D]`, to `logits [B, 1, V]` and the caches after it."""

    def __init__(self, network: PreTrainedModel) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, position: Tensor, **past: Tensor) -> tuple[Tensor, ...]:
        """Logits, the next position, then key and value of each layer."""
        cache = _filled_cache(self.network.config, position, tuple(past.values()))
        found = self.network(input_ids=tokens, position_ids=position[None], past_key_values=cache, use_cache=True)
        return (found.logits, position + 1, *_tensors_of(cache))


def prefill_network(network: PreTrainedModel, batch: int, length: int) -> TorchNetwork:
    """Reads prompts of `length` tokens and leaves the cache."""
    config = network.config
    return TorchNetwork(
        Prefill(network),
        inputs={"tokens": torch.randint(config.vocab_size, (batch, length))},
        outputs=("logits", *_cache_names("present", config.num_hidden_layers)),
    )


def decode_network(network: PreTrainedModel, batch: int, length: int) -> TorchNetwork:
    """Decodes one token after `length` others, in a cache of all the positions that the network knows."""
    config = network.config
    layers, positions = config.num_hidden_layers, config.max_position_embeddings
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    shape = (batch, heads, positions, config.hidden_size // config.num_attention_heads)
    filled = (torch.arange(positions) < length)[:, None]
    past = {name: torch.randn(shape) * filled for name in _cache_names("past", layers)}
    return TorchNetwork(
        Decode(network),
        inputs={
            "tokens": torch.randint(config.vocab_size, (batch, 1)),
            "position": torch.tensor([length]),
            **past,
        },
        outputs=("logits", "next_position", *_cache_names("present", layers)),
        state={"position": "next_position", **dict(zip(past, _cache_names("present", layers), strict=True))},
    )


def _cache_names(stem: str, layers: int) -> tuple[str, ...]:
    """`STEM_key_0`, `STEM_value_0`, `STEM_key_1`, ..."""
    return tuple(f"{stem}_{part}_{layer}" for layer in range(layers) for part in ("key", "value"))


def _tensors_of(cache: Cache) -> tuple[Tensor, ...]:
    """Key and value `[B, A, P, D]` of each layer."""
    found = []
    for layer in cache.layers:
        assert isinstance(layer, CacheLayerMixin)
        assert layer.keys is not None
        assert layer.values is not None
        found += [layer.keys, layer.values]
    return tuple(found)


def _filled_cache(config: PreTrainedConfig, position: Tensor, tensors: Sequence[Tensor]) -> StaticCache:
    """A cache of fixed size that holds copies of key and value `[B, A, P, D]` of each layer, filled up to `position [1]`.

    Of fixed size, since what comes out of a step then goes into the next.
    """
    cache = StaticCache(config=config, max_cache_len=tensors[0].shape[2])
    for layer, keys, values in zip(cache.layers, tensors[::2], tensors[1::2], strict=True):
        assert isinstance(layer, StaticLayer)
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys.clone(), values.clone()
        layer.cumulative_length = position.clone().squeeze(0)
    return cache
