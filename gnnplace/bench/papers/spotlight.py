"""`gnnplace bench spotlight`: proximal policy optimisation against policy gradient on CIFAR-10 networks."""

from __future__ import annotations

import math

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.papers.earlier import command_arguments
from gnnplace.bench.papers.seeds import COLUMNS, made_table
from gnnplace.bench.papers.tables import SPOTLIGHT_ROWS
from gnnplace.bench.result import BenchResult

__all__ = ["PUBLISHED_RATIO", "bench_spotlight"]

PUBLISHED_RATIO = 0.609
"""Training time with Spotlight's placements over that of the policy gradient's (Gao et al. 2018, abstract)."""
_CONSTRUCTED = ("heft",)
_SEARCHED = ("annealing", "coloc-rl", "spotlight", "gnn")
_EVALUATIONS = 1000
_SEEDS = 3


def bench_spotlight(options: BenchOptions) -> BenchResult:
    """A row per network, testbed and planner; the ratio of `spotlight` to `coloc-rl` beside the published one."""
    rows = chosen({row.key: row for row in SPOTLIGHT_ROWS}, options.only, "row")
    table, told = made_table(rows, _CONSTRUCTED, _SEARCHED, options, _EVALUATIONS, _SEEDS)
    seconds = {(line["row"], line["planner"]): line["makespan_s"] for line in table}
    ratios = {
        row.key: seconds[row.key, "spotlight"] / seconds[row.key, "coloc-rl"]
        for row in rows
        if seconds[row.key, "spotlight"] is not None and seconds[row.key, "coloc-rl"] is not None
    }
    summary = {
        "rows": len(rows),
        "spotlight_to_coloc_rl": math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if ratios else None,
        "spotlight_to_coloc_rl_best": min(ratios.values(), default=None),
        "spotlight_to_coloc_rl_worst": max(ratios.values(), default=None),
        "published_on_other_hardware": PUBLISHED_RATIO,
    }
    return BenchResult("spotlight", table, summary, options.seed, command_arguments(options), told, COLUMNS)
