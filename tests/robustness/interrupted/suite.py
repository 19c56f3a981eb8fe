"""`make bench-interrupted`: commands that write files are killed at random moments and started again."""

import subprocess
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gnnplace.bench.harness import BenchOptions, BenchResult, matching, run_cases
from gnnplace.errors import GnnplaceError
from gnnplace.files import temporary_folder
from tests.robustness.interrupted.commands import COMMANDS, SYSTEM, prepare, running
from tests.robustness.interrupted.files import broken_files, digest, leftovers

COLUMNS = ("command", "kills", "usual_s", "longest_restart_s", "longest_ending_s", "with_leftovers", "problems")
_LIMIT_S = 200.0
_ORPHANS_S = 10.0


@dataclass(frozen=True)
class Undisturbed:
    """A run of a command to its end."""

    command: str


@dataclass(frozen=True)
class Kill:
    """A run that is killed once, and started again."""

    command: str
    seed: int
    """Seed of the moment of the kill."""
    usual_s: float
    """Seconds of an undisturbed run; the moment is uniform in these."""
    answer: str
    """Digest of the files of an undisturbed run."""


def bench_interrupted(options: BenchOptions) -> BenchResult:
    """A row per command: kills while it ran, the longest next start, and the number of problems after any kill.

    Raises:
        GnnplaceError: no command has the requested name, or a command fails without being killed.
    """
    names = matching({name: name for name in COMMANDS}, options.only, "command")
    whole = run_cases([Undisturbed(name) for name in names], undisturbed_result, options, suffix=".undisturbed")
    usual = {case.command: result for case, result in whole.items()}
    counts = {name: options.seeds or COMMANDS[name].kills for name in names}
    kills = [
        Kill(name, seed, usual[name]["wall_s"], usual[name]["answer"])
        for seed in range(options.seed, options.seed + max(counts.values()))
        for name in names  # in turns
        if seed - options.seed < counts[name]
    ]
    found = run_cases(kills, kill_result, options, _progress)
    rows = [
        _row(name, usual[name]["wall_s"], [result for case, result in found.items() if case.command == name])
        for name in names
    ]
    summary = {
        **{column: sum(row[column] for row in rows) for column in ("kills", "problems")},
        **{column: max(row[column] for row in rows) for column in ("longest_restart_s", "longest_ending_s")},
    }
    details = {"kills": [{"command": case.command, "seed": case.seed, **result} for case, result in found.items()]}
    return BenchResult("interrupted", options, rows, summary, details, COLUMNS)


def _row(name: str, usual_s: float, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "command": name,
        "kills": sum(result["was_running"] for result in results),
        "usual_s": usual_s,
        "longest_restart_s": max(result["restart_s"] for result in results),
        "longest_ending_s": max(result["ended_s"] for result in results),
        "with_leftovers": sum(bool(result["leftovers"]) for result in results),
        "problems": sum(len(result["problems"]) for result in results),
    }


def _progress(case: Kill, result: Mapping[str, Any]) -> str:
    problems = "; ".join(result["problems"]) or "whole"
    return f"{case.command} killed after {result['at_s']:.1f} s of {case.usual_s:.1f} s: {problems}"


def undisturbed_result(case: Undisturbed) -> dict[str, Any]:
    """Seconds and digest of a run.

    Raises:
        GnnplaceError: the command failed; the message has its last line.
    """
    with temporary_folder() as folder:
        prepare(folder)
        wall_s, failure = _finished(case.command, folder)
        if failure:
            raise GnnplaceError(f"{case.command} fails without being killed: {failure}")
        return {"wall_s": wall_s, "answer": digest(folder, COMMANDS[case.command].same)}


def kill_result(case: Kill) -> dict[str, Any]:
    """Files that a kill of all processes left, and the outcome of the next start; `problems` should be empty."""
    with temporary_folder() as folder:
        prepare(folder)
        at_s = np.random.default_rng([case.seed, zlib.crc32(case.command.encode())]).uniform(0.0, case.usual_s)
        with running(COMMANDS[case.command], folder) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(at_s)
            was_running = process.poll() is None
        ended_s, orphans = _orphans(folder)
        left, problems = leftovers(folder), [f"after the kill: {line}" for line in broken_files(folder)]
        problems += [f"outlived the kill: {line}" for line in orphans]
        restart_s, failure = _finished(case.command, folder)
        problems += [f"the next start failed: {failure}"] if failure else []
        problems += [f"after the next start: {line}" for line in broken_files(folder)]
        problems += [f"still there after the next start: {name}" for name in leftovers(folder)]
        if not failure and digest(folder, COMMANDS[case.command].same) != case.answer:
            problems.append("the answer is another one than without a kill")
        return {
            "at_s": at_s, "was_running": was_running, "ended_s": ended_s, "leftovers": left, "restart_s": restart_s,
            "problems": problems,
        }  # fmt: skip


def _finished(command: str, folder: Path) -> tuple[float, str]:
    """Seconds of a run to its end, and its last line if it failed."""
    begin_s = time.perf_counter()
    with running(COMMANDS[command], folder) as process:
        try:
            code = process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            return _LIMIT_S, f"it took longer than {_LIMIT_S:.0f} s"
    wall_s = time.perf_counter() - begin_s
    lines = (folder / "errors.txt").read_text(encoding="utf-8").strip().splitlines() or [f"exit code {code}"]
    return wall_s, lines[-1] if code else ""


def _orphans(folder: Path) -> tuple[float, list[str]]:
    """Seconds until all processes of a killed run have ended, and the commands of those that did not end in time."""
    begin_s = time.monotonic()
    while True:
        processes = psutil.process_iter(["cmdline", "environ"])
        left = [
            process.info["cmdline"]
            for process in processes
            if (process.info["environ"] or {}).get("TMPDIR") == str(folder / SYSTEM)
        ]
        waited_s = time.monotonic() - begin_s
        if not left or waited_s > _ORPHANS_S:
            return waited_s, [" ".join(command or ()) for command in left]
        time.sleep(0.05)
