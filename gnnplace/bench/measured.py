"""`gnnplace bench measured`: planners whose evaluations are executions on two cores, with equal numbers of executions.

A case is a model, a number of executions and a seed. It runs `gnn`, then every other method with as many simulations as `gnn` made,
and then measures all final placements side by side with the reference. The best known placement of a case is the fastest of these.
The seconds of a search are single measurements of which it keeps the least; they are stretched so that the final placement has
its side-by-side seconds.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gnnplace.api import ProblemSetup
from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, check_known, matching, run_cases
from gnnplace.bench.problems import executing, real_setup
from gnnplace.bench.rivals import RIVALS
from gnnplace.difference import Difference
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.paired import PairRule, signed_rank_interval
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.report import device_letters
from gnnplace.run_record import finite
from gnnplace.units import format_s

DEVICES = "cpu:0,cpu:1"
MODELS: Mapping[str, str] = {
    "cifar_cell_00:batch=8": "branches",
    "light_inception_v2": "branches",
    "nasnet_mobile:batch=2": "branches",
    "ensemble_cnn:batch=2": "branches",
    "bert_base:layers=2:batch=1:length=32": "transformer",
    "vit_base:layers=2:batch=1:image=112": "transformer",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000": "recurrent",
    "ensemble_mlp:members=8:width=128:batch=8": "under 1 ms",
}
"""Kind of each model of the zoo; an execution takes 0.2 ms to 0.1 s on one core."""
OURS = "gnn"
METHODS = (OURS, *RIVALS, "annealing", "placeto", "coloc-rl")
"""Planners with executed evaluations, and those that have the simulations of `gnn` too."""
BUDGETS = (40, 120)
"""Executions of each search."""
COLUMNS = (
    "model", "budget", "planner", "runs", "never_near", "evaluations_to_near", "minutes_to_near", "measured_s",
    "ratio_to_best", "executing_share",
)  # fmt: skip
_BY_DEFAULT, _SEEDS = METHODS[:3], 3
_NEAR = 1.02
_SIDE_BY_SIDE_S, _PAIR_S = 20.0, 15.0
_WRONG = 0.1
"""Size of the simulator's error above which the summary names a model."""


@dataclass(frozen=True)
class MeasuredCase:
    """All methods on one model with one budget and one seed."""

    model: str
    budget: int
    seed: int
    methods: str
    """Names separated by commas; `gnn` is the first."""


def bench_measured(options: BenchOptions) -> BenchResult:
    """A row per model, budget and method; the details have the differences of `gnn` to every other method in each case.

    Searches run one at a time, as other work would be measured too.
    """
    models = matching({model: model for model in MODELS}, options.only, "model")
    check_known(options.rows, METHODS, "row")
    methods = ",".join(dict.fromkeys((OURS, *(options.rows or _BY_DEFAULT))))
    cases = [
        MeasuredCase(model, budget, seed, methods)
        for seed in options.seed_range(_SEEDS)  # one seed of every model is soon complete
        for budget in ([options.evaluations] if options.evaluations else BUDGETS)
        for model in models
    ]
    found = run_cases(cases, case_result, options, _progress)
    rows = measured_rows(found)
    data = {
        "devices": DEVICES,
        "cases": [{**vars(case), "kind": MODELS[case.model], **result} for case, result in found.items()],
    }
    return BenchResult("measured", options, rows, measured_summary(rows, found), data, COLUMNS)


def _progress(case: MeasuredCase, result: Result) -> str:
    minutes = sum(search["wall_s"] for search in result["searches"].values()) / 60
    finals = ", ".join(
        f"{method} {'failed' if search['median_s'] is None else format_s(search['median_s'])}"
        for method, search in result["searches"].items()
    )
    return f"{case.model}, {case.budget} executions, seed {case.seed}: {finals}; searched for {minutes:.1f} min"


