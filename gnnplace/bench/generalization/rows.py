"""Rows of the bench: planners with their budgets, and variants of the improver."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args

from gnnplace.bench.harness import check_known
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget, Planner
from gnnplace.training import Ablation

Variant = Literal["plain", "fine-tuned", "every-step", "no-lookahead"]
_GROUP_EVALUATIONS = 20
_ABLATED_EVALUATIONS = 1000
ABLATED = f"gnn@{_ABLATED_EVALUATIONS}"
"""Row that ablations are compared with."""
_LEARNED, _MAIN = "gnn", ""
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)
"""Ablations with a policy of their own: `NAME-final-reward.safetensors` beside `NAME.safetensors`, and so on."""


@dataclass(frozen=True)
class Row:
    """A planner with a budget; without any limit where all limits are None."""

    name: str
    planner: str
    evaluations: int | None = None
    group_evaluations: int | None = None
    """Evaluations per op group."""
    seconds: float | None = None
    variant: Variant | None = None
    """Variant of the improver; None for other planners."""
    policy: str | None = None
    """Suffix of the policy's name; empty for the main policy, None for a row without policy."""
    seeds: int | None = None
    """Largest number of seeds: one for deterministic planners and for runs of minutes."""
    stage: int = 0
    """Stages run one after the other: runs of seconds, of tens of seconds, of minutes."""

    def budget(self, groups: int) -> Budget:
        """Budget for a problem with this number of op groups."""
        evaluations = self.evaluations if self.group_evaluations is None else self.group_evaluations * groups
        return Budget(evaluations, self.seconds)


def _all_rows() -> Iterator[Row]:
    for planner in ("single", "heft", "greedy"):
        yield Row(planner, planner, seeds=1)
    for evaluations in (200, 1000, 2000, 5000, 50_000):
        yield Row(f"annealing@{evaluations}", "annealing", evaluations, stage=int(evaluations > 5000))
    yield Row("annealing@500000", "annealing", 500_000, seeds=1, stage=2)
    for evaluations in (200, 1000, 2000, 5000):
        yield Row(f"annealing-portfolio@{evaluations}", "annealing-portfolio", evaluations)
    yield Row("annealing-portfolio-10s", "annealing-portfolio", seconds=10.0, stage=1)
    yield Row("annealing-10s", "annealing", seconds=10.0, stage=1)
    yield Row("annealing-60s", "annealing", seconds=60.0, seeds=1, stage=2)
    yield Row("placeto", "placeto", 2000, stage=1)
    each = _GROUP_EVALUATIONS
    yield Row("gnn-zero-shot", _LEARNED, group_evaluations=each, variant="plain", policy=_MAIN)
    for evaluations in (200, 1000, 2000, 5000):
        yield Row(f"gnn@{evaluations}", _LEARNED, evaluations, variant="plain", policy=_MAIN)
    yield Row("gnn-10s", _LEARNED, seconds=10.0, variant="plain", policy=_MAIN, stage=1)
    yield Row("gnn-60s", _LEARNED, seconds=60.0, variant="plain", policy=_MAIN, seeds=1, stage=2)
    yield Row("gnn-fine-tuned", _LEARNED, 2000, variant="fine-tuned", policy=_MAIN, stage=1)
    for ablation in ABLATIONS:
        yield Row(f"gnn-{ablation}", _LEARNED, _ABLATED_EVALUATIONS, variant="plain", policy=f"-{ablation}", stage=1)
    for variant in ("no-lookahead", "every-step"):
        yield Row(f"gnn-{variant}", _LEARNED, _ABLATED_EVALUATIONS, variant=variant, policy=_MAIN, stage=1)


ROWS: Mapping[str, Row] = {row.name: row for row in _all_rows()}
"""Rows by name. Ablations have the budget of `gnn@1000`, as searches with 20 evaluations per group end too much alike."""


def selected_rows(names: Sequence[str]) -> list[Row]:
    """The rows of these names, which must exist; all rows if there is no name."""
    check_known(names, ROWS, "row")
    return [row for row in ROWS.values() if not names or row.name in names]


def policy_of(row: Row, policy: Path) -> Path | None:
    """Path of the row's policy, which need not exist; None for a row without policy."""
    return None if row.policy is None else policy.with_name(f"{policy.stem}{row.policy}{policy.suffix}")


def planner_of(row: Row, policy: Path | None) -> Planner:
    """The row's planner, where `policy` is the row's own."""
    if policy is None:
        return load_planner(row.planner)
    from gnnplace.planners.gnn.planner import GnnConfig, plan

    config = GnnConfig(policy=policy)
    revisit = config.revisit
    match row.variant:
        case "fine-tuned":
            config = replace(config, fine_tuning_share=0.5)
        case "no-lookahead":
            config = replace(config, revisit=replace(revisit, lookahead=1))
        case "every-step":
            moves = replace(revisit.moves, odds=replace(revisit.moves.odds, encode_every=1))
            config = replace(config, revisit=replace(revisit, moves=moves))
    return partial(plan, config=config)


