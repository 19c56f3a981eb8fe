"""`gnnplace bench generalization`: held-out graphs on held-out devices, a policy beside searches and its ablations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.bench.generalization.cases import CASES, HeldOutCase
from gnnplace.bench.generalization.earlier import take_over
from gnnplace.bench.generalization.rows import ROWS, Row, chosen_rows, fingerprint, policy_of
from gnnplace.bench.generalization.run import COLD_START, FACTS, ZERO_SHOT, Run, run_result
from gnnplace.bench.generalization.summary import Results, best_known, must_show, ratios, table
from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from gnnplace.errors import GnnplaceError
from gnnplace.policy.shipped import SHIPPED_POLICY
from gnnplace.units import format_s

__all__ = ["bench_generalization"]

SEEDS = 3
_NEW_TYPES = "op types that no training graph has"
COLD_STARTS = ("nmt_4 500 on k40x2", "nasnet_large 500 on k40x5")
COLUMNS = ("row", "runs", "mean_ratio", "worst_ratio", "within_2_percent", "infeasible", "evaluations", "wall_s")


def bench_generalization(options: BenchOptions) -> BenchResult:
    """A line per row over all cases; ratios to the best known, and the comparisons that the policy has to pass.

    Raises:
        GnnplaceError: no case or row has the name that is asked for, there is no policy at the path, or the result to extend
            cannot be understood.
    """
    if options.extend is not None:
        take_over(options.extend, options.kept)
    cases = chosen({case.name: case for case in CASES}, options.only, "case")
    rows, policies, left_out = _runnable(chosen_rows(options.rows), options.policy or SHIPPED_POLICY)
    if options.on_progress is not None:
        for note in left_out:
            options.on_progress(note)
    runs = _runs(cases, rows, policies, options)
    found = run_resumable(
        runs, partial(run_result, policies=policies), Run, options.workers, options.kept, partial(_report, options)
    )
    facts = {run.case: result for run, result in found.items() if run.row == FACTS}
    order = {row.name: number for number, row in enumerate(rows)}
    results = {run: found[run] for run in sorted(runs, key=lambda run: order.get(run.row, -1)) if run.row in order}
    cold_s = [result["wall_s"] for run, result in found.items() if run.row == COLD_START]
    summary = must_show(results, facts) | ({"zero_shot_500_groups_cold_start_s": max(cold_s)} if cold_s else {})
    return BenchResult(
        "generalization",
        table(results),
        summary,
        options.seed,
        options.arguments,
        _details(results, facts, left_out),
        COLUMNS,
    )


def _runnable(rows: Sequence[Row], policy: Path) -> tuple[list[Row], dict[str, Path], list[str]]:
    """The rows whose policy there is, the policies by row, and a note for each row that is left out."""
    if not policy.exists():
        raise GnnplaceError(f"{policy}: there is no such policy")
    kept: list[Row] = []
    policies: dict[str, Path] = {}
    notes: list[str] = []
    for row in rows:
        path = policy_of(row, policy)
        if path is not None and not path.exists():
            notes.append(f"{row.name} is left out: there is no {path.name} beside the policy")
            continue
        kept.append(row)
        if path is not None:
            policies[row.name] = path
    return kept, policies, notes


def _runs(
    cases: Sequence[HeldOutCase], rows: Sequence[Row], policies: Mapping[str, Path], options: BenchOptions
) -> list[Run]:
    """Facts of all cases, then the rows stage by stage; within a stage case by case, as a process keeps few cases."""
    runs = [Run(case.name, FACTS, options.seed, "") for case in cases]
    for stage in sorted({row.stage for row in ROWS.values()}):
        prints = [(row, fingerprint(row, policies.get(row.name))) for row in rows if row.stage == stage]
        runs += [
            Run(case.name, row.name, seed, its_print)
            for case in cases
            for row, its_print in prints
            for seed in _seeds(row, options)
        ]
    if ZERO_SHOT in policies:
        zero_shot = fingerprint(ROWS[ZERO_SHOT], policies[ZERO_SHOT])
        runs += [Run(case.name, COLD_START, 0, zero_shot) for case in cases if case.name in COLD_STARTS]
    return runs


def _seeds(row: Row, options: BenchOptions) -> Iterable[int]:
    wanted = options.seeds or SEEDS
    return range(options.seed, options.seed + min(wanted, row.seeds or wanted))


def _report(options: BenchOptions, run: Run, result: Mapping[str, Any]) -> None:
    if options.on_progress is None or run.row in (FACTS, COLD_START):
        return
    said = result["error"] if result["objective_s"] is None else format_s(result["objective_s"])
    took = f"{result['evaluations']:,} evaluations, took {format_s(result['wall_s'])}"
    options.on_progress(f"{run.case}: {run.row} seed {run.seed}: {said}, {took}")


def _details(
    results: Results, facts: Mapping[str, Mapping[str, Any]], left_out: Sequence[str]
) -> dict[str, Any]:  # fmt: skip
    """The cases with their best known seconds and results, and the table on what training has not seen the like of."""
    best, by_row = best_known(results), ratios(results)
    cases: dict[str, dict[str, Any]] = {
        name: {**fact, "best_known_s": best.get(name), "results": {}} for name, fact in facts.items()
    }
    for run, result in results.items():
        line = {"seed": run.seed, "depends_on": run.depends_on, **result, "ratio": by_row[run.row][run.case, run.seed]}
        cases[run.case]["results"].setdefault(run.row, []).append(line)
    unseen: dict[str, list[str]] = {}
    new_types = [name for name, fact in facts.items() if fact["unseen_types"]]
    for name, fact in sorted(facts.items(), key=lambda item: int(item[1]["num_devices"])):
        if fact["unseen_count"]:
            unseen.setdefault(f"{fact['num_devices']} devices", []).append(name)
    if new_types:
        unseen[_NEW_TYPES] = new_types
    return {
        "cases": cases,
        "unseen": {name: {"cases": among, "rows": table(results, among)} for name, among in unseen.items()},
        "left_out": list(left_out),
    }
