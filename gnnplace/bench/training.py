"""`gnnplace bench training`: policies that learn on one model from executed runtime alone, from fresh weights.

A case is a training run with one seed. Its curve has a point per update: executions so far, the seconds that the searches of the
update save, as a fraction of the start that is executed in the same update, and the seconds of the fastest placement so far. At
the end a paired measurement compares that placement with the start.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnplace.api.training_run import train
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, matching, run_cases
from gnnplace.files import temporary_folder

DEVICES = "cpu:0,cpu:1"
MODELS = ("cifar_cell_00:batch=8", "nasnet_mobile:batch=2", "ensemble_cnn:batch=2")
"""Zoo models with parallel branches; an execution takes 10 to 50 ms on one core."""
UPDATES = 20
_SEEDS = 3
_SHARE = 4  # the first and the last quarter of the updates are compared


@dataclass(frozen=True)
class TrainingCase:
    """One training run."""

    model: str
    seed: int
    updates: int


def bench_training(options: BenchOptions) -> BenchResult:
    """A row per model and seed, with the whole curve in the details; runs come one at a time, as other work would be measured too."""
    models = matching({model: model for model in MODELS}, options.only or MODELS[:1], "model")
    cases = [TrainingCase(model, seed, UPDATES) for model in models for seed in options.seed_range(_SEEDS)]
    found = run_cases(cases, case_result, options, _progress)
    rows = [training_row(case, result) for case, result in found.items()]
    details = {"devices": DEVICES, "cases": [{**vars(case), **result} for case, result in found.items()]}
    return BenchResult("training", options, rows, training_summary(rows), details)


def _progress(case: TrainingCase, result: Result) -> str:
    row = training_row(case, result)
    change = "could not be compared" if row["difference"] is None else f"{row['difference']:+.1%} against the start"
    return f"{case.model}, seed {case.seed}: {row['executions']:,} executions, fastest {change}"


def case_result(case: TrainingCase) -> dict[str, Any]:
    """The curve of a run, the difference of its fastest placement to the start, and its command."""
    curve: list[Mapping[str, Any]] = []
    with temporary_folder() as folder:
        card = train(
            folder / "run", updates=case.updates, seed=case.seed, measure=f"zoo:{case.model}", devices=DEVICES,
            force=True, on_update=curve.append,
        )  # fmt: skip
    keys = ("executions", "start_s", "best_s", "gain", "entropy", "approx_kl", "wall_s")
    return {"curve": [{key: row[key] for key in keys} for row in curve], **card["executed"], "command": card["command"]}


def training_row(case: TrainingCase, result: Result) -> dict[str, Any]:
    """One run: what its searches save in the first and the last quarter of the updates, and the fastest placement over the start."""
    curve = result["curve"]
    quarter = max(1, len(curve) // _SHARE)
    first, last = ([-math.expm1(-row["gain"]) for row in part] for part in (curve[:quarter], curve[-quarter:]))
    low, high = result["difference_interval"] or (None, None)
    return {
        "model": case.model,
        "seed": case.seed,
        "executions": curve[-1]["executions"],
        "minutes": curve[-1]["wall_s"] / 60,
        "start_s": curve[-1]["start_s"],
        "saved_first": statistics.fmean(first),
        "saved_last": statistics.fmean(last),
        "difference": result["difference"],
        "low": low,
        "high": high,
    }


def training_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Number of runs whose fastest placement is faster than the start beyond the interval, and means over runs."""
    compared = [row for row in rows if row["difference"] is not None]
    return {
        "faster_than_start": f"{sum(row['high'] < 0 for row in compared)} of {len(rows)}",
        "mean_difference": statistics.fmean(row["difference"] for row in compared) if compared else None,
        "mean_saved_first": statistics.fmean(row["saved_first"] for row in rows),
        "mean_saved_last": statistics.fmean(row["saved_last"] for row in rows),
    }
