"""Conformer: attention and convolution in every block, for speech."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Gulati et al. (2020), section 2 and table 1, Conformer (M).

    Departures: absolute positions in place of relative ones, and no dropout; the length and the batch are our choice.
    """

    blocks: int = 16
    width: int = 256
    heads: int = 4
    kernel: int = 31
    mels: int = 80
    frames: int = 1024
    vocabulary: int = 1024
    batch: int = 4


class ConvolutionModule(nn.Module):
    """Pointwise with a gate, depthwise along time, pointwise (figure 2)."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Conv1d(width, 2 * width, 1)
        self.along = nn.Sequential(
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width), nn.BatchNorm1d(width), nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )  # fmt: skip

    def forward(self, sound: Tensor) -> Tensor:
        """`[B, T, W]` to the same shape."""
        gated = nn.functional.glu(self.expand(self.norm(sound).transpose(1, 2)), dim=1)
        found: Tensor = self.along(gated).transpose(1, 2)
        return found


class Attention(nn.Module):
    """Self-attention of all frames."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.projected, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, sound: Tensor) -> Tensor:
        """`[B, T, W]` to the same shape."""
        batch, frames, width = sound.shape
        projected = self.projected(self.norm(sound)).view(batch, frames, 3, self.heads, -1)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        found: Tensor = self.output(attended.transpose(1, 2).reshape(batch, frames, width))
        return found


def _feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class Block(nn.Module):
    """Half a feed-forward step, attention, convolution and the other half (equation 1)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.before, self.after = _feed_forward(settings.width), _feed_forward(settings.width)
        self.attention = Attention(settings.width, settings.heads)
        self.convolution = ConvolutionModule(settings.width, settings.kernel)
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, sound: Tensor) -> Tensor:
        """`[B, T, W]` to the same shape."""
        sound = sound + 0.5 * self.before(sound)
        sound = sound + self.attention(sound)
        sound = sound + self.convolution(sound)
        normed: Tensor = self.norm(sound + 0.5 * self.after(sound))
        return normed


class Conformer(nn.Module):
    """`sound [B, T, M]` to `logits [B, T / 4, V]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.subsample = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.project = nn.Linear(width * -(-settings.mels // 4), width)
        self.positions = nn.Parameter(torch.randn(-(-settings.frames // 4), width))
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.blocks))
        self.head = nn.Linear(width, settings.vocabulary)

    def forward(self, sound: Tensor) -> Tensor:
        """Logits of the tokens per frame."""
        found = self.subsample(sound.unsqueeze(1)).transpose(1, 2).flatten(2)
        found = self.project(found) + self.positions
        for block in self.blocks:
            found = block(found)
        logits: Tensor = self.head(found)
        return logits


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        Conformer(settings),
        inputs={"sound": torch.randn(settings.batch, settings.frames, settings.mels)},
        outputs=("logits",),
    )


RECIPES = (
    Recipe(
        name="conformer",
        summary="Conformer (M), a speech recogniser",
        make=_make,
        settings=Settings(),
        small=Settings(blocks=1, width=8, heads=2, kernel=3, mels=8, frames=16, vocabulary=7, batch=2),
        source="Gulati et al. 2020, section 2",
        stages=StageRule(((r"(subsample|project|positions)", 0), (r"blocks\.(\d+)\.", r"\1"), (r"head\.", "last"))),
    ),
)
