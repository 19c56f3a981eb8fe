"""One kill, and the next start with the same arguments."""

from __future__ import annotations

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

from gnnplace.errors import GnnplaceError
from gnnplace.files import temporary_folder
from tests.robustness.interrupted.commands import COMMANDS, SYSTEM, prepared, running
from tests.robustness.interrupted.whole import broken_files, digest, leftovers

__all__ = ["Kill", "Undisturbed", "kill_result", "undisturbed_result"]

_LIMIT_S = 200.0
_ORPHANS_S = 10.0


@dataclass(frozen=True)
class Undisturbed:
    """A run to its end."""

    command: str


@dataclass(frozen=True)
class Kill:
    """A run that is killed once."""

    command: str
    seed: int
    """Of the moment."""
    usual_s: float
    """Of an undisturbed run: the moment is uniform in these."""
    answer: str
    """The digest of its files."""


def undisturbed_result(case: Undisturbed) -> dict[str, Any]:
    """Seconds and digest of a run.

    Raises:
        GnnplaceError: it failed; the message is its last line.
    """
    with temporary_folder() as folder:
        prepared(folder)
        wall_s, failure = _finished(case.command, folder)
        if failure:
            raise GnnplaceError(f"{case.command} fails without being killed: {failure}")
        return {"wall_s": wall_s, "answer": digest(folder, COMMANDS[case.command].same)}


def kill_result(case: Kill) -> dict[str, Any]:
    """What was left by a kill of all its processes, and what the next start made of it; `problems` are what must not be."""
    with temporary_folder() as folder:
        prepared(folder)
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
    """Seconds of a run to its end, and the last line that it said if it failed."""
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
    """Seconds until no process of a killed run is left, and those that did not end within a while."""
    begin_s = time.monotonic()
    while True:
        left = [
            process for process in psutil.process_iter() if _environment(process).get("TMPDIR") == str(folder / SYSTEM)
        ]
        waited_s = time.monotonic() - begin_s
        if not left or waited_s > _ORPHANS_S:
            return waited_s, [" ".join(process.cmdline()) for process in left]
        time.sleep(0.05)


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return dict(process.environ())
    except psutil.Error:
        return {}
