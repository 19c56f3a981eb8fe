"""Swin: an image encoder with attention in windows that shift from layer to layer and merge from stage to stage."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import SwinConfig, SwinForImageClassification

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Liu et al. (2021), section 3.3 (Swin-T), and the library's `SwinConfig`, on ImageNet; the batch is our choice."""

    depths: str = "2-2-6-2"
    """Layers of each of the four stages."""
    hidden: int = 96
    """Width of the first stage, doubled from stage to stage."""
    heads: int = 3
    """Width of the first stage; every stage doubles it."""
    window: int = 7
    image: int = 224
    classes: int = 1000
    batch: int = 8


class Swin(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        depths = _numbers(settings.depths)
        config = SwinConfig(
            image_size=settings.image,
            embed_dim=settings.hidden,
            depths=depths,
            num_heads=[settings.heads << stage for stage in range(len(depths))],
            window_size=settings.window,
            drop_path_rate=0.0,
        )
        config.num_labels = settings.classes
        self.network = SwinForImageClassification(config)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        logits: Tensor = self.network(pixel_values=image).logits
        return logits


def _numbers(depths: str) -> list[int]:
    return [int(number) for number in depths.split("-")]


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Swin(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
    )


def _stages(depths: Sequence[int]) -> StageRule:
    """One stage per layer; a merge is with the layer before it."""
    places = [(stage, layer) for stage, depth in enumerate(depths) for layer in range(depth)]
    ends = [sum(depths[: stage + 1]) - 1 for stage in range(len(depths))]
    encoder = r"network\.swin\.encoder\.layers\."
    return StageRule(
        (
            *((rf"{encoder}{stage}\.blocks\.{layer}\.", number) for number, (stage, layer) in enumerate(places)),
            *((rf"{encoder}{stage}\.downsample\.", end) for stage, end in enumerate(ends)),
            (r"network\.swin\.embeddings\.", 0),
            (r"network\.(swin\.layernorm|swin\.pooler|classifier)\.", len(places) - 1),
        )
    )


def _recipe(size: str, settings: Settings) -> Recipe:
    return Recipe(
        name=f"swin_{size}",
        summary=f"Swin-{size} on images of {settings.image} pixels",
        make=_make,
        settings=settings,
        small=Settings(depths="2-2", hidden=12, heads=2, window=4, image=32, classes=10, batch=2),
        source="Liu et al. 2021, section 3.3; SwinConfig()",
        stages=_stages(_numbers(settings.depths)),
    )


RECIPES = (_recipe("tiny", Settings()),)
