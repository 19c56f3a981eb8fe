"""WaveNet: dilated convolutions whose outputs all meet at the end."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork


@dataclass(frozen=True)
class Settings:
    """Van den Oord et al. (2016), sections 2.1 to 2.4: stacks of dilations 1, 2, ..., 512; widths and length are our choice."""

    stacks: int = 3
    dilations: int = 10
    width: int = 128
    skip: int = 256
    levels: int = 256
    """Quantisation levels of a sample."""
    samples: int = 8192
    batch: int = 2


class DilatedLayer(nn.Module):
    """A causal gated convolution with a residual and a skip output (figure 4)."""

    def __init__(self, settings: Settings, dilation: int) -> None:
        super().__init__()
        self.dilation, width = dilation, settings.width
        self.filter = nn.Conv1d(width, width, 2, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 2, dilation=dilation)
        self.residual, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, settings.skip, 1)

    def forward(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, W, T]` for the next layer, and `[B, S, T]` for the end."""
        padded = nn.functional.pad(sound, (self.dilation, 0))
        found = torch.tanh(self.filter(padded)) * torch.sigmoid(self.gate(padded))
        return sound + self.residual(found), self.skip(found)


class WaveNet(nn.Module):
    """`samples [B, T]` to `logits [B, Q, T]` of the next sample's level."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(settings.levels, settings.width)
        self.layers = nn.ModuleList(
            DilatedLayer(settings, 2**exponent)
            for _ in range(settings.stacks)
            for exponent in range(settings.dilations)
        )
        self.head = nn.Sequential(
            nn.ReLU(), nn.Conv1d(settings.skip, settings.skip, 1), nn.ReLU(),
            nn.Conv1d(settings.skip, settings.levels, 1),
        )  # fmt: skip

    def forward(self, samples: Tensor) -> Tensor:
        """Logits of the levels of the next samples."""
        sound = self.embedding(samples).transpose(1, 2)
        skips = []
        for layer in self.layers:
            sound, skip = layer(sound)
            skips.append(skip)
        logits: Tensor = self.head(sum(skips[1:], skips[0]))
        return logits


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        WaveNet(settings),
        inputs={"samples": torch.randint(settings.levels, (settings.batch, settings.samples))},
        outputs=("logits",),
    )


RECIPES = (
    Recipe(
        name="wavenet",
        summary="three stacks of ten dilated convolutions with skip connections",
        make=_make,
        settings=Settings(),
        small=Settings(stacks=1, dilations=3, width=4, skip=5, levels=8, samples=16),
        source="van den Oord et al. 2016, section 2",
        stages=StageRule(((r"embedding\.", 0), (r"layers\.(\d+)\.", r"\1"), (r"head\.", "last"))),
    ),
)
