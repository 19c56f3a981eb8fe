"""`gnnplace bench fidelity`: simulated against measured seconds, per model and device set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gnnplace.bench.fidelity.cases import MODELS, Case, device_sets
from gnnplace.bench.fidelity.run import fidelity_result
from gnnplace.bench.fidelity.summary import fidelity_line, totals
from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable

__all__ = ["bench_fidelity"]

COLUMNS = (
    "model", "devices", "groups", "placements", "spearman", "repeatability", "median_error", "worst_error", "bias", "slowdown", "median_error_slowed", "median_error_without_segment_costs",
    "median_spread",
)  # fmt: skip


def bench_fidelity(options: BenchOptions) -> BenchResult:
    """A line per model and device set; one at a time, as anything beside a measurement would be measured too.

    Raises:
        GnnplaceError: no model has the name that is asked for.
    """
    models = chosen({model: model for model in MODELS}, options.only, "model")
    cases = [Case(model, devices, options.seed) for devices in device_sets() for model in models]
    found = run_resumable(cases, fidelity_result, Case, 1, options.kept, partial(_report, options))
    lines = [fidelity_line(case, result) for case, result in found.items()]
    details = {f"{case.model} on {case.devices}": dict(result) for case, result in found.items()}
    return BenchResult("fidelity", lines, totals(lines), options.seed, options.arguments, details, COLUMNS)


def _report(options: BenchOptions, case: Case, result: Mapping[str, Any]) -> None:
    if options.on_progress is not None:
        line = fidelity_line(case, result)
        options.on_progress(
            f"{case.model} on {case.devices}: Spearman {line['spearman']:.2f}, median error {line['median_error']:.0%}"
        )
