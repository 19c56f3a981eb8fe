"""`gnnplace bench seeds` and `gnnplace bench spotlight`: the papers' tables with every method, beside the published seconds.

Some planners can be run beside a stored result of the others.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gnnplace.bench.harness import BenchOptions, BenchResult, Result, check_known, matching, run_cases
from gnnplace.bench.papers.tables import FACTS, SEEDS_ROWS, SPOTLIGHT_ROWS, Case, Results, TableRow, case_result
from gnnplace.devices.detect import cpu_model
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json
from gnnplace.run_record import finite
from gnnplace.units import format_s

_EVALUATIONS, _SEEDS = 1000, 3
_NEAR = 1.01


def compared_planners(
    rows: Sequence[TableRow], constructed: Sequence[str], searched: Sequence[str], options: BenchOptions
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and details of all planners on all rows of a table.

    Planners in `constructed` run with one seed, as it hardly changes their answer; those in `searched` with several seeds and
    the same number of evaluations. With `options.extend`, only the planners of `options.rows` run; the others come from that
    stored result.

    Raises:
        GnnplaceError: there is no such planner, or the stored result lacks a line or was made with other options.
    """
    planners, budget = (*constructed, *searched), options.evaluations or _EVALUATIONS
    seeds = options.seed_range(_SEEDS)
    stored = _stored_table(options, rows, planners, budget, len(seeds))
    run = planners if stored is None else options.rows
    cases = [  # row by row, as a process keeps few rows in memory
        Case(row.key, planner, seed, budget)
        for row in rows
        for planner in (FACTS, *run)
        for seed in (seeds if planner in searched else seeds[:1])
    ]
    found = run_cases(cases, case_result, options, _progress)
    lines, details = [line for row in rows for line in planner_rows(row, run, found)], _details(rows, found)
    if stored is None:
        return lines, details
    stored_lines, stored_details = stored
    for key, detail in details.items():
        for kind in ("placements", "histories"):
            detail[kind] = {**stored_details[key][kind], **detail[kind]}
    by_key = stored_lines | {(line["row"], line["planner"]): line for line in lines}
    names = dict.fromkeys((*(line["planner"] for line in lines if line["planner"] not in planners), *planners))
    return [dict(by_key[row.key, name]) for row in rows for name in names], details


def _progress(case: Case, result: Result) -> str | None:
    if case.planner == FACTS:
        return None
    seconds = result["error"] if result["makespan_s"] is None else format_s(result["makespan_s"])
    return f"{case.row} {case.planner} seed {case.seed}: {seconds}, took {result['wall_s']:.0f} s"


def planner_rows(row: TableRow, planners: Sequence[str], found: Results) -> Iterator[dict[str, Any]]:
    """A line for each single device and each planner on one row; seconds are null where memory does not suffice."""
    singles = _results(row, FACTS, found)[0]["singles"]
    runs = {column: [{**single, "evaluations": 1, "wall_s": 0.0}] for column, single in singles.items()}
    runs |= {planner: _results(row, planner, found) for planner in planners}
    for planner, results in runs.items():
        makespans = [np.inf if result["makespan_s"] is None else result["makespan_s"] for result in results]
        histories = [one["history"] for one in results if one["makespan_s"] is not None and "history" in one]
        near = [evaluations_to_reach(history, _NEAR * history[-1][1]) for history in histories]
        yield {
            "row": row.key,
            "task": row.task,
            "devices": row.devices,
            "planner": planner,
            "makespan_s": finite(statistics.median(makespans)),
            "lowest_s": finite(min(makespans)),
            "highest_s": finite(max(makespans)),
            "feasible": [result["makespan_s"] is not None for result in results],
            "evaluations": max(result["evaluations"] for result in results),
            "to_within_1_percent": statistics.median(count for count in near if count is not None) if near else None,
            "wall_s": statistics.median(result["wall_s"] for result in results),
            "published_s": row.published.get(planner),
            "error": next((result["error"] for result in results if result["error"]), None),
            **_machines(results),
        }


def evaluations_to_reach(history: Sequence[Sequence[float]], seconds: float) -> int | None:
    """Evaluations until the best was at most `seconds`; None if it never was."""
    return next((int(count) for count, best_s in history if best_s <= seconds), None)


def _results(row: TableRow, planner: str, found: Results) -> list[dict[str, Any]]:
    return [dict(result) for case, result in found.items() if case.row == row.key and case.planner == planner]


def _machines(results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Processors that the seconds were taken on, and the hosts of a cluster."""
    cpus = dict.fromkeys(str(result.get("cpu", cpu_model())) for result in results)
    hosts = dict.fromkeys(str(result["host"]) for result in results if "host" in result)
    return {"cpu": ", ".join(cpus), **({"hosts": ", ".join(hosts)} if hosts else {})}


def _details(rows: Sequence[TableRow], found: Results) -> dict[str, Any]:
    """Sizes and lower bound by row, with each planner's placement of the op groups and history for its first seed."""
    details: dict[str, Any] = {}
    for row in rows:
        first = {case.planner: result for case, result in reversed(list(found.items())) if case.row == row.key}
        details[row.key] = {
            "task": row.task, "workload": row.workload, "testbed": row.devices, "source": row.source,
            "published_s": dict(row.published), **first.pop(FACTS),
            "placements": {planner: result["placement"] for planner, result in first.items() if "placement" in result},
            "histories": {planner: result["history"] for planner, result in first.items() if "history" in result},
        }  # fmt: skip
    return details


def _stored_table(
    options: BenchOptions, rows: Sequence[TableRow], planners: Sequence[str], evaluations: int, seeds: int
) -> tuple[dict[tuple[str, str], dict[str, Any]], Mapping[str, Mapping[str, Any]]] | None:
    """Lines by row and planner, and details by row, of the stored result `options.extend`; None without one."""
    if options.extend is None and not options.rows:
        return None
    if options.extend is None or not options.rows:
        raise GnnplaceError("--rows A,B names the planners to run, and --extend RESULT has the others: give both")
    check_known(options.rows, planners, "planner")
    document = read_json(options.extend, GnnplaceError)
    try:
        cpu, details = document["machine"]["cpu"], document["details"]
        lines = {(line["row"], line["planner"]): {"cpu": cpu, **line} for line in document["rows"]}
        most_evaluations = max(line["evaluations"] for line in lines.values())
        made_with = document["seed"], most_evaluations, max(len(line["feasible"]) for line in lines.values())
    except (KeyError, TypeError, AttributeError) as problem:
        raise GnnplaceError(f"{options.extend}: is no table of the papers ({problem!r})") from None
    if made_with != (options.seed, evaluations, seeds):
        raise GnnplaceError(
            f"{options.extend}: was made with seed, evaluations and seeds {made_with}, not {(options.seed, evaluations, seeds)}; "
            "give the same ones"
        )
    for row in rows:
        for name in planners:
            if name not in options.rows and (row.key, name) not in lines:
                raise GnnplaceError(f"{options.extend}: has no line for {name} on {row.key}; add it to --rows")
    return lines, details


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
    seconds = {(line["row"], line["planner"]): line["makespan_s"] for line in lines}
    median = {key: np.inf if median_s is None else median_s for key, median_s in seconds.items()}
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
    best_classic = {key: min(median[key, other] for other in classic) for key in keys}
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
            f"{planner}_beats_best_classic": sum(median[key, planner] < best_classic[key] for key in keys)
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