def case_result(case: MeasuredCase) -> dict[str, Any]:
    """Final placements, histories and side-by-side seconds of all methods.

    Raises:
        KeyboardInterrupt: a search was interrupted; its answer is not a result.
    """
    setup, searches = real_setup(case.model, DEVICES), dict[str, dict[str, Any]]()
    placements: dict[str, Placement] = {}
    for method in case.methods.split(","):
        simulated = searches[OURS]["simulated"] if searches else 0
        placements[method], searches[method] = search_result(setup, case, method, simulated)
    options = replace(MEASURE_OPTIONS, final=replace(MEASURE_OPTIONS.final, max_s=_SIDE_BY_SIDE_S))
    with executing(setup, options) as evaluator:
        together = _side_by_side(setup, evaluator, placements)
        for method, found in together.pop("methods").items():
            searches[method] |= found
        differences = {
            method: _difference(evaluator, placements[OURS], placement)
            for method, placement in placements.items()
            if method != OURS
        }
    return {
        **together, "differences": differences, "searches": searches,
        "groups": setup.coarsening.graph.num_ops, "ops": setup.workload.graph.num_ops,
    }  # fmt: skip


def search_result(
    setup: ProblemSetup, case: MeasuredCase, method: str, simulated: int
) -> tuple[Placement, dict[str, Any]]:
    """Final placement and history of one search, whose seconds are single measurements; a rival simulates `simulated` placements."""
    budget = Budget(case.budget)
    with executing(setup, MEASURE_OPTIONS) as evaluator:
        problem = setup.problem(evaluator)
        if method in RIVALS:
            solution = RIVALS[method](problem, budget, case.seed, simulated)
        else:
            solution = load_planner(method)(problem, budget, case.seed)
    if solution.interrupted:
        raise KeyboardInterrupt
    return solution.placement, {
        "placement": device_letters(solution.placement.assignment.tolist()),
        "searched_s": finite(solution.objective_s),
        "history": [row for row in solution.history if np.isfinite(row[2])],
        "stages": [[name, finite(best_s)] for name, best_s in solution.stages],
        "evaluations": solution.evaluations,
        "executed": evaluator.measurements,
        "simulated": solution.simulated,
        "wall_s": solution.wall_s,
        "executing_s": evaluator.executing_s,
    }


def _side_by_side(
    setup: ProblemSetup, evaluator: MeasuredEvaluator, placements: Mapping[str, Placement]
) -> dict[str, Any]:
    """Median seconds of all methods and of plain sessions, in one job; and the simulator's error for `gnn`.

    The error compares ratios to the best single device, simulated and measured, so that a slower clock adds none.
    """
    distinct = {one.assignment.tobytes(): one for one in placements.values()}
    comparison = evaluator.compare(list(distinct.values()))
    measured = dict(zip(distinct, comparison.evaluations, strict=True))
    plain, error, ours = comparison.plain, None, placements[OURS]
    if plain.single_s is not None:
        device, simulated = setup.topology.device_index[plain.single_device], setup.problem().evaluator
        alone_s = simulated.evaluate(Placement(np.full_like(ours.assignment, device))).makespan_s
        measured_ratio = measured[ours.assignment.tobytes()].makespan_s / plain.single_s
        error = finite(simulated.evaluate(ours).makespan_s / alone_s / measured_ratio - 1.0)
    return {
        "reference": plain.best_session,
        "reference_s": plain.best_s,
        "single_s": plain.single_s,
        "simulator_error": error,
        "methods": {
            method: {"median_s": finite(found.makespan_s), "spread_s": found.spread_s}
            for method, placement in placements.items()
            for found in [measured[placement.assignment.tobytes()]]
        },
    }


def _difference(evaluator: MeasuredEvaluator, ours: Placement, other: Placement) -> dict[str, Any] | None:
    """The seconds of `ours` over those of the other, minus 1, with their interval; None where one failed."""
    if (ours.assignment == other.assignment).all():
        return asdict(Difference(0.0, 0.0, 0.0, 0))
    try:
        return asdict(evaluator.difference(ours, other, PairRule(max_s=_PAIR_S, patience_s=PATIENCE_S)))
    except MeasurementFailed:
        return None


