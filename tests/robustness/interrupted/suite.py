"""`make bench-interrupted`: every command that writes files, killed at many moments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from tests.robustness.interrupted.commands import COMMANDS
from tests.robustness.interrupted.kill import Kill, Undisturbed, kill_result, undisturbed_result

__all__ = ["bench_interrupted"]

COLUMNS = ("command", "kills", "usual_s", "longest_restart_s", "longest_ending_s", "with_leftovers", "problems")


def bench_interrupted(options: BenchOptions) -> BenchResult:
    """A line per command: how often it was killed while it ran, the longest next start, and whatever was wrong after any of them.

    Raises:
        GnnplaceError: no command has the name that is asked for, or one fails without being killed.
    """
    names = chosen({name: name for name in COMMANDS}, options.only, "command")
    kept = None if options.kept is None else options.kept.with_name(f"{options.kept.name}.undisturbed")
    whole = run_resumable([Undisturbed(name) for name in names], undisturbed_result, Undisturbed, options.jobs, kept)
    usual = {case.command: result for case, result in whole.items()}
    kills = [
        Kill(name, seed, usual[name]["wall_s"], usual[name]["answer"])
        for seed in range(options.seed, options.seed + (options.seeds or max(COMMANDS[name].kills for name in names)))
        for name in names  # in turns
        if options.seeds is not None or seed - options.seed < COMMANDS[name].kills
    ]
    found = run_resumable(kills, kill_result, Kill, options.jobs, options.kept, partial(_report, options))
    rows = [
        _row(name, usual[name]["wall_s"], {case: r for case, r in found.items() if case.command == name})
        for name in names
    ]
    summary = {
        "kills": sum(row["kills"] for row in rows),
        "problems": sum(row["problems"] for row in rows),
        "longest_restart_s": max(row["longest_restart_s"] for row in rows),
        "longest_ending_s": max(row["longest_ending_s"] for row in rows),
    }
    told = {"kills": [{"command": case.command, "seed": case.seed, **result} for case, result in found.items()]}
    return BenchResult("interrupted", rows, summary, options.seed, options.arguments, told, COLUMNS)


def _row(name: str, usual_s: float, found: Mapping[Kill, Mapping[str, Any]]) -> dict[str, Any]:
    results = list(found.values())
    return {
        "command": name,
        "kills": sum(result["was_running"] for result in results),
        "usual_s": usual_s,
        "longest_restart_s": max(result["restart_s"] for result in results),
        "longest_ending_s": max(result["ended_s"] for result in results),
        "with_leftovers": sum(bool(result["leftovers"]) for result in results),
        "problems": sum(len(result["problems"]) for result in results),
    }


def _report(options: BenchOptions, case: Kill, result: Mapping[str, Any]) -> None:
    if options.on_progress is not None:
        said = "; ".join(result["problems"]) or "whole"
        options.on_progress(f"{case.command} killed after {result['at_s']:.1f} s of {case.usual_s:.1f} s: {said}")
