"""Mamba: a selective state-space model, a recurrence in place of attention, unrolled in time."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import MambaConfig, MambaForCausalLM

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Gu and Dao (2023), table 12, first row (130 million parameters), and the library's `MambaConfig`.

    The library's recurrence is a loop where no fused kernel is there, so ops grow with tokens: the text is short, and
    the batch takes its place; both are our choice.
    """

    layers: int = 24
    hidden: int = 768
    state: int = 16
    vocabulary: int = 50280
    length: int = 32
    batch: int = 16


class Mamba(nn.Module):
    """`tokens [B, T]` to `logits [B, T, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.network = MambaForCausalLM(
            MambaConfig(
                vocab_size=settings.vocabulary,
                hidden_size=settings.hidden,
                state_size=settings.state,
                num_hidden_layers=settings.layers,
                use_associative_scan=False,
            )
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        logits: Tensor = self.network(input_ids=tokens, use_cache=False).logits
        return logits


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Mamba(settings),
        inputs={"tokens": torch.randint(settings.vocabulary, (settings.batch, settings.length))},
        outputs=("logits",),
    )


RECIPES = (
    Recipe(
        name="mamba_130m",
        summary="Mamba of 130 million parameters, a state-space model unrolled over 32 tokens",
        make=_make,
        settings=Settings(),
        small=Settings(layers=2, hidden=16, state=4, vocabulary=50, length=4, batch=2),
        source="Gu and Dao 2023, table 12; MambaConfig",
        stages=StageRule(
            (
                (r"network\.backbone\.layers\.(\d+)\.", r"\1"),
                (r"network\.backbone\.embeddings\.", 0),
                (r"network\.(backbone\.norm_f|lm_head)\.", "last"),
            )
        ),
    ),
)
