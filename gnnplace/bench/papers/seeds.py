"""`gnnplace bench seeds`: the papers' tables with every method, ours beside the published seconds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.papers.case import FACTS, Case, Results, case_result
from gnnplace.bench.papers.earlier import command_arguments, earlier_table
from gnnplace.bench.papers.tables import SEEDS_ROWS, TableRow
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from gnnplace.devices.detect import cpu_model
from gnnplace.units import format_s

__all__ = ["COLUMNS", "LEARNED", "bench_seeds", "made_table", "planner_rows", "to_reach"]

CONSTRUCTED = ("scotch", "metis", "expert", "heft")
"""Run with one seed: their answer does not hang on it, or hardly."""
LEARNED = (
    "coloc-rl", "hierarchical", "hierarchical-no-grouping", "hierarchical-random-grouping", "spotlight", "placeto",
)  # fmt: skip
SEARCHED = ("annealing", *LEARNED, "gnn")
COLUMNS = ("row", "planner", "makespan_s", "lowest_s", "highest_s", "to_within_1_percent", "wall_s", "published_s")
EVALUATIONS = 1000
SEEDS = 3
_NEAR = 1.01


def bench_seeds(options: BenchOptions) -> BenchResult:
    """A row per table row and planner: median and range over seeds, all searches with the same number of evaluations."""
    rows = chosen({row.key: row for row in SEEDS_ROWS}, options.only, "row")
    table, told = made_table(rows, CONSTRUCTED, SEARCHED, options, EVALUATIONS, SEEDS)
    return BenchResult(
        "seeds", table, _summary(rows, table, told), options.seed, command_arguments(options), told, COLUMNS
    )


def made_table(
    rows: Sequence[TableRow],
    constructed: Sequence[str],
    searched: Sequence[str],
    options: BenchOptions,
    evaluations: int,
    seeds: int,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every planner on every row, as lines and details: constructed placements with one seed, searches with several.

    `evaluations` and `seeds` are what the suite takes unless the options say otherwise; seeds count from the options'.
    What the options do not run anew is that of the result that they extend.
    """
    planners, budget = (*constructed, *searched), options.evaluations or evaluations
    several = range(options.seed, options.seed + (options.seeds or seeds))
    earlier = earlier_table(options, rows, planners, budget, len(several))
    run = planners if earlier is None else options.rows
    found = _run(rows, {name: several if name in searched else several[:1] for name in run}, budget, options)
    lines, told = [line for row in rows for line in planner_rows(row, run, found)], _details(rows, found)
    if earlier is None:
        return lines, told
    earlier.complete(told)
    new = {(line["row"], line["planner"]): line for line in lines}
    names = dict.fromkeys((*(line["planner"] for line in lines if line["planner"] not in planners), *planners))
    return [dict(new.get((row.key, name)) or earlier.lines[row.key, name]) for row in rows for name in names], told


def _run(
    rows: Sequence[TableRow], seeds: Mapping[str, Sequence[int]], evaluations: int, options: BenchOptions
) -> Results:
    """The planners of `seeds` on every row, each with its seeds."""
    cases = [  # row by row, as a process keeps few rows
        Case(row.key, planner, seed, evaluations)
        for row in rows
        for planner, its_seeds in {FACTS: (options.seed,), **seeds}.items()
        for seed in its_seeds
    ]

    def report(case: Case, result: Mapping[str, Any]) -> None:
        if options.on_progress is not None and case.planner != FACTS:
            seconds = result["makespan_s"]
            said = str(result["error"]) if seconds is None else format_s(seconds)
            options.on_progress(f"{case.row} {case.planner} seed {case.seed}: {said}, took {result['wall_s']:.0f} s")

    return run_resumable(cases, case_result, Case, options.workers, options.kept, report)


def planner_rows(row: TableRow, planners: Sequence[str], found: Results) -> Iterator[dict[str, Any]]:
    """A line for each single device and each planner of one row; seconds are null where memory does not suffice."""
    facts = _facts(row, found)
    for column, single in facts["singles"].items():
        yield {
            "row": row.key, "task": row.task, "devices": row.devices, "planner": column, "makespan_s": single["makespan_s"],
            "lowest_s": single["makespan_s"], "highest_s": single["makespan_s"], "feasible": [single["makespan_s"] is not None],
            "evaluations": 1, "to_within_1_percent": None, "wall_s": 0.0, "published_s": row.published.get(column),
            "error": single["error"], "cpu": cpu_model(),
        }  # fmt: skip
    for planner in planners:
        results = _results(row, planner, found)
        seconds = [np.inf if result["makespan_s"] is None else result["makespan_s"] for result in results]
        worked = [result for result in results if result["makespan_s"] is not None]
        near = [to_reach(result["history"], _NEAR * result["history"][-1][1]) for result in worked]
        yield {
            "row": row.key, "task": row.task, "devices": row.devices, "planner": planner,
            "makespan_s": _finite(statistics.median(seconds)), "lowest_s": _finite(min(seconds)),
            "highest_s": _finite(max(seconds)), "feasible": [result["makespan_s"] is not None for result in results],
            "evaluations": max(result["evaluations"] for result in results),
            "to_within_1_percent": statistics.median(count for count in near if count is not None) if near else None,
            "wall_s": statistics.median(result["wall_s"] for result in results),
            "published_s": row.published.get(planner),
            "error": next((result["error"] for result in results if result["error"]), None), **_where(results),
        }  # fmt: skip


