"""Key-value caches as plain tensors: what a decoder leaves for the next token, and takes back."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from transformers import Cache, PreTrainedConfig, StaticCache
from transformers.cache_utils import CacheLayerMixin, StaticLayer

__all__ = ["cache_names", "filled_cache", "state_pairs", "tensors_of"]


def cache_names(stem: str, layers: int) -> tuple[str, ...]:
    """`STEM_key_0`, `STEM_value_0`, `STEM_key_1`, ..."""
    return tuple(f"{stem}_{part}_{layer}" for layer in range(layers) for part in ("key", "value"))


def state_pairs(layers: int) -> dict[str, str]:
    """The cache that comes out of a step for each that goes in."""
    return dict(zip(cache_names("past", layers), cache_names("present", layers), strict=True))


def tensors_of(cache: Cache) -> tuple[Tensor, ...]:
    """Key and value `[B, A, P, D]` of each layer."""
    found = []
    for layer in cache.layers:
        assert isinstance(layer, CacheLayerMixin)
        assert layer.keys is not None
        assert layer.values is not None
        found += [layer.keys, layer.values]
    return tuple(found)


def filled_cache(config: PreTrainedConfig, position: Tensor, tensors: Sequence[Tensor]) -> StaticCache:
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
