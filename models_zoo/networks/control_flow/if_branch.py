"""An early exit: a cheap gate decides by `If` whether a short or a deep head classifies the batch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import ResNetConfig, ResNetModel

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Teerapittayanon et al. (BranchyNet, 2016), B-ResNet of 110 layers on CIFAR-10 after He et al. (2016), 4.2.

    Departures: one exit instead of two, and the exit's layers run only when it is taken; a linear gate before it
    decides, by the mean entropy of the batch.
    """

    blocks: int = 18
    """Residual blocks of each of the three grids; the first grid is before the exit."""
    hidden: int = 16
    """Channels of the first grid, doubled from grid to grid."""
    batch: int = 1
    """An exit is taken sample by sample."""
    image: int = 32
    classes: int = 10
    entropy: float = 0.5
    """Entropy below which the gate takes the exit, as a fraction of the largest entropy."""


class EarlyExit(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.hidden
        self.limit = settings.entropy * math.log(settings.classes)
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=False)
        )
        network = ResNetModel(
            ResNetConfig(
                embedding_size=width,
                hidden_sizes=[width, 2 * width, 4 * width],
                depths=[settings.blocks] * 3,
                layer_type="basic",
            )
        )
        self.first, *deep = network.encoder.stages
        self.gate = nn.Linear(width, settings.classes)
        self.cheap = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, padding=1), nn.ReLU(), *_classifier(2 * width, settings)
        )
        self.deep = nn.Sequential(*deep, *_classifier(4 * width, settings))

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        x = self.first(self.stem(image))
        guess = self.gate(x.mean((2, 3)))
        entropy = -(guess.softmax(-1) * guess.log_softmax(-1)).sum(-1).mean()
        logits: Tensor = torch.cond(entropy < self.limit, self.cheap, self.deep, (x,))
        return logits


def _classifier(width: int, settings: Settings) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, settings.classes)


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        EarlyExit(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
    )


RECIPES = (
    Recipe(
        name="early_exit",
        summary="residual network of 110 layers with an exit after the first third",
        make=_make,
        settings=Settings(),
        small=Settings(blocks=1, hidden=8, batch=2, image=16),
        source="Teerapittayanon et al. 2016 (BranchyNet), section IV",
        stages=StageRule(((r"(stem|first|gate)\.", 0), (r"(cheap|deep)\.", 1))),
    ),
)
