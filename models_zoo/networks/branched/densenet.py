"""DenseNet: every layer of a block reads the outputs of all layers before it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Huang et al. (2017), table 1 and section 3: DenseNet-BC with bottlenecks of four times the growth; the batch is our choice."""

    growth: int = 32
    depth: int = 121
    """121, 169 or 201 layers; 13 is for tests."""
    image: int = 224
    classes: int = 1000
    batch: int = 16


_BLOCKS = {13: (2, 2), 121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}
_BOTTLENECK = 4
_COMPRESSION = 2


class DenseLayer(nn.Module):
    """Norm, ReLU and convolution twice, 1x1 and 3x3."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, _BOTTLENECK * growth, 1, bias=False),
            nn.BatchNorm2d(_BOTTLENECK * growth), nn.ReLU(),
            nn.Conv2d(_BOTTLENECK * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, found: list[Tensor]) -> Tensor:
        """`growth` channels from those of all layers before."""
        result: Tensor = self.layers(torch.cat(found, 1))
        return result


def _transition(channels: int) -> nn.Sequential:
    """Fewer channels at half the resolution."""
    return nn.Sequential(
        nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // _COMPRESSION, 1, bias=False),
        nn.AvgPool2d(2),
    )  # fmt: skip


class DenseNet(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        channels = 2 * settings.growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )  # fmt: skip
        self.transitions = nn.ModuleList()
        self.blocks: Any = nn.ModuleList()
        for layers in _BLOCKS[settings.depth]:
            if len(self.blocks):
                self.transitions.append(_transition(channels))
                channels //= _COMPRESSION
            self.blocks.append(
                nn.ModuleList(
                    DenseLayer(channels + layer * settings.growth, settings.growth) for layer in range(layers)
                )
            )
            channels += layers * settings.growth
        self.head = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(channels, settings.classes),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        features = self.stem(image)
        for number, block in enumerate(self.blocks):
            if number:
                features = self.transitions[number - 1](features)
            found = [features]
            for layer in block:
                found.append(layer(found))
            features = torch.cat(found, 1)
        logits: Tensor = self.head(features)
        return logits


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        DenseNet(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
    )


RECIPES = tuple(
    Recipe(
        name=f"densenet_{depth}",
        summary=f"DenseNet-BC with {depth} layers",
        make=_make,
        settings=Settings(depth=depth),
        small=Settings(growth=4, depth=13, image=32, classes=10, batch=2),
        source="Huang, Liu, van der Maaten and Weinberger 2017, table 1",
        stages=StageRule(
            ((r"stem\.", 0), (r"blocks\.(\d+)\.", r"\1"), (r"transitions\.(\d+)\.", r"\1"), (r"head\.", "last"))
        ),
    )
    for depth in (121, 201)
)
