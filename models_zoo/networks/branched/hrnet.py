"""HRNet: streams of several resolutions side by side, which exchange their features again and again."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

_MODULES = (1, 4, 3)
_BLOCKS = 4
_STEM = 64


@dataclass(frozen=True)
class Settings:
    """Wang et al. (2020), section 3 and table 1: stages of 2, 3 and 4 streams; the batch is our choice."""

    width: int = 18
    """Channels of the stream with the highest resolution; each lower one has twice as many."""
    stages: int = 3
    image: int = 224
    classes: int = 19
    batch: int = 4


def _convolved(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class BasicBlock(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolved(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Features of the same shape."""
        return torch.relu(features + self.second(self.first(features)))


class Exchange(nn.Module):
    """Blocks in every stream, then the sum over all streams at each resolution (figure 3)."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.streams = nn.ModuleList(nn.Sequential(*(BasicBlock(width) for _ in range(_BLOCKS))) for width in widths)
        self.fuse: Any = nn.ModuleList(
            nn.ModuleList(_resized(widths, source, target) for source in range(len(widths)))
            for target in range(len(widths))
        )

    def forward(self, streams: list[Tensor]) -> list[Tensor]:
        """The fused features of every stream."""
        found = [blocks(features) for blocks, features in zip(self.streams, streams, strict=True)]
        fused = []
        for resized in self.fuse:
            parts = [to(features) for to, features in zip(resized, found, strict=True)]
            fused.append(torch.relu(sum(parts[1:], parts[0])))
        return fused


def _resized(widths: tuple[int, ...], source: int, target: int) -> nn.Module:
    """Features of one stream at the resolution of another: strided convolutions down, 1x1 and nearest neighbour up."""
    if source == target:
        return nn.Identity()
    if source > target:
        return nn.Sequential(
            nn.Conv2d(widths[source], widths[target], 1, bias=False), nn.BatchNorm2d(widths[target]),
            nn.Upsample(scale_factor=float(2 ** (source - target)), mode="nearest"),
        )  # fmt: skip
    steps = [_convolved(widths[source], widths[source], stride=2) for _ in range(target - source - 1)]
    return nn.Sequential(*steps, _convolved(widths[source], widths[target], stride=2)[:2])


class HighResolution(nn.Module):
    """`image [B, 3, H, W]` to `segments [B, C, H / 4, W / 4]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        widths = tuple(settings.width * 2**stream for stream in range(settings.stages + 1))
        self.stem = nn.Sequential(_convolved(3, _STEM, 2), _convolved(_STEM, _STEM, 2), BasicBlock(_STEM))
        self.first = nn.ModuleList([_convolved(_STEM, widths[0]), _convolved(_STEM, widths[1], 2)])
        self.grown = nn.ModuleList(
            _convolved(widths[stage], widths[stage + 1], 2) for stage in range(1, settings.stages)
        )
        self.stages: Any = nn.ModuleList(
            nn.ModuleList(Exchange(widths[: stage + 2]) for _ in range(_MODULES[stage]))
            for stage in range(settings.stages)
        )
        self.head = nn.Sequential(_convolved(sum(widths), sum(widths)), nn.Conv2d(sum(widths), settings.classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes per pixel."""
        features = self.stem(image)
        streams = [to(features) for to in self.first]
        for number, stage in enumerate(self.stages):
            if number:
                streams.append(self.grown[number - 1](streams[-1]))
            for exchange in stage:
                streams = exchange(streams)
        size = streams[0].shape[-2:]
        whole = [nn.functional.interpolate(stream, size=size, mode="nearest") for stream in streams]
        segments: Tensor = self.head(torch.cat(whole, 1))
        return segments


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        HighResolution(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("segments",),
    )


RECIPES = tuple(
    Recipe(
        name=f"hrnet_{width}",
        summary=f"HRNet-W{width}: four resolutions side by side",
        make=_make,
        settings=Settings(width=width),
        small=Settings(width=4, stages=2, image=32, classes=3, batch=2),
        source="Wang et al. 2020, section 3",
        stages=StageRule(
            ((r"(stem|first)\.", 0), (r"stages\.(\d+)\.", r"\1"), (r"grown\.(\d+)\.", r"\1"), (r"head\.", "last"))
        ),
    )
    for width in (18, 32)
)
