"""NASNet-A: an image classifier of cells that a search found, ten operations on two earlier outputs in each."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

_NORMAL_WIDTH, _REDUCTION_WIDTH = 6, 4
"""Outputs of a cell's parts that it concatenates."""


@dataclass(frozen=True)
class Settings:
    """Zoph et al. (2018), NASNet-A (4 @ 1056), of table 2; figures 2 and 4 and appendix A.4 give the cells.

    Departures: padding is the same on both sides of an image, and path dropping and the auxiliary classifier, which
    are for training, are left out.
    """

    repeats: int = 4
    """Normal cells between two reductions, N in the paper."""
    groups: int = 3
    """Number of groups of normal cells."""
    penultimate: int = 1056
    """Channels before the classifier."""
    stem: int = 32
    image: int = 224
    classes: int = 1000
    batch: int = 32

    @property
    def filters(self) -> int:
        """Channels of each part of the first normal cells; every reduction doubles them."""
        return (self.penultimate // _NORMAL_WIDTH) >> (self.groups - 1)


def _normalised(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _separable(before: int, after: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Two separable convolutions, each after a ReLU; the first has the stride."""
    parts: list[nn.Module] = []
    for channels, step in ((before, stride), (after, 1)):
        parts += [
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
            nn.Conv2d(channels, after, 1, bias=False),
            _normalised(after),
        ]
    return nn.Sequential(*parts)


def _average(stride: int = 1) -> nn.AvgPool2d:
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


def _squeeze(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(before, after, 1, bias=False), _normalised(after))


class FactorizedReduction(nn.Module):
    """`[B, C, H, W]` to half the height and width: even pixels and odd ones, each to half of the channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.shift = nn.ZeroPad2d((-1, 1, -1, 1))
        self.even = nn.Conv2d(before, after // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(before, after // 2, 1, stride=2, bias=False)
        self.norm = _normalised(after)

    def forward(self, x: Tensor) -> Tensor:
        """Both halves side by side."""
        x = self.relu(x)
        halved: Tensor = self.norm(torch.cat([self.even(x), self.odd(self.shift(x))], 1))
        return halved


class NormalCell(nn.Module):
    """The output before last and the last one to `[B, 6 F, H, W]`."""

    def __init__(self, left: nn.Module, right: nn.Module, filters: int) -> None:
        super().__init__()
        self.left, self.right = left, right
        self.right_5x5, self.left_3x3 = _separable(filters, filters, 5), _separable(filters, filters, 3)
        self.left_5x5, self.second_3x3 = _separable(filters, filters, 5), _separable(filters, filters, 3)
        self.right_3x3 = _separable(filters, filters, 3)
        self.average = _average()

    def forward(self, earlier: Tensor, last: Tensor) -> Tensor:
        """Five sums of two parts each, beside the reduced `earlier`."""
        left, right = self.left(earlier), self.right(last)
        sums = (
            self.right_5x5(right) + self.left_3x3(left),
            self.left_5x5(left) + self.second_3x3(left),
            self.average(right) + left,
            self.average(left) + self.average(left),
            self.right_3x3(right) + right,
        )
        return torch.cat([left, *sums], 1)


class ReductionCell(nn.Module):
    """The output before last and the last one to `[B, 4 F, H / 2, W / 2]`."""

    def __init__(self, left: nn.Module, right: nn.Module, filters: int, left_channels: int) -> None:
        super().__init__()
        self.left, self.right = left, right
        self.right_5x5 = _separable(filters, filters, 5, 2)
        self.left_7x7 = _separable(left_channels, filters, 7, 2)
        self.second_7x7 = _separable(left_channels, filters, 7, 2)
        self.left_5x5 = _separable(left_channels, filters, 5, 2)
        self.sum_3x3 = _separable(filters, filters, 3)
        self.maximum = nn.MaxPool2d(3, 2, 1)
        self.average_halving, self.average = _average(2), _average()

    def forward(self, earlier: Tensor, last: Tensor) -> Tensor:
        """Five sums, of which the first is used up by others."""
        left, right = self.left(earlier), self.right(last)
        first = self.right_5x5(right) + self.left_7x7(left)
        highest = self.maximum(right)
        second = highest + self.second_7x7(left)
        third = self.average_halving(right) + self.left_5x5(left)
        return torch.cat([second, third, self.average(first) + second, self.sum_3x3(first) + highest], 1)


class NasNet(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, settings.stem, 3, stride=2, bias=False),
            _normalised(settings.stem),
        )
        self.cells = nn.ModuleList(_cells(settings))
        self.relu = nn.ReLU()
        self.classifier = nn.Linear(settings.penultimate, settings.classes)

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        earlier = last = self.stem(image)
        for cell in self.cells:
            earlier, last = last, cell(earlier, last)
        logits: Tensor = self.classifier(self.relu(last).mean((2, 3)))
        return logits


def _cells(settings: Settings) -> Iterator[nn.Module]:
    """Two reductions of the stem, and then normal cells with a reduction between their groups."""
    base, normals = settings.filters, ("normal",) * settings.repeats
    plan = [("stem", base // 4), ("reduction", base // 2)]
    for group in range(settings.groups):
        plan += [("reduction", base << group)] * (group > 0) + [(kind, base << group) for kind in normals]
    earlier = last = settings.stem  # channels
    halved = False  # the last output has half the pixels of the one before
    for kind, filters in plan:
        left = nn.Identity() if kind == "stem" else (FactorizedReduction if halved else _squeeze)(earlier, filters)
        right = _squeeze(last, filters)
        earlier = last
        if kind == "normal":
            yield NormalCell(left, right, filters)
            last, halved = _NORMAL_WIDTH * filters, False
        else:
            yield ReductionCell(left, right, filters, earlier if kind == "stem" else filters)
            last, halved = _REDUCTION_WIDTH * filters, True


def _make(settings: Settings) -> TorchNetwork:
    image = torch.randn(settings.batch, 3, settings.image, settings.image)
    return TorchNetwork(NasNet(settings), inputs={"image": image}, outputs=("logits",))


def _recipe(name: str, settings: Settings, summary: str) -> Recipe:
    cells = 1 + settings.groups * (settings.repeats + 1)
    return Recipe(
        name=f"nasnet_{name}",
        summary=summary,
        make=_make,
        settings=settings,
        small=Settings(repeats=1, groups=2, penultimate=96, stem=4, image=35, classes=10, batch=2),
        source="Zoph et al. 2018, table 2",
        stages=StageRule(((r"cells\.(\d+)\.", r"\1"), (r"stem\.", 0), (r"classifier\.", cells - 1))),
    )


RECIPES = (
    _recipe("mobile", Settings(), "NASNet-A (4 @ 1056), 5.3 million parameters"),
    _recipe(
        "large",
        Settings(repeats=6, penultimate=4032, stem=96, image=331, batch=8),
        "NASNet-A (6 @ 4032), 88.8 million parameters",
    ),
)
