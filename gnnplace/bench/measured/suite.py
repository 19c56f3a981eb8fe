"""`gnnplace bench measured`: planners with executed rewards on two cores, all with the same number of executions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gnnplace.bench.measured.cases import DEVICES, EVALUATIONS, MODELS, PLANNERS, SEEDS, Run
from gnnplace.bench.measured.run import run_result
from gnnplace.bench.measured.side_by_side import SideBySide, measured_together
from gnnplace.bench.measured.summary import planner_lines, totals
from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from gnnplace.errors import GnnplaceError
from gnnplace.units import format_s

__all__ = ["bench_measured"]

COLUMNS = (
    "model", "planner", "runs", "never_near", "evaluations_to_near", "minutes_to_near", "measured_s", "ratio_to_best",
    "executing_share",
)  # fmt: skip


def bench_measured(options: BenchOptions) -> BenchResult:
    """A line per model and planner: what it took to come within 2 % of the best known, and how often it never did.

    One search at a time: anything beside it would be measured too.

    Raises:
        GnnplaceError: no model or planner has the name that is asked for.
    """
    models = chosen({model: model for model in MODELS}, options.only, "model")
    unknown = set(options.rows) - set(PLANNERS)
    if unknown:
        raise GnnplaceError(f"bench measured: no row is called {min(unknown)!r}; known are {', '.join(PLANNERS)}")
    seeds = range(options.seed, options.seed + (options.seeds or SEEDS))
    budget = options.evaluations or EVALUATIONS
    runs = [
        Run(model, planner, seed, budget)
        for model in models
        for seed in seeds  # planners in turn, so that a slow hour of the machine falls on all of them
        for planner in options.rows or PLANNERS
    ]
    found = run_resumable(runs, run_result, Run, 1, options.kept, partial(_report, options))
    cases = [SideBySide.of(model, [result for run, result in found.items() if run.model == model]) for model in models]
    kept = None if options.kept is None else options.kept.with_name(f"{options.kept.name}.together")
    together = {case.model: side for case, side in run_resumable(cases, measured_together, SideBySide, 1, kept).items()}
    lines = planner_lines(found, together)
    details: dict[str, Any] = {
        model: {
            "together": side,
            "runs": [{**vars(run), **result} for run, result in found.items() if run.model == model],
        }
        for model, side in together.items()
    }
    told = {"devices": DEVICES, "evaluations": budget, "models": details}
    return BenchResult("measured", lines, totals(lines), options.seed, options.arguments, told, COLUMNS)


def _report(options: BenchOptions, run: Run, result: Mapping[str, Any]) -> None:
    if options.on_progress is not None:
        seconds = result["searched_s"]
        said = "nothing ran" if seconds is None else format_s(seconds)
        options.on_progress(f"{run.model} {run.planner} seed {run.seed}: {said}, took {format_s(result['wall_s'])}")
