"""`gnnplace bench generalization`: a policy on held-out graphs and devices, beside searches and its ablations."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.bench.generalization.cases import CASES, HeldOutCase
from gnnplace.bench.generalization.rows import ROWS, Row, fingerprint, policy_of, selected_rows
from gnnplace.bench.generalization.run import COLD_START, FACTS, ZERO_SHOT, Run, run_result
from gnnplace.bench.generalization.summary import Results, best_known, comparisons, ratios, rows_of
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, finished_cases, matching, run_cases
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json, read_json_lines, write_json_lines
from gnnplace.policy import SHIPPED_POLICY
from gnnplace.units import format_s

_SEEDS = 3
_NEW_TYPES = "op types that no training graph has"
_COLD_STARTS = ("nmt_4 500 on k40x2", "nasnet_large 500 on k40x5")
COLUMNS = ("row", "runs", "mean_ratio", "worst_ratio", "within_2_percent", "infeasible", "evaluations", "wall_s")


def bench_generalization(options: BenchOptions) -> BenchResult:
    """A line per row over all cases; ratios to the best known, and the comparisons that the policy has to pass."""
    if options.extend is not None:
        take_over(options.extend, options.cases_file)
    cases = matching({case.name: case for case in CASES}, options.only, "case")
    rows, policies, left_out = _runnable(selected_rows(options.rows), options.policy or SHIPPED_POLICY)
    for note in left_out:
        options.on_progress(note)
    runs = _runs(cases, rows, policies, options)
    found = run_cases(runs, partial(run_result, policies=policies), options, _progress)
    facts = {run.case: result for run, result in found.items() if run.row == FACTS}
    order = {row.name: number for number, row in enumerate(rows)}
    results = {run: found[run] for run in sorted(runs, key=lambda run: order.get(run.row, -1)) if run.row in order}
    cold_s = [result["wall_s"] for run, result in found.items() if run.row == COLD_START]
    summary = comparisons(results, facts) | ({"zero_shot_500_groups_cold_start_s": max(cold_s)} if cold_s else {})
    details = _details(results, facts, left_out)
    return BenchResult("generalization", options, rows_of(results), summary, details, COLUMNS)


def _runnable(rows: Sequence[Row], policy: Path) -> tuple[list[Row], dict[str, Path], list[str]]:
    """The rows whose policy exists, the policies by row, and a note for each row that is left out."""
    if not policy.exists():
        raise GnnplaceError(f"{policy}: there is no such policy")
    paths = {row.name: policy_of(row, policy) for row in rows}
    missing = {name: path for name, path in paths.items() if path is not None and not path.exists()}
    notes = [f"{name} is left out: there is no {path.name} beside the policy" for name, path in missing.items()]
    policies = {name: path for name, path in paths.items() if path is not None and name not in missing}
    return [row for row in rows if row.name not in missing], policies, notes


def _runs(
    cases: Sequence[HeldOutCase], rows: Sequence[Row], policies: Mapping[str, Path], options: BenchOptions
) -> list[Run]:
    """Facts of all cases, then the rows stage by stage; within a stage case by case, as a process keeps few cases."""
    runs = [Run(case.name, FACTS, options.seed, "") for case in cases]
    for stage in sorted({row.stage for row in ROWS.values()}):
        keys = [(row, fingerprint(row, policies.get(row.name))) for row in rows if row.stage == stage]
        runs += [
            Run(case.name, row.name, seed, key)
            for case in cases
            for row, key in keys
            for seed in options.seed_range(_SEEDS)[: row.seeds]
        ]
    if ZERO_SHOT in policies:
        zero_shot = fingerprint(ROWS[ZERO_SHOT], policies[ZERO_SHOT])
        runs += [Run(case.name, COLD_START, 0, zero_shot) for case in cases if case.name in _COLD_STARTS]
    return runs


def _progress(run: Run, result: Result) -> str | None:
    if run.row in (FACTS, COLD_START):
        return None
    seconds = result["error"] if result["objective_s"] is None else format_s(result["objective_s"])
    took = f"{result['evaluations']:,} evaluations, took {format_s(result['wall_s'])}"
    return f"{run.case}: {run.row} seed {run.seed}: {seconds}, {took}"


def _details(results: Results, facts: Mapping[str, Result], left_out: Sequence[str]) -> dict[str, Any]:
    """Cases with their best known seconds and results, and the rows on the cases that differ from training."""
    best, by_row = best_known(results), ratios(results)
    cases: dict[str, dict[str, Any]] = {
        name: {**fact, "best_known_s": best.get(name), "results": {}} for name, fact in facts.items()
    }
    for run, result in results.items():
        line = {"seed": run.seed, "depends_on": run.depends_on, **result, "ratio": by_row[run.row][run.case, run.seed]}
        cases[run.case]["results"].setdefault(run.row, []).append(line)
    unseen: dict[str, list[str]] = {}
    for name, fact in sorted(facts.items(), key=lambda item: int(item[1]["num_devices"])):
        if fact["unseen_count"]:
            unseen.setdefault(f"{fact['num_devices']} devices", []).append(name)
    new_types = [name for name, fact in facts.items() if fact["unseen_types"]]
    if new_types:
        unseen[_NEW_TYPES] = new_types
    return {
        "cases": cases,
        "unseen": {name: {"cases": among, "rows": rows_of(results, among)} for name, among in unseen.items()},
        "left_out": list(left_out),
    }


def take_over(stored: Path, cases_file: Path | None) -> None:
    """Appends the runs of a stored result to a file of finished cases that lacks them.

    Raises:
        GnnplaceError: there is no file of finished cases, or `stored` is not a result of this bench.
    """
    if cases_file is None:
        raise GnnplaceError(f"{stored}: can be extended only into a file; add --out FILE")
    document = read_json(stored, GnnplaceError)
    runs: dict[Run, dict[str, Any]] = {}
    try:
        versions = document["versions"]
        for name, case in document["details"]["cases"].items():
            runs[Run(name, FACTS, document["seed"], "")] = _without(case, "best_known_s", "results")
            for row, lines in case["results"].items():
                for line in lines:
                    result = _without(line, "seed", "depends_on", "ratio")
                    runs[Run(name, row, line["seed"], line["depends_on"])] = result
    except (KeyError, TypeError, AttributeError) as problem:
        raise GnnplaceError(f"{stored}: is no result of bench generalization ({problem!r})") from None
    known = finished_cases(cases_file, Run, versions)
    new = ({"case": vars(run), "versions": versions, "result": runs[run]} for run in runs if run not in known)
    write_json_lines(cases_file, [*read_json_lines(cases_file, GnnplaceError), *new])


def _without(figures: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if key not in keys}