def measured_rows(results: Mapping[MeasuredCase, Result]) -> list[dict[str, Any]]:
    """A row per model, budget and method, medians over seeds; evaluations and minutes count only the seeds that came near."""
    rows = []
    for model, budget in dict.fromkeys((case.model, case.budget) for case in results):
        chosen = [found for case, found in results.items() if (case.model, case.budget) == (model, budget)]
        best_s = [_least(found) for found in chosen]
        for method in chosen[0]["searches"]:
            mine = [found["searches"][method] for found in chosen]
            pairs = list(zip(mine, best_s, strict=True))
            near = [_reached(search, least_s) for search, least_s in pairs]
            came = [found for found in near if found is not None]
            rows.append(
                {
                    "model": model,
                    "budget": budget,
                    "planner": method,
                    "runs": len(mine),
                    "never_near": len(mine) - len(came),
                    "evaluations_to_near": _median(count for count, _ in came),
                    "minutes_to_near": _median(wall_s / 60.0 for _, wall_s in came),
                    "measured_s": _median(search["median_s"] for search in mine if search["median_s"] is not None),
                    "ratio_to_best": _median(
                        search["median_s"] / least_s for search, least_s in pairs if search["median_s"] is not None
                    ),
                    "speed_up": _median(
                        found["single_s"] / search["median_s"]
                        for found, search in zip(chosen, mine, strict=True)
                        if found["single_s"] is not None and search["median_s"] is not None
                    ),
                    "executing_share": _median(search["executing_s"] / max(1e-9, search["wall_s"]) for search in mine),
                    "minutes": _median(search["wall_s"] / 60.0 for search in mine),
                    "evaluations": _median(search["evaluations"] for search in mine),
                    "simulated": _median(search["simulated"] for search in mine),
                    "by_seed": [None if found is None else list(found) for found in near],
                }
            )
    return rows


def _least(found: Result) -> float:
    """Seconds of the best known placement of a case; infinite where all failed."""
    medians = (search["median_s"] for search in found["searches"].values())
    return min((seconds for seconds in medians if seconds is not None), default=math.inf)


def _reached(search: Result, best_s: float) -> tuple[int, float] | None:
    """Evaluations and wall seconds until a search was near the best known placement; None if it never was."""
    if search["median_s"] is None or search["searched_s"] is None:
        return None
    stretch, limit_s = search["median_s"] / search["searched_s"], _NEAR * best_s
    near = (entry for entry in search["history"] if entry[2] * stretch <= limit_s)
    return next(((int(count), wall_s) for count, wall_s, _ in near), None)


def measured_summary(rows: Sequence[Mapping[str, Any]], results: Mapping[MeasuredCase, Result]) -> dict[str, Any]:
    """Per method: searches that never came near, the mean ratio to the best known, and the cases in which `gnn` differs from it."""
    summary: dict[str, Any] = {}
    for method in dict.fromkeys(row["planner"] for row in rows):
        mine = [row for row in rows if row["planner"] == method]
        ratios = [row["ratio_to_best"] for row in mine if row["ratio_to_best"] is not None]
        never, runs = (sum(row[column] for row in mine) for column in ("never_near", "runs"))
        summary[f"{method}_never_near"] = f"{never} of {runs}"
        summary[f"{method}_mean_ratio_to_best"] = statistics.fmean(ratios) if ratios else None
        found = [result["differences"].get(method) for result in results.values()]
        signs = [Difference(**one).sign for one in found if one is not None]
        if method != OURS:
            summary[f"{OURS}_against_{method}"] = (
                f"faster in {signs.count(-1)}, slower in {signs.count(1)} of {len(signs)} cases"
            )
    errors = [(case.model, result["simulator_error"]) for case, result in results.items()]
    wrong = dict.fromkeys(model for model, error in errors if error is not None and abs(error) > _WRONG)
    summary[f"simulator_error_above_{_WRONG}"] = ", ".join(wrong) or "none"
    others = dict.fromkeys(other for result in results.values() for other in result["differences"])
    for other in others:
        for where, is_wrong in (("simulator_wrong", True), ("simulator_right", False)):
            chosen = [result for case, result in results.items() if (case.model in wrong) == is_wrong]
            differences = [result["differences"].get(other) for result in chosen]
            summary[f"{OURS}_against_{other}_{where}"] = _mean_difference(differences)
    return summary


def _mean_difference(found: Iterable[Mapping[str, Any] | None]) -> list[float | None]:
    """Typical difference over cases (Hodges and Lehmann 1963) with its 95 % interval; null where there are too few cases."""
    logs = np.log1p([one["difference"] for one in found if one is not None])
    values = signed_rank_interval(logs, 0.95) if len(logs) else (math.inf,) * 3
    return [math.expm1(value) if math.isfinite(value) else None for value in values]


def _median(values: Iterable[float]) -> float | None:
    several = list(values)
    return float(statistics.median(several)) if several else None