def to_reach(history: Sequence[Sequence[float]], seconds: float) -> int | None:
    """Evaluations until the best was at most `seconds`; None if it never was.

    >>> to_reach([[1, 9.0], [40, 5.0], [70, 4.0]], 5.0), to_reach([[1, 9.0]], 5.0)
    (40, None)
    """
    return next((int(count) for count, best_s in history if best_s <= seconds), None)


def _summary(
    rows: Sequence[TableRow], table: Sequence[Mapping[str, Any]], told: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """How `gnn` stands to the best of all others, by medians, and the papers' claims as counts of rows.

    A median that does not fit counts as infinitely long; rows where nothing fits say nothing of `gnn`.
    """
    median = {
        (line["row"], line["planner"]): np.inf if line["makespan_s"] is None else line["makespan_s"] for line in table
    }
    keys = [row.key for row in rows]
    others = ("single-cpu", "single-gpu", *CONSTRUCTED, "annealing", *LEARNED)
    best_other = {key: min(median[key, other] for other in others) for key in keys}
    misses = {
        key: median[key, "gnn"] / best_other[key] - 1.0 if np.isfinite(median[key, "gnn"]) else np.inf
        for key in keys
        if np.isfinite(min(median[key, "gnn"], best_other[key]))
    }
    fits = {(line["row"], line["planner"]): line["feasible"][0] for line in table}
    savings = [_saving(key, fits, told[key]["histories"]) for key in keys]
    counted = [saving for saving in savings if 0.0 < saving < np.inf]
    classic = ("single-cpu", "single-gpu", "scotch", "metis", "expert")
    return {
        "rows": len(rows),
        "gnn_best_or_within_1_percent": sum(miss <= 0.01 for miss in misses.values()),
        "gnn_above_best_worst": _finite(max(misses.values(), default=np.inf)),
        "gnn_above_best_at": max(misses, key=misses.__getitem__, default=None),
        "gnn_does_not_fit": sum(not np.isfinite(median[key, "gnn"]) for key in keys),
        "evaluations_saved_to_coloc_rl_median": statistics.median(counted) if counted else None,
        "evaluations_saved_to_coloc_rl_least": min(counted, default=None),
        "gnn_never_reaches_coloc_rl": sum(saving == 0.0 for saving in savings),
        "coloc_rl_does_not_fit": sum(saving == np.inf for saving in savings),
        "one_gpu_too_small": sum(not np.isfinite(median[key, "single-gpu"]) for key in keys),
        "scotch_loses_to_expert": sum(median[key, "scotch"] > median[key, "expert"] for key in keys),
        "metis_loses_to_expert": sum(median[key, "metis"] > median[key, "expert"] for key in keys),
        **{
            f"{planner}_beats_best_classic": sum(
                median[key, planner] < min(median[key, other] for other in classic) for key in keys
            )
            for planner in LEARNED
        },
    }  # fmt: skip


def _saving(key: str, fits: Mapping[tuple[str, str], bool], histories: Mapping[str, Any]) -> float:
    """Evaluations that `coloc-rl` needed to its best over those that `gnn` needed to the same; of the first seed.

    0 where `gnn` did not get there, infinite where `coloc-rl` found nothing that fits and `gnn` did.
    """
    if not fits[key, "gnn"] or not fits[key, "coloc-rl"]:
        return np.inf if fits[key, "gnn"] else 0.0
    needed, best_s = histories["coloc-rl"][-1]
    reached = to_reach(histories["gnn"], best_s)
    return 0.0 if reached is None else needed / reached


def _details(rows: Sequence[TableRow], found: Results) -> dict[str, Any]:
    """By row: sizes, lower bound, and of each planner's first seed the placement of every op group and the history."""
    told: dict[str, Any] = {}
    for row in rows:
        kept = {case.planner: result for case, result in reversed(list(found.items())) if case.row == row.key}
        told[row.key] = {
            "task": row.task, "workload": row.workload, "testbed": row.devices, "source": row.source,
            "published_s": dict(row.published), **kept.pop(FACTS),
            "placements": {planner: result["placement"] for planner, result in kept.items() if "placement" in result},
            "histories": {planner: result["history"] for planner, result in kept.items() if "history" in result},
        }  # fmt: skip
    return told


def _facts(row: TableRow, found: Results) -> Mapping[str, Any]:
    return _results(row, FACTS, found)[0]


def _results(row: TableRow, planner: str, found: Results) -> list[Mapping[str, Any]]:
    return [result for case, result in found.items() if case.row == row.key and case.planner == planner]


def _finite(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None


def _where(results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the seconds were taken on, and on which hosts if there was a cluster."""
    cpus = dict.fromkeys(str(result.get("cpu", cpu_model())) for result in results)
    hosts = dict.fromkeys(str(result["host"]) for result in results if "host" in result)
    return {"cpu": ", ".join(cpus), **({"hosts": ", ".join(hosts)} if hosts else {})}
