"""Residual networks with bottleneck blocks, from the configurations of the `transformers` library."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetForImageClassification

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """He et al. (2016), table 1; batch 32 is that of Gao et al. (NeurIPS 2018), section 5, on ImageNet."""

    blocks: str = "3-4-6-3"
    """Residual blocks of each of the four grids."""
    hidden: int = 256
    """Channels of the first grid's blocks, doubled from grid to grid; a bottleneck has a quarter of them."""
    batch: int = 32
    image: int = 224
    classes: int = 1000


class ResNet(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        blocks = _numbers(settings.blocks)
        self.network = ResNetForImageClassification(
            ResNetConfig(
                embedding_size=settings.hidden // 4,
                hidden_sizes=[settings.hidden << grid for grid in range(len(blocks))],
                depths=blocks,
                layer_type="bottleneck",
                num_labels=settings.classes,  # an argument of every configuration
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        logits: Tensor = self.network(image).logits
        return logits


def _numbers(blocks: str) -> list[int]:
    return [int(number) for number in blocks.split("-")]


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        ResNet(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
        targets={"label": torch.randint(settings.classes, (settings.batch,))},
        loss=nn.functional.cross_entropy,
    )


def _stages(blocks: Sequence[int]) -> StageRule:
    """One stage per residual block; the stem is with the first, the classifier with the last."""
    places = [(grid, block) for grid, number in enumerate(blocks) for block in range(number)]
    return StageRule(
        (
            (r"network\.resnet\.embedder\.", 0),
            *(
                (rf"network\.resnet\.encoder\.stages\.{grid}\.layers\.{block}\.", stage)
                for stage, (grid, block) in enumerate(places)
            ),
            (r"network\.classifier\.", len(places) - 1),
        )
    )


def _recipe(layers: int, blocks: str, small: str) -> Recipe:
    return Recipe(
        name=f"resnet_{layers}",
        summary=f"residual network of {layers} layers",
        make=_make,
        settings=Settings(blocks=blocks),
        small=Settings(blocks=small, hidden=32, batch=2, image=64, classes=10),
        source="He et al. 2016, table 1; Gao et al. 2018 (Post), section 5",
        trains=True,
        stages=_stages(_numbers(blocks)),
    )


RECIPES = (_recipe(50, "3-4-6-3", "1-1-2-1"), _recipe(101, "3-4-23-3", "1-1-3-1"))
