"""What is compared on every case: planners with their budgets, and variants of the improver."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from gnnplace.errors import GnnplaceError
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.search import Planner
from gnnplace.training.ablation import Ablation

if TYPE_CHECKING:
    from gnnplace.planners.gnn.planner import GnnConfig

__all__ = [
    "ABLATED",
    "ABLATIONS",
    "ROWS",
    "Row",
    "Variant",
    "chosen_rows",
    "fingerprint",
    "gnn_config",
    "planner_of",
    "policy_of",
]

Variant = Literal["plain", "fine-tuned", "every-step", "no-lookahead"]
GROUP_EVALUATIONS = 20
_ABLATED = 1000
ABLATED = f"gnn@{_ABLATED}"
"""The row that ablations are compared with."""
_LEARNED = "gnn"
_MAIN = ""
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)
"""Ablations that need a policy of their own: `NAME-final-reward.safetensors` beside `NAME.safetensors`, and so on."""


@dataclass(frozen=True)
class Row:
    """A planner with a budget; no limit at all where every limit is None."""

    name: str
    planner: str
    evaluations: int | None = None
    group_evaluations: int | None = None
    """Per op group."""
    seconds: float | None = None
    variant: Variant | None = None
    """Of the improver."""
    policy: str | None = None
    """What the name of its policy ends with; empty for the one in question, None for a row without."""
    seeds: int | None = None
    """The most that are run: one where chance has no part, or where a run takes minutes."""
    stage: int = 0
    """All of a stage is run before the next one begins: seconds, tens of seconds, minutes."""

    def budget(self, groups: int) -> Budget:
        """For a problem of so many op groups."""
        evaluations = self.evaluations if self.group_evaluations is None else self.group_evaluations * groups
        return Budget(evaluations, self.seconds)


def _all_rows() -> Iterator[Row]:
    for planner in ("single", "heft", "greedy"):
        yield Row(planner, planner, seeds=1)
    for evaluations in (200, 1000, 2000, 5000, 50_000):
        yield Row(f"annealing@{evaluations}", "annealing", evaluations, stage=int(evaluations > 5000))
    yield Row("annealing@500000", "annealing", 500_000, seeds=1, stage=2)
    yield Row("annealing-10s", "annealing", seconds=10.0, stage=1)
    yield Row("annealing-60s", "annealing", seconds=60.0, seeds=1, stage=2)
    yield Row("placeto", "placeto", 2000, stage=1)
    each = GROUP_EVALUATIONS
    yield Row("gnn-untrained", _LEARNED, group_evaluations=each, variant="plain")
    yield Row("gnn-zero-shot", _LEARNED, group_evaluations=each, variant="plain", policy=_MAIN)
    for evaluations in (200, 1000, 2000, 5000):
        yield Row(f"gnn-untrained@{evaluations}", _LEARNED, evaluations, variant="plain")
        yield Row(f"gnn@{evaluations}", _LEARNED, evaluations, variant="plain", policy=_MAIN)
    yield Row("gnn-10s", _LEARNED, seconds=10.0, variant="plain", policy=_MAIN, stage=1)
    yield Row("gnn-60s", _LEARNED, seconds=60.0, variant="plain", policy=_MAIN, seeds=1, stage=2)
    yield Row("gnn-fine-tuned", _LEARNED, 2000, variant="fine-tuned", policy=_MAIN, stage=1)
    for ablation in ABLATIONS:
        yield Row(f"gnn-{ablation}", _LEARNED, _ABLATED, variant="plain", policy=f"-{ablation}", stage=1)
    for variant in ("no-lookahead", "every-step"):
        yield Row(f"gnn-{variant}", _LEARNED, _ABLATED, variant=variant, policy=_MAIN, stage=1)


ROWS: Mapping[str, Row] = {row.name: row for row in _all_rows()}
"""By name. Ablations have the budget of `gnn@1000`: with 20 evaluations per group searches end too much alike for them to differ."""


def chosen_rows(names: Sequence[str]) -> list[Row]:
    """The rows of these names; all of them for none.

    Raises:
        GnnplaceError: there is no such row.
    """
    for name in names:
        if name not in ROWS:
            raise GnnplaceError(f"there is no row {name!r}; rows are {', '.join(ROWS)}")
    return [row for row in ROWS.values() if not names or row.name in names]


def policy_of(row: Row, policy: Path) -> Path | None:
    """Where the row's policy would be; None for a row without."""
    return None if row.policy is None else policy.with_name(f"{policy.stem}{row.policy}{policy.suffix}")


def gnn_config(variant: Variant, policy: Path | None) -> GnnConfig:
    """How the improver is run: the one place that knows its settings."""
    from gnnplace.planners.gnn.planner import GnnConfig

    search = GnnConfig(policy=policy)
    match variant:
        case "plain":
            return search
        case "fine-tuned":
            return replace(search, fine_tuning_share=0.5)
        case "no-lookahead":
            return replace(search, revisit=replace(search.revisit, lookahead=1))
        case "every-step":
            moves = search.revisit.moves
            moves = replace(moves, odds=replace(moves.odds, encode_every=1))
            return replace(search, revisit=replace(search.revisit, moves=moves))


def planner_of(row: Row, policy: Path | None) -> Planner:
    """What places; `policy` is the row's own."""
    if row.variant is None:
        return load_planner(row.planner)
    from gnnplace.planners.gnn.planner import plan

    return partial(plan, config=gnn_config(row.variant, policy))


def fingerprint(row: Row, policy: Path | None) -> str:
    """What a result of the row depends on: its settings, and the policy's content whatever its name."""
    settings = {key: value for key, value in asdict(row).items() if key not in ("seeds", "stage")}
    config = "" if row.variant is None else repr(gnn_config(row.variant, None))
    text = json.dumps([settings, config, "" if policy is None else _sha256(policy)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