_IMPROVER = (
    "GnnConfig(max_starts=100, starts ranked by schedules of single ops, built by the policy, revised eight times where "
    "evaluations are few, and packed with annealed cuts that are corrected, "
    "fine_tuning_share=0.0, "
    "fine_tuning=FineTuningConfig(searches=6, evaluations=60, "
    "ppo=SearchPpoConfig(num_updates=600, learning_rate=0.0005, gamma=0.95, update_epochs=3, clip_coef=0.2, ent_coef=0.003, "
    "max_grad_norm=1.0, final_reward=False, least_spread=0.0002)), revisit_evaluations_per_unit=20, revisit_pairs=6000000, "
    "least_evaluations_per_unit=2, revisit_share=0.8, revisit=RevisitConfig(moves=MovesConfig(shares=(0.25, 0.25, 0.25, 0.25), "
    "adaptation=0.03, least_share=0.05, mean_cluster=3.0, max_window=20, pull=1.5, max_idle=300, odds=OddsConfig(repeat_penalty=1.0, "
    "encode_every=50)), cold=(0.003, 0.0003), hot=(0.6, 0.15), evaluations_per_move=(0.3, 3.0), lookahead=4, remembered_rises=64), "
    "walk=WalkConfig(policy_share=0.5, annealing=AnnealingConfig(sampled_moves=64, sampled_share=0.1, initial_acceptance=0.001, "
    "reheated_acceptance=0.3, cycle_evaluations_per_move=25, final_ratio=0.01, proposals=Proposals(follow_neighbour=0.8, "
    "cluster_share=0.5, mean_cluster=3.0, unit_weights=None, device_weights=None), unlimited_evaluations_per_unit=1000, "
    "tight_exchange_share=0.25)), policy=None, "
    "execution=ExecutionConfig(rehearsal=RehearsalConfig(searches=3, evaluations_per_unit=30, max_simulated_ops=50000000.0, starts=60, "
    "share_of_seconds=0.2), correction=CorrectionConfig(steadiness=0.05, reach=0.03, noise=0.3), rehearsed=3, walk_moves=100, "
    "temperatures=(0.02, 0.001), neighbours=16, moves=Proposals(follow_neighbour=0.8, cluster_share=0.5, mean_cluster=3.0, "
    "unit_weights=None, device_weights=None), worth=1.1, max_idle=30), unlimited_evaluations_per_unit=1000)"
)
"""Settings of the improver as the key of stored runs: edit it when a default that changes results changes."""
_SETTINGS_OF_SECONDS = (
    (
        "revised eight times where evaluations are few, and packed with annealed cuts that are corrected",
        "revised once, and packed with annealed cuts",
    ),
    ("revisit_share=0.8", "revisit_share=0.2, least_revisit_s=0.1, least_policy_s=0.2, a kind of start in 5 %"),
)
"""Replaces, in keys of rows with seconds, what `_IMPROVER` says of settings that nothing else reads; other stored runs stay valid.

Where memory is tight, the stored runs with seconds have corrected cuts as well.
"""
_FEW_EVALUATIONS = 500
_SETTINGS_OF_FEW = (
    "revised eight times where evaluations are few",
    "revised eight times, in stretches around the critical path as well",
)
"""Replaces, in keys of rows with at most `_FEW_EVALUATIONS`, what `_IMPROVER` says of revisions; others have none."""
_CHANGES: Mapping[Variant, tuple[str, str]] = {
    "plain": ("", ""),
    "fine-tuned": ("fine_tuning_share=0.0", "fine_tuning_share=0.5"),
    "no-lookahead": ("lookahead=4", "lookahead=1"),
    "every-step": ("encode_every=50", "encode_every=1"),
}


def fingerprint(row: Row, policy: Path | None) -> str:
    """Key of a stored run: a hash of the row's settings and of the policy's content, whatever its name."""
    settings = {key: value for key, value in asdict(row).items() if key not in ("seeds", "stage")}
    improver = "" if row.variant is None else _IMPROVER.replace(*_CHANGES[row.variant])
    if row.seconds is not None:
        for before, after in _SETTINGS_OF_SECONDS:
            improver = improver.replace(before, after)
    if row.evaluations is not None and row.evaluations <= _FEW_EVALUATIONS:
        improver = improver.replace(*_SETTINGS_OF_FEW)
    text = json.dumps([settings, improver, "" if policy is None else sha256_of(policy)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def sha256_of(path: Path) -> str:
    """Hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
