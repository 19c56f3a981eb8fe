"""`gnnplace bench seeds` and `gnnplace bench spotlight`: the papers' tables with every method, beside the published seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnplace.bench.harness import BenchOptions, BenchResult, matching
from gnnplace.bench.papers.comparison import compared_planners, evaluations_to_reach
from gnnplace.bench.papers.tables import SEEDS_ROWS, SPOTLIGHT_ROWS, TableRow
from gnnplace.run_record import finite

__all__ = ["CONSTRUCTED", "LEARNED", "SEARCHED", "bench_seeds", "bench_spotlight"]

CONSTRUCTED = ("scotch", "metis", "expert", "heft")
LEARNED = (
    "coloc-rl", "hierarchical", "hierarchical-no-grouping", "hierarchical-random-grouping", "spotlight", "placeto",
)  # fmt: skip
SEARCHED = ("annealing", *LEARNED, "gnn")
COLUMNS = ("row", "planner", "makespan_s", "lowest_s", "highest_s", "to_within_1_percent", "wall_s", "published_s")
_PUBLISHED_RATIO = 0.609
"""Training time with Spotlight's placements over that of the policy gradient's (Gao et al. 2018, abstract)."""


def bench_seeds(options: BenchOptions) -> BenchResult:
    """A line per row and planner: median and range over seeds, all searches with the same number of evaluations."""
    rows = matching({row.key: row for row in SEEDS_ROWS}, options.only, "row")
    lines, details = compared_planners(rows, CONSTRUCTED, SEARCHED, options)
    return BenchResult("seeds", options, lines, _seeds_summary(rows, lines, details), details, COLUMNS)


def _seeds_summary(
    rows: Sequence[TableRow], lines: Sequence[Mapping[str, Any]], details: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Ratios of `gnn` to the best of all others, by medians, and the papers' claims as counts of rows.

    A median that does not fit counts as infinitely long; rows where nothing fits have no ratio.
    """
    median = {
        (line["row"], line["planner"]): np.inf if line["makespan_s"] is None else line["makespan_s"] for line in lines
    }
    keys = [row.key for row in rows]
    others = ("single-cpu", "single-gpu", *CONSTRUCTED, "annealing", *LEARNED)
    best_other = {key: min(median[key, other] for other in others) for key in keys}
    excess = {
        key: median[key, "gnn"] / best_other[key] - 1.0 if np.isfinite(median[key, "gnn"]) else np.inf
        for key in keys
        if np.isfinite(min(median[key, "gnn"], best_other[key]))
    }
    fits = {(line["row"], line["planner"]): line["feasible"][0] for line in lines}
    savings = [_saving(key, fits, details[key]["histories"]) for key in keys]
    counted = [saving for saving in savings if 0.0 < saving < np.inf]
    classic = ("single-cpu", "single-gpu", "scotch", "metis", "expert")
    return {
        "rows": len(rows),
        "gnn_best_or_within_1_percent": sum(value <= 0.01 for value in excess.values()),
        "gnn_above_best_worst": finite(max(excess.values(), default=np.inf)),
        "gnn_above_best_at": max(excess, key=excess.__getitem__, default=None),
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
    """Evaluations of `coloc-rl` to its best over those of `gnn` to the same seconds, both with the first seed.

    The ratio is 0 where `gnn` never reached these seconds, and infinite where only `gnn` found a placement that fits.
    """
    if not fits[key, "gnn"] or not fits[key, "coloc-rl"]:
        return np.inf if fits[key, "gnn"] else 0.0
    needed, best_s = histories["coloc-rl"][-1]
    reached = evaluations_to_reach(histories["gnn"], best_s)
    return 0.0 if reached is None else needed / reached


def bench_spotlight(options: BenchOptions) -> BenchResult:
    """A line per CIFAR-10 network, testbed and planner; the ratio of `spotlight` to `coloc-rl` beside the published one."""
    rows = matching({row.key: row for row in SPOTLIGHT_ROWS}, options.only, "row")
    lines, details = compared_planners(rows, ("heft",), ("annealing", "coloc-rl", "spotlight", "gnn"), options)
    seconds = {(line["row"], line["planner"]): line["makespan_s"] for line in lines}
    pairs = [(seconds[row.key, "spotlight"], seconds[row.key, "coloc-rl"]) for row in rows]
    ratios = [one_s / other_s for one_s, other_s in pairs if one_s is not None and other_s is not None]
    summary = {
        "rows": len(rows),
        "spotlight_to_coloc_rl": math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None,
        "spotlight_to_coloc_rl_best": min(ratios, default=None),
        "spotlight_to_coloc_rl_worst": max(ratios, default=None),
        "published_on_other_hardware": _PUBLISHED_RATIO,
    }
    return BenchResult("spotlight", options, lines, summary, details, COLUMNS)
