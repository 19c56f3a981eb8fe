"""ViT: a transformer encoder of image patches that classifies the image."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Dosovitskiy et al. (2021), table 1, and the library's `ViTConfig`, on ImageNet; dropout is 0.

    The batch is our choice (the paper's is 4096, over many devices).
    """

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    image: int = 224
    patch: int = 16
    classes: int = 1000
    batch: int = 8


class Vit(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.network = ViTForImageClassification(
            ViTConfig(
                hidden_size=settings.hidden,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                intermediate_size=4 * settings.hidden,
                image_size=settings.image,
                patch_size=settings.patch,
                num_labels=settings.classes,
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        logits: Tensor = self.network(pixel_values=image).logits
        return logits


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Vit(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
        targets={"label": torch.randint(settings.classes, (settings.batch,))},
        loss=nn.functional.cross_entropy,
        optimizer="adam",
    )


def _recipe(size: str, settings: Settings) -> Recipe:
    return Recipe(
        name=f"vit_{size}",
        summary=f"ViT-{size} with patches of {settings.patch} pixels",
        make=_make,
        settings=settings,
        small=Settings(layers=2, hidden=16, heads=2, image=32, classes=10, batch=2),
        source="Dosovitskiy et al. 2021, table 1; ViTConfig()",
        trains=True,
        stages=StageRule(
            (
                (r"network\.vit\.(encoder\.)?layers?\.(\d+)\.", r"\2"),
                (r"network\.vit\.embeddings\.", 0),
                (r"network\.(vit\.layernorm|classifier)\.", "last"),
            )
        ),
    )


RECIPES = (_recipe("base", Settings()),)
