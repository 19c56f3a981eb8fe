"""`gnnplace bench scale`: from a file to a placement at 1,000 to 200,000 ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from gnnplace.bench.scale.cases import CASES, Case, OnnxCase
from gnnplace.bench.scale.run import run_case
from gnnplace.units import format_s

__all__ = ["bench_scale", "slope"]

_ONNX = tuple(OnnxCase(nodes) for nodes in (5_000, 15_000, 50_000))
COLUMNS = (
    "case", "ops", "import_s", "prepare_s", "evaluate_s", "place_s", "save_s", "place_peak_bytes", "makespan_s", "gap", "heft_makespan_s",
    "annealing_groups_makespan_s", "annealing_ops_makespan_s",
)  # fmt: skip


def bench_scale(options: BenchOptions) -> BenchResult:
    """A row per graph and device set, then one per ONNX file; one at a time, as seconds are what counts.

    Raises:
        GnnplaceError: no case has the name that is asked for.
    """
    cases: tuple[Case | OnnxCase, ...] = (*CASES, *_ONNX)
    wanted = chosen({case.name: case for case in cases}, options.only, "case")
    report = partial(_report, options)
    onnx_kept = None if options.kept is None else options.kept.with_name(f"{options.kept.name}.onnx")
    graphs = [case for case in wanted if isinstance(case, Case)]
    files = [case for case in wanted if isinstance(case, OnnxCase)]
    rows = list(run_resumable(graphs, run_case, Case, 1, options.kept, report).values())
    rows += run_resumable(files, run_case, OnnxCase, 1, onnx_kept, report).values()
    return BenchResult("scale", rows, _summary(rows), options.seed, options.arguments, columns=COLUMNS)


def slope(ops: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Of the least-squares line through the logarithms; None for fewer than two sizes.

    >>> slope([10, 100, 1000], [1.0, 10.0, 100.0])
    1.0
    """
    if len(set(ops)) < 2:
        return None
    return round(float(np.polyfit(np.log(ops), np.log(seconds), 1)[0]), 6)


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Slopes of each family on eight devices, and how the searches compare."""
    summary: dict[str, Any] = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        same = [row for row in rows if row["family"] == family and row.get("devices", "v100x8") == "v100x8"]
        for column in ("import_s", "prepare_s", "evaluate_s", "gnn_s", "save_s", "total_s"):
            there = [row for row in same if column in row]
            summary[f"slope {column} {family}"] = slope([row["ops"] for row in there], [row[column] for row in there])
    compared = [row for row in rows if row.get("annealing_ops_makespan_s")]
    if compared:
        ratios = [row["makespan_s"] / _best_of_others(row) for row in compared]
        summary |= {"worst_ratio_to_others": max(ratios), "median_ratio_to_others": float(np.median(ratios))}
    return {key: value for key, value in summary.items() if value is not None}


def _best_of_others(row: Mapping[str, Any]) -> float:
    """HEFT, and annealing in the same time; what does not fit is no answer."""
    names = ("heft_makespan_s", "annealing_groups_makespan_s", "annealing_ops_makespan_s")
    return float(min(row[name] for name in names if row[name] is not None))


def _report(options: BenchOptions, case: Case | OnnxCase, row: Mapping[str, Any]) -> None:
    if options.on_progress is not None:
        placed = "" if "gap" not in row else f", placed in {format_s(row['place_s'])}, {row['gap']:.1%} above the bound"
        options.on_progress(f"{case.name}: read in {format_s(row['import_s'])}{placed}")
