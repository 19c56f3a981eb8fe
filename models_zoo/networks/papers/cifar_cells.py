"""Image networks of random cells: members of the search space from which the papers sample their CIFAR-10 graphs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

OPERATIONS = ("separable 3x3", "separable 5x5", "average pool", "maximum pool", "identity")
CLASSES = 10


@dataclass(frozen=True)
class Settings:
    """Pham et al. (2018), section 2.4, searched on CIFAR-10; Addanki et al. (2019), section 4.1, place 32 such networks.

    The filters are those of the published search, which takes a batch of 160. It has two normal cells on every grid,
    where here is one; its auxiliary classifier, dropout and dropped paths are left out.
    """

    member: int = 0
    """Which of the random architectures."""
    nodes: int = 5
    """Nodes of a cell, without its two inputs."""
    repeats: int = 1
    """Normal cells on every grid; a reduction cell leads to the next grid."""
    grids: int = 3
    filters: int = 20
    """Filters on the first grid; every grid doubles them."""
    batch: int = 32
    image: int = 32


@dataclass(frozen=True)
class Node:
    """The sum of two operations on earlier nodes; nodes 0 and 1 are the outputs of the two cells before."""

    inputs: tuple[int, int]
    operations: tuple[str, str]


def random_cells(member: int, nodes: int) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The normal and the reduction cell of a member, drawn uniformly; the same member is the same pair."""
    rng = np.random.default_rng(member)

    def cell() -> tuple[Node, ...]:
        drawn = []
        for index in range(2, nodes + 2):
            first, second = (int(number) for number in rng.integers(index, size=2))
            one, other = (OPERATIONS[number] for number in rng.integers(len(OPERATIONS), size=2))
            drawn.append(Node((first, second), (one, other)))
        return tuple(drawn)

    return cell(), cell()


class Separable(nn.Sequential):
    """A depthwise and a pointwise convolution, applied twice; the first has the stride."""

    def __init__(self, filters: int, kernel: int, stride: int) -> None:
        layers: list[nn.Module] = []
        for step in (stride, 1):
            depthwise = nn.Conv2d(filters, filters, kernel, step, kernel // 2, groups=filters, bias=False)
            layers += [nn.ReLU(), depthwise, _pointwise(filters, filters), nn.BatchNorm2d(filters)]
        super().__init__(*layers)


class FactorizedReduction(nn.Module):
    """Half the grid: half of the filters see its even places, half its odd ones."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.even = _pointwise(channels, filters // 2, stride=2)
        self.odd = _pointwise(channels, filters - filters // 2, stride=2)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, H, W]` to `[B, F, H / 2, W / 2]`."""
        found: Tensor = self.norm(torch.cat((self.even(x), self.odd(x[:, :, 1:, 1:])), 1))
        return found


class Cell(nn.Module):
    """Nodes over the outputs of the two cells before, which are brought to the cell's number of filters first.

    The cell gives every node that no other reads, its inputs included, channels after channels. Departures: what comes
    from the cell before passes one pointwise convolution where the published code has two in a row, and strided
    windows are padded on both sides.
    """

    def __init__(
        self, plan: Sequence[Node], channels: tuple[int, int], filters: int, *, reduces: bool, follows_reduction: bool
    ) -> None:
        super().__init__()
        self.plan = plan
        before_last, last = channels
        first: nn.Module = nn.Identity()
        if follows_reduction:
            first = nn.Sequential(nn.ReLU(), FactorizedReduction(before_last, filters))
        elif before_last != filters:
            first = _projection(before_last, filters)
        self.entries = nn.ModuleList((first, _projection(last, filters)))
        self.operations = nn.ModuleList(
            _operation(name, filters, 2 if reduces and source < 2 else 1)
            for node in plan
            for source, name in zip(node.inputs, node.operations, strict=True)
        )
        used = {source for node in plan for source in node.inputs}
        self.unused = [index for index in range(len(plan) + 2) if index not in used]
        self.exits = nn.ModuleList(
            FactorizedReduction(filters, filters) if reduces and index < 2 else nn.Identity() for index in self.unused
        )
        self.channels = filters * len(self.unused)

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        """The unused nodes."""
        nodes = [entry(x) for entry, x in zip(self.entries, (before_last, last), strict=True)]
        operations = iter(self.operations)
        for node in self.plan:
            one, other = (next(operations)(nodes[source]) for source in node.inputs)
            nodes.append(one + other)
        return torch.cat([leave(nodes[index]) for leave, index in zip(self.exits, self.unused, strict=True)], 1)


def _operation(name: str, filters: int, stride: int) -> nn.Module:
    if name == "identity":
        return nn.Identity() if stride == 1 else FactorizedReduction(filters, filters)
    if name == "average pool":
        return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
    if name == "maximum pool":
        return nn.MaxPool2d(3, stride, padding=1)
    return Separable(filters, int(name[-1]), stride)


def _pointwise(channels: int, filters: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, 1, stride, bias=False)


def _projection(channels: int, filters: int) -> nn.Module:
    return nn.Sequential(nn.ReLU(), _pointwise(channels, filters), nn.BatchNorm2d(filters))


class CellNetwork(nn.Module):
    """`image [B, 3, H, W]` to `logits [B, 10]`: a stem, cells that read the two before them, and a classifier."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        normal, reduction = random_cells(settings.member, settings.nodes)
        filters = settings.filters
        self.stem = nn.Sequential(nn.Conv2d(3, 3 * filters, 3, padding=1, bias=False), nn.BatchNorm2d(3 * filters))
        self.cells = nn.ModuleList()
        channels = (3 * filters, 3 * filters)
        follows_reduction = False
        for reduces in _reductions(settings):
            filters *= 2 if reduces else 1
            cell = Cell(
                reduction if reduces else normal, channels, filters,
                reduces=reduces, follows_reduction=follows_reduction,
            )  # fmt: skip
            self.cells.append(cell)
            channels, follows_reduction = (channels[1], cell.channels), reduces
        self.classifier = nn.Sequential(
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[1], CLASSES)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the classes."""
        before_last = last = self.stem(image)
        for cell in self.cells:
            before_last, last = last, cell(before_last, last)
        logits: Tensor = self.classifier(last)
        return logits


def _reductions(settings: Settings) -> list[bool]:
    """Which cells, in order, are reduction cells."""
    return [*([*[False] * settings.repeats, True] * settings.grids)[:-1]]


def _make(settings: Settings) -> TorchNetwork:
    return TorchNetwork(
        CellNetwork(settings),
        inputs={"image": torch.randn(settings.batch, 3, settings.image, settings.image)},
        outputs=("logits",),
        targets={"label": torch.randint(CLASSES, (settings.batch,))},
        loss=nn.functional.cross_entropy,
    )


def _recipe(member: int) -> Recipe:
    settings = Settings(member=member)
    return Recipe(
        name=f"cifar_cell_{member:02}",
        summary=f"CIFAR-10 network of random cells, number {member}",
        make=_make,
        settings=settings,
        small=Settings(member=member, nodes=3, grids=2, filters=4, batch=4, image=16),
        source="Pham et al. 2018, section 2.4; Addanki et al. 2019, section 4.1",
        trains=True,
        stages=StageRule(
            ((r"cells\.(\d+)\.", r"\1"), (r"stem\.", 0), (r"classifier\.", len(_reductions(settings)) - 1)),
        ),
    )


RECIPES = tuple(_recipe(member) for member in range(32))
