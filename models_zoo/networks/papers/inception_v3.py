"""Inception-V3: a stem, eleven blocks of parallel convolutions over three grids, and a classifier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

Convolution = tuple[int, int] | tuple[int, tuple[int, int]] | tuple[int, int, int]
"""Channels, kernel and stride; where no stride is given it is 1 and padding keeps the grid, else there is no padding."""
AUXILIARY_WEIGHT = 0.4
"""Weight of the auxiliary classifier's loss, as in the published TensorFlow model."""


@dataclass(frozen=True)
class Settings:
    """Mirhoseini et al. (2017), section 4.1: batch 32; the network is that of Szegedy et al. (2016), table 1.

    The training step has the auxiliary classifier of section 4 with batch norm; dropout is 0, and labels are hard.
    """

    batch: int = 32
    image: int = 299
    classes: int = 1000
    width: float = 1.0
    """Factor on the channels of every convolution."""
    blocks_35: int = 3
    """Blocks over the grid of 35 x 35; the reductions to the next grids come on top."""
    blocks_17: int = 4
    blocks_8: int = 2


class Unit(nn.Sequential):
    """A convolution without bias, batch norm and ReLU."""

    def __init__(self, channels: int, convolution: Convolution, width: float) -> None:
        filters, kernel, *stride = convolution
        self.channels = max(1, round(filters * width))
        size = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (0, 0) if stride else (size[0] // 2, size[1] // 2)
        layer = nn.Conv2d(channels, self.channels, size, stride[0] if stride else 1, padding, bias=False)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        super().__init__(layer, nn.BatchNorm2d(self.channels, eps=1e-3), nn.ReLU())


class Fork(nn.Module):
    """Convolutions of 1 x 3 and 3 x 1 side by side (figure 7)."""

    def __init__(self, channels: int, filters: int, width: float) -> None:
        super().__init__()
        self.wide = Unit(channels, (filters, (1, 3)), width)
        self.high = Unit(channels, (filters, (3, 1)), width)
        self.channels = self.wide.channels + self.high.channels

    def forward(self, x: Tensor) -> Tensor:
        """Both results, channels after channels."""
        return torch.cat((self.wide(x), self.high(x)), 1)


class Block(nn.Module):
    """Branches over one input: convolutions, pools, and forks given by the number of filters of each side."""

    def __init__(self, channels: int, width: float, *branches: Sequence[Convolution | nn.Module | int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList()
        self.channels = 0
        for steps in branches:
            branch, now = nn.Sequential(), channels
            for step in steps:
                if isinstance(step, nn.Module):
                    branch.append(step)
                else:
                    layer = Fork(now, step, width) if isinstance(step, int) else Unit(now, step, width)
                    branch.append(layer)
                    now = layer.channels
            self.branches.append(branch)
            self.channels += now

    def forward(self, x: Tensor) -> Tensor:
        """The results of the branches, channels after channels."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _average() -> nn.Module:
    return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)


def _maximum() -> nn.Module:
    return nn.MaxPool2d(3, stride=2)


def _block_35(channels: int, width: float, pooled: int) -> Block:
    """Figure 5."""
    return Block(
        channels, width,
        [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], [_average(), (pooled, 1)],
    )  # fmt: skip


def _block_17(channels: int, width: float, inner: int) -> Block:
    """Figure 6, with n = 7."""
    return Block(
        channels, width,
        [(192, 1)],
        [(inner, 1), (inner, (1, 7)), (192, (7, 1))],
        [(inner, 1), (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (192, (1, 7))],
        [_average(), (192, 1)],
    )  # fmt: skip


def _block_8(channels: int, width: float) -> Block:
    """Figure 7."""
    return Block(
        channels, width,
        [(320, 1)], [(384, 1), 384], [(448, 1), (384, 3), 384], [_average(), (192, 1)],
    )  # fmt: skip


def _blocks(channels: int, settings: Settings) -> Mapping[str, Block]:
    """The blocks by their published names, `5b` to `7c`."""
    width = settings.width
    found: dict[str, Block] = {}

    def after() -> int:
        return [channels, *(block.channels for block in found.values())][-1]

    for name, pooled in list(zip("bcd", (32, 64, 64), strict=True))[: settings.blocks_35]:
        found[f"5{name}"] = _block_35(after(), width, pooled)
    found["6a"] = Block(after(), width, [(384, 3, 2)], [(64, 1), (96, 3), (96, 3, 2)], [_maximum()])
    for name, inner in list(zip("bcde", (128, 160, 160, 192), strict=True))[: settings.blocks_17]:
        found[f"6{name}"] = _block_17(after(), width, inner)
    found["7a"] = Block(
        after(), width,
        [(192, 1), (320, 3, 2)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)], [_maximum()],
    )  # fmt: skip
    for name in "bc"[: settings.blocks_8]:
        found[f"7{name}"] = _block_8(after(), width)
    return found


class InceptionV3(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, C]`, in training also the auxiliary classifier's."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.stem = nn.Sequential()
        channels = 3
        steps: tuple[Convolution | None, ...] = ((32, 3, 2), (32, 3, 1), (64, 3), None, (80, 1), (192, 3, 1), None)
        for step in steps:
            if step is None:
                self.stem.append(_maximum())
            else:
                unit = Unit(channels, step, settings.width)
                self.stem.append(unit)
                channels = unit.channels
        blocks = _blocks(channels, settings)
        self.mixed = nn.ModuleDict(blocks)
        self.auxiliary_after = [name for name in blocks if name.startswith("6")][-1]
        narrow = Unit(blocks[self.auxiliary_after].channels, (128, 1), settings.width)
        whole = Unit(narrow.channels, (768, 5, 1), settings.width)
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, stride=3), narrow, whole, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(whole.channels, settings.classes),
        )  # fmt: skip
        last = [*blocks.values()][-1]
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last.channels, settings.classes)
        )

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Logits of the classes."""
        x = self.stem(image)
        auxiliary = None
        for name, block in self.mixed.items():
            x = block(x)
            if self.training and name == self.auxiliary_after:
                auxiliary = self.auxiliary(x)
        logits: Tensor = self.classifier(x)
        return logits if auxiliary is None else (logits, auxiliary)


def _loss(found: tuple[Tensor, Tensor], label: Tensor) -> Tensor:
    logits, auxiliary = found
    entropy = nn.functional.cross_entropy
    return entropy(logits, label) + AUXILIARY_WEIGHT * entropy(auxiliary, label)


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        InceptionV3(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
        targets={"label": torch.randint(settings.classes, (settings.batch,))},
        loss=_loss,
    )


_NAMES = ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c")

RECIPES = (
    Recipe(
        name="inception_v3",
        summary="Inception-V3, eleven blocks of parallel convolutions",
        make=_make,
        settings=Settings(),
        small=Settings(batch=4, classes=10, width=1 / 16, blocks_35=0, blocks_17=0, blocks_8=1),
        source="Mirhoseini et al. 2017, section 4.1; Szegedy et al. 2016, table 1",
        trains=True,
        stages=StageRule(
            (
                (r"stem\.", 0),
                *((rf"mixed\.{name}\.", number) for number, name in enumerate(_NAMES, 1)),
                (r"auxiliary\.", _NAMES.index("6e") + 1),
                (r"classifier\.", len(_NAMES) + 1),
            )
        ),
    ),
)
