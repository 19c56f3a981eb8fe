"""Reads inputs in isolated processes: a crash, a hang or a lack of memory is a finding."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.errors import GnnplaceError
from gnnplace.isolated_process import IsolatedProcess, ProcessEnded
from tests.robustness.hostile.inputs import ACCEPTED, REFUSED, Case, Outcome, reader
from tests.robustness.hostile.room import Files, read_files, write_files

__all__ = ["MOST_S", "merged", "watched"]

MOST_S = 10.0
"""Limit for reading one input."""
_BEGIN_S = 180.0
"""Limit for loading libraries and compiling code."""


def watched(case: Case, findings: Path | None = None) -> dict[str, Any]:
    """Counts of accepted and refused inputs, findings by verdict, longest time and peak memory; `findings` receives the files.

    Raises:
        GnnplaceError: the valid files cannot be made or read.
    """
    result: dict[str, Any] = {ACCEPTED: 0, REFUSED: 0, "findings": {}, "worst_s": 0.0, "peak_bytes": 0}
    rest = case
    while rest.count:
        done = _one_process(rest, result, findings)
        rest = replace(rest, first=rest.first + done, count=rest.count - done)
    return result


def _one_process(case: Case, result: dict[str, Any], findings: Path | None, only: Files | None = None) -> int:
    """Reads inputs in one process until its end; returns their number.

    An input that takes too long is read once more, alone, in a new process, as machines stand still at times.
    """
    keep = partial(_keep, case, result, findings)
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        room = Path(scratch) / "room"
        room.mkdir()
        with IsolatedProcess(partial(reader, case, room, only)) as process:
            try:
                process.start(_BEGIN_S)
            except ProcessEnded as end:
                raise GnnplaceError(f"no file of the kind {case.target!r} can be read: {end}") from end
            for done in range(case.count):
                try:
                    _count(process.call(None, MOST_S), result, keep)
                except ProcessEnded as end:
                    if end.cause == "time" and only is None:
                        late = replace(case, first=case.first + done, count=1)
                        return done + _one_process(late, result, findings, read_files(room / "input"))
                    keep(f"took over {MOST_S:.0f} s" if end.cause == "time" else str(end), room / "input")
                    return done + 1
    return case.count


def _count(outcome: Outcome, result: dict[str, Any], keep: partial[None]) -> None:
    result["worst_s"] = max(result["worst_s"], outcome.took_s)
    result["peak_bytes"] = max(result["peak_bytes"], outcome.peak_bytes)
    if outcome.verdict in {ACCEPTED, REFUSED}:
        result[outcome.verdict] += 1
    else:
        keep(outcome.verdict, outcome.files or {})


def _keep(case: Case, result: dict[str, Any], findings: Path | None, verdict: str, files: Path | Files) -> None:
    """Counts a finding; for the first of its kind stores the files, which are a folder or contents by name."""
    known: dict[str, int] = result["findings"]
    kind = verdict.partition(": ")[0]
    like = next((text for text in known if text.partition(": ")[0] == kind), None)
    if like is not None:
        known[like] += 1
        return
    known[verdict] = 1
    if findings is not None:
        name = re.sub(r"\W+", "-", kind)[:60]
        target = findings / f"{case.target}-{name}-{hashlib.sha256(kind.encode()).hexdigest()[:6]}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        if not isinstance(files, Path):
            write_files(files, target)
        elif files.is_dir():
            shutil.copytree(files, target, symlinks=True, dirs_exist_ok=True)
        (target / "verdict.txt").write_text(f"{case}\n{verdict}\n", encoding="utf-8")


def merged(results: Mapping[Case, Mapping[str, Any]]) -> dict[str, Any]:
    """Sums the counts of several cases."""
    total: dict[str, Any] = {"inputs": 0, ACCEPTED: 0, REFUSED: 0, "findings": {}, "worst_s": 0.0, "peak_bytes": 0}
    for case, result in results.items():
        total["inputs"] += case.count
        for key in (ACCEPTED, REFUSED):
            total[key] += result[key]
        for key in ("worst_s", "peak_bytes"):
            total[key] = max(total[key], result[key])
        for verdict, count in result["findings"].items():
            total["findings"][verdict] = total["findings"].get(verdict, 0) + count
    return total
