"""`gnnplace bench measured`: planners whose evaluations are executions on two cores, with equal numbers of executions.

The best known placement of a model is the fastest of all final placements, measured side by side. The seconds of a search are
single measurements of which it keeps the least; they are stretched so that the final placement has its side-by-side seconds.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, check_known, matching, run_cases
from gnnplace.bench.problems import executing, real_setup
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.search import Budget
from gnnplace.report import device_letters, devices_of_letters
from gnnplace.run_record import finite
from gnnplace.units import format_s

DEVICES = "cpu:0,cpu:1"
MODELS = (
    "ensemble_cnn:batch=2",
    "cifar_cell_00:batch=8",
    "nasnet_mobile:batch=2",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000",
)
"""Zoo models that gain from two cores, with batches so small that an execution takes about a tenth of a second or less."""
PLANNERS = ("gnn", "annealing", "placeto", "coloc-rl")
COLUMNS = (
    "model", "planner", "runs", "never_near", "evaluations_to_near", "minutes_to_near", "measured_s", "ratio_to_best",
    "executing_share",
)  # fmt: skip
_EVALUATIONS, _SEEDS = 150, 3
_NEAR = 1.02
_SIDE_BY_SIDE_S = 120.0


@dataclass(frozen=True)
class SearchCase:
    """One search."""

    model: str
    planner: str
    seed: int
    evaluations: int


@dataclass(frozen=True)
class FinalPlacements:
    """The distinct final placements of all searches on one model."""

    model: str
    placements: str
    """Placements as letters of devices, separated by commas."""


def bench_measured(options: BenchOptions) -> BenchResult:
    """A row per model and planner: the evaluations to come within 2 % of the best known, and how often that failed.

    Searches run one at a time, as other work would be measured too.
    """
    models = matching({model: model for model in MODELS}, options.only, "model")
    check_known(options.rows, PLANNERS, "row")
    budget = options.evaluations or _EVALUATIONS
    cases = [
        SearchCase(model, planner, seed, budget)
        for model in models
        for seed in options.seed_range(_SEEDS)
        for planner in options.rows or PLANNERS  # in turns, so that a slow hour of the machine affects all planners
    ]
    found = run_cases(cases, search_result, options, _progress)
    by_model = {model: [(case, found[case]) for case in cases if case.model == model] for model in models}
    finals = [
        FinalPlacements(model, ",".join(sorted({result["placement"] for _, result in searches})))
        for model, searches in by_model.items()
    ]
    compared = run_cases(finals, _side_by_side, options, suffix=".together")
    together = {case.model: result for case, result in compared.items()}
    rows = measured_rows(found, together)
    details = {
        model: {"together": together[model], "runs": [{**vars(case), **result} for case, result in searches]}
        for model, searches in by_model.items()
    }
    data = {"devices": DEVICES, "evaluations": budget, "models": details}
    return BenchResult("measured", options, rows, measured_summary(rows), data, COLUMNS)


def _progress(case: SearchCase, result: Result) -> str:
    seconds = "nothing ran" if result["searched_s"] is None else format_s(result["searched_s"])
    return f"{case.model} {case.planner} seed {case.seed}: {seconds}, took {format_s(result['wall_s'])}"


def search_result(case: SearchCase) -> dict[str, Any]:
    """Final placement and history of one search; its seconds are single measurements.

    Raises:
        KeyboardInterrupt: the search was interrupted; its answer is not a result.
    """
    setup = real_setup(case.model, DEVICES)
    with executing(setup, MEASURE_OPTIONS) as evaluator:
        solution = load_planner(case.planner)(setup.problem(evaluator), Budget(case.evaluations), case.seed)
    if solution.interrupted:
        raise KeyboardInterrupt
    return {
        "placement": device_letters(solution.placement.assignment.tolist()),
        "searched_s": finite(solution.objective_s),
        "history": [row for row in solution.history if np.isfinite(row[2])],
        "stages": [[name, finite(best_s)] for name, best_s in solution.stages],
        "evaluations": solution.evaluations,
        "executed": evaluator.measurements,
        "simulated": solution.simulated,
        "wall_s": solution.wall_s,
        "executing_s": evaluator.executing_s,
        "single_s": None if evaluator.single is None else evaluator.single.makespan_s,
        "groups": setup.coarsening.graph.num_ops,
        "ops": setup.workload.graph.num_ops,
    }


def _side_by_side(case: FinalPlacements) -> dict[str, Any]:
    """Median seconds and spread by placement, None for one that failed; and the seconds of one plain session."""
    setup, letters = real_setup(case.model, DEVICES), case.placements.split(",")
    options = replace(MEASURE_OPTIONS, final=replace(MEASURE_OPTIONS.final, max_s=_SIDE_BY_SIDE_S))
    placements = [Placement(np.array(devices_of_letters(text), dtype=np.int64)) for text in letters]
    with executing(setup, options) as evaluator:
        comparison = evaluator.compare(placements)
    return {
        "single_s": None if comparison.single is None else comparison.single.makespan_s,
        "placements": {
            text: None if found.failure else {"median_s": found.makespan_s, "spread_s": found.spread_s}
            for text, found in zip(letters, comparison.evaluations, strict=True)
        },
    }


def measured_rows(results: Mapping[SearchCase, Result], together: Mapping[str, Result]) -> list[dict[str, Any]]:
    """A row per model and planner, medians over seeds; evaluations and minutes count only the seeds that came near."""
    rows = []
    for model, side in together.items():
        finals = {text: None if found is None else found["median_s"] for text, found in side["placements"].items()}
        best_s = min((seconds for seconds in finals.values() if seconds is not None), default=math.inf)
        for planner in dict.fromkeys(case.planner for case in results if case.model == model and best_s < math.inf):
            mine = [result for case, result in results.items() if (case.model, case.planner) == (model, planner)]
            seconds = [finals[result["placement"]] for result in mine]
            near = [_reached(result, final_s, best_s) for result, final_s in zip(mine, seconds, strict=True)]
            came = [found for found in near if found is not None]
            median_s = _median(value for value in seconds if value is not None)
            rows.append(
                {
                    "model": model,
                    "planner": planner,
                    "runs": len(mine),
                    "never_near": len(mine) - len(came),
                    "evaluations_to_near": _median(count for count, _ in came),
                    "minutes_to_near": _median(wall_s / 60.0 for _, wall_s in came),
                    "measured_s": median_s,
                    "ratio_to_best": None if median_s is None else median_s / best_s,
                    "speed_up": None if median_s is None or side["single_s"] is None else side["single_s"] / median_s,
                    "executing_share": _median(result["executing_s"] / max(1e-9, result["wall_s"]) for result in mine),
                    "minutes": _median(result["wall_s"] / 60.0 for result in mine),
                    "evaluations": _median(result["evaluations"] for result in mine),
                    "simulated": _median(result["simulated"] for result in mine),
                    "by_seed": [None if found is None else list(found) for found in near],
                }
            )
    return rows


def _reached(result: Result, final_s: float | None, best_s: float) -> tuple[int, float] | None:
    """Evaluations and wall seconds until a search was near the best known placement; None if it never was."""
    if final_s is None or result["searched_s"] is None:
        return None
    stretch, limit_s = final_s / result["searched_s"], _NEAR * best_s
    near = (entry for entry in result["history"] if entry[2] * stretch <= limit_s)
    return next(((int(count), wall_s) for count, wall_s, _ in near), None)


def measured_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Per planner over all models: the searches that never came near, and the mean ratio to the best known."""
    summary: dict[str, Any] = {}
    for planner in dict.fromkeys(row["planner"] for row in rows):
        mine = [row for row in rows if row["planner"] == planner]
        ratios = [row["ratio_to_best"] for row in mine if row["ratio_to_best"] is not None]
        never, runs = (sum(row[column] for row in mine) for column in ("never_near", "runs"))
        summary[f"{planner}_never_near"] = f"{never} of {runs}"
        summary[f"{planner}_mean_ratio_to_best"] = statistics.fmean(ratios) if ratios else None
    return summary


def _median(values: Iterable[float]) -> float | None:
    several = list(values)
    return float(statistics.median(several)) if several else None
