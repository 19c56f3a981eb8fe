"""Click ranking: an embedding table per categorical feature, below one network or several experts and towers."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from models_zoo.networks.recipe import Recipe, StageRule, TorchNetwork

CRITEO_ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""Values of the 26 categorical features in the Criteo challenge of 2014."""
_DENSE = 13


@dataclass(frozen=True)
class Settings:
    """Naumov et al. (2019), section 5, in the configuration for the Criteo challenge of their repository.

    Departures: tables are cut at `most_rows`, with which all of them take 0.95 GB and not 2.2; the batch is that of
    the section's throughput figures. A bag holds one value, as the data has it, and is a row of the table, summed.
    """

    features: int = 26
    """The first of `CRITEO_ROWS`."""
    width: int = 16
    """Width of an embedding."""
    most_rows: int = 3_000_000
    bottom: int = 512
    """First layer of the bottom network; the next have a half and an eighth of it: 512, 256, 64, `width`."""
    top: int = 512
    """First layer of the top network: 512, 256, 1."""
    batch: int = 2048
    bag: int = 1


@dataclass(frozen=True)
class TowerSettings:
    """Ma et al. (2018), section 4.2: experts that all tasks share, a gate and a tower for each task.

    The paper's content ranker is described without sizes; these, and the features of Criteo, are our choice: the tables
    are cut at `most_rows`, so that a training step holds little more than the experts do.
    """

    features: int = 26
    width: int = 16
    most_rows: int = 100_000
    experts: int = 8
    expert: int = 1024
    """First of an expert's two layers; the second is half as wide, and a tower's hidden layer a quarter."""
    tasks: int = 3
    batch: int = 2048
    bag: int = 1


def _layers(*widths: int) -> nn.Sequential:
    """Linear layers with a ReLU after each."""
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts)


class Tables(nn.ModuleList):
    """`categories [F, B, N]` to one embedding `[B, D]` per feature, the sum of its bag of N values."""

    def __init__(self, settings: Settings | TowerSettings) -> None:
        super().__init__(nn.Embedding(rows, settings.width) for rows in _rows(settings))

    def forward(self, categories: Tensor) -> list[Tensor]:
        """In the order of the features."""
        return [table(bag).sum(1) for table, bag in zip(self, categories.unbind(0), strict=True)]


class Dlrm(nn.Module):
    """`dense [B, 13]` and `categories [F, B, N]` to the probability of a click `[B]`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width, first, features = settings.width, settings.bottom, settings.features + 1
        self.tables = Tables(settings)
        self.bottom = _layers(_DENSE, first, first // 2, first // 8, width)
        pairs = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("pairs", pairs[0] * features + pairs[1], persistent=False)
        self.top = nn.Sequential(
            _layers(width + pairs.shape[1], settings.top, settings.top // 2), nn.Linear(settings.top // 2, 1)
        )

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """Dot products of all pairs of features, beside the dense ones, through the top network."""
        x = self.bottom(dense)
        vectors = torch.stack([x, *self.tables(categories)], 1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1).index_select(1, self.get_buffer("pairs"))
        logits: Tensor = self.top(torch.cat([x, products], 1))
        return logits.squeeze(1).sigmoid()


class Towers(nn.Module):
    """`dense [B, 13]` and `categories [F, B, N]` to `logits [T, B]`, one for each task."""

    def __init__(self, settings: TowerSettings) -> None:
        super().__init__()
        first = settings.expert
        inputs = _DENSE + settings.width * settings.features
        self.tables = Tables(settings)
        self.experts = nn.ModuleList(_layers(inputs, first, first // 2) for _ in range(settings.experts))
        self.gates = nn.ModuleList(nn.Linear(inputs, settings.experts, bias=False) for _ in range(settings.tasks))
        self.towers = nn.ModuleList(
            nn.Sequential(_layers(first // 2, first // 4), nn.Linear(first // 4, 1)) for _ in range(settings.tasks)
        )

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """Every task's tower on its own mixture of the experts."""
        x = torch.cat([dense, *self.tables(categories)], 1)
        found = torch.stack([expert(x) for expert in self.experts], 1)
        logits = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            weights = gate(x).softmax(1).unsqueeze(1)
            logits.append(tower((weights @ found).squeeze(1)).squeeze(1))
        return torch.stack(logits)


def _rows(settings: Settings | TowerSettings) -> list[int]:
    return [min(rows, settings.most_rows) for rows in CRITEO_ROWS[: settings.features]]


def _batch(settings: Settings | TowerSettings) -> dict[str, Tensor]:
    """Counts as their logarithms, as in the challenge, and values drawn evenly."""
    categories = [torch.randint(rows, (settings.batch, settings.bag)) for rows in _rows(settings)]
    return {
        "dense": torch.randint(1000, (settings.batch, _DENSE)).float().log1p(),
        "categories": torch.stack(categories),
    }


def _make_dlrm(settings: Settings) -> TorchNetwork:
    inputs = _batch(settings)
    return TorchNetwork(Dlrm(settings), inputs, outputs=("clicks",))


def _make_towers(settings: TowerSettings) -> TorchNetwork:
    return TorchNetwork(
        Towers(settings),
        _batch(settings),
        outputs=("logits",),
        targets={"happened": torch.randint(2, (settings.tasks, settings.batch)).float()},
        loss=nn.functional.binary_cross_entropy_with_logits,
    )


_TABLES = len(CRITEO_ROWS)
_EXPERTS, _TASKS = TowerSettings.experts, TowerSettings.tasks

RECIPES = (
    Recipe(
        name="dlrm",
        summary="ranking by dot products of 26 embeddings",
        make=_make_dlrm,
        settings=Settings(),
        small=Settings(features=6, width=4, most_rows=50, bottom=16, top=16, batch=2, bag=2),
        source="Naumov et al. 2019, section 5; bench/dlrm_s_criteo_kaggle.sh",
        stages=StageRule(((r"tables\.(\d+)\.", r"\1"), (r"bottom\.", _TABLES), (r"top\.", _TABLES + 1))),
    ),
    Recipe(
        name="dlrm_towers",
        summary="ranking for 3 tasks by 8 experts that they share",
        make=_make_towers,
        settings=TowerSettings(),
        small=TowerSettings(features=4, width=4, most_rows=50, experts=3, expert=16, tasks=2, batch=2, bag=2),
        source="Ma et al. 2018, section 4.2",
        stages=StageRule(
            (
                (r"tables\.", 0),
                *((rf"experts\.{expert}\.", 1 + expert) for expert in range(_EXPERTS)),
                *((rf"(gates|towers)\.{task}\.", 1 + _EXPERTS + task) for task in range(_TASKS)),
            )
        ),
    ),
)
