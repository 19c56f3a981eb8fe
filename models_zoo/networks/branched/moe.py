"""A transformer with a mixture of experts in every layer: a gate sends each token to two of them, and all run at once."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.mistral.modeling_mistral import MistralMLP

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Jiang et al. (2024), table 1 (Mixtral 8x7B), at a quarter of its width and an eighth of its depth.

    That is 428 million parameters of 46.7 billion; heads, the shared keys and values, the experts' width of 3.5 times
    the model's, and the two experts per token keep their proportions.
    """

    layers: int = 4
    hidden: int = 1024
    expert: int = 3584
    heads: int = 8
    key_value_heads: int = 2
    experts: int = 8
    per_token: int = 2
    capacity: float = 1.25
    """Tokens that an expert takes, over those that it would get if all got as many; `Experts` says what is left out."""
    vocabulary: int = 32000
    length: int = 256
    batch: int = 4


class Experts(nn.Module):
    """`x [N, H]` and each token's experts and weights `[N, K]` to `[N, H]`; every expert is a branch of its own.

    An expert runs on a fixed number C of tokens, `capacity * N * K / E` of them, as in GShard (Lepikhin et al. 2021):
    those of the N whose gate gives it the most weight, as in batch prioritized routing (Riquelme et al. 2021). Tokens
    that chose a full expert lose its part of their sum; Mixtral drops none. A place that no token chose is filled with
    a token of weight 0, which adds 0. So the work is that of sparse routing, in shapes that do not depend on the data.
    """

    def __init__(self, config: MixtralConfig, capacity: float) -> None:
        super().__init__()
        count = config.num_local_experts
        self.share = capacity * config.num_experts_per_tok / count
        self.experts = nn.ModuleList(MistralMLP(config) for _ in range(count))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The sum of the outputs of the experts of each token."""
        gates = x.new_zeros(x.shape[0], len(self.experts)).scatter(1, chosen, weights)
        places = min(x.shape[0], math.ceil(self.share * x.shape[0]))
        taken, found = [], []
        for expert, gate in zip(self.experts, gates.unbind(1), strict=True):
            weight, tokens = gate.topk(places)
            taken.append(tokens)
            found.append(expert(x[tokens]) * weight.unsqueeze(1))
        return torch.zeros_like(x).index_add(0, torch.cat(taken), torch.cat(found))


class RoutedTransformer(nn.Module):
    """`tokens [B, T]` to `logits [B, T, V]`: transformers' Mixtral with `Experts` in place of its own.

    The gate is Mixtral's: a softmax over all experts, the largest two of it, and their weights scaled to a sum of 1.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        config = MixtralConfig(
            vocab_size=settings.vocabulary,
            hidden_size=settings.hidden,
            intermediate_size=settings.expert,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.key_value_heads,
            num_local_experts=settings.experts,
            num_experts_per_tok=settings.per_token,
            max_position_embeddings=settings.length,
            use_cache=False,
        )
        self.mixtral = MixtralForCausalLM(config)
        for layer in self.mixtral.model.layers:
            layer.mlp.experts = Experts(config, settings.capacity)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        logits: Tensor = self.mixtral(input_ids=tokens).logits
        return logits


def _make(settings: Settings) -> TorchNetwork:
    tokens = torch.randint(settings.vocabulary, (settings.batch, settings.length))
    return TorchNetwork(RoutedTransformer(settings), inputs={"tokens": tokens}, outputs=("logits",))


def _stages(experts: int) -> StageRule:
    """Expert k of every layer together, and what all tokens pass through in a stage after them."""
    return StageRule(((r"mixtral\.model\.layers\.\d+\.mlp\.experts\.experts\.(\d+)\.", r"\1"), (r"mixtral\.", experts)))


def _recipe(settings: Settings, summary: str, source: str) -> Recipe:
    return Recipe(
        name=f"moe_{settings.experts}",
        summary=summary,
        make=_make,
        settings=settings,
        small=Settings(
            layers=2, hidden=16, expert=24, heads=2, key_value_heads=1, experts=4, vocabulary=50, length=6, batch=2
        ),
        source=source,
        stages=_stages(settings.experts),
    )


RECIPES = (_recipe(Settings(), "Mixtral's shape, 8 experts in each of 4 layers", "Jiang et al. 2024, table 1"),)
