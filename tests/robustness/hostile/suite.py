"""`make bench-hostile`: hundreds of thousands of damaged and harmful files, read in isolated processes.

A crash, a hang or a lack of memory is a finding, as is every error that is not a `GnnplaceError` of one line.
"""

import hashlib
import itertools
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gnnplace.bench.harness import BenchOptions, BenchResult, matching, run_cases
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.isolated_process import IsolatedProcess, ProcessEnded
from tests.robustness.hostile.inputs import ACCEPTED, REFUSED, Case, Outcome, reader
from tests.robustness.hostile.room import Files, read_files, write_files
from tests.robustness.hostile.targets import TARGETS

SOURCES = ("chance", "guided")
MOST_S = 10.0
"""Limit for reading one input."""
_BEGIN_S = 180.0
"""Limit for loading libraries and compiling code."""
_BATCH = 2_500
_GUIDED_SHARE = 10
"""Random inputs per guided input, as coverage takes time."""


def bench_hostile(options: BenchOptions) -> BenchResult:
    """A row per kind of file: inputs that were accepted, refused, or neither, which is a finding.

    `evaluations` is the number of inputs of each kind; the files of findings are stored beside the result.

    Raises:
        GnnplaceError: no kind of file or source of inputs has the requested name.
        MissingDependency: inputs are to be guided, and atheris is not installed.
    """
    names = matching({name: name for name in TARGETS}, options.only, "kind of file")
    unknown = set(options.rows) - set(SOURCES)
    if unknown:
        raise GnnplaceError(f"no source of inputs is called {min(unknown)!r}; known are {', '.join(SOURCES)}")
    sources = options.rows or SOURCES[:1]
    if "guided" in sources and find_spec("atheris") is None:
        raise MissingDependency("guided inputs need atheris; install gnnplace[fuzz], or leave --rows out")
    cases = {kind: _cases(*kind, options) for kind in itertools.product(names, sources)}
    findings = None if options.cases_file is None else options.cases_file.with_suffix(".findings")
    found = run_cases(list(itertools.chain(*cases.values())), partial(watched, findings=findings), options, _progress)
    rows = [
        {"files": name, "source": source, **_total([found[case] for case in own])}
        for (name, source), own in cases.items()
    ]
    total = _total(rows)
    return BenchResult("hostile", options, rows, {**total, "findings": sum(total["findings"].values())})


def _cases(target: str, source: str, options: BenchOptions) -> list[Case]:
    inputs = options.evaluations or TARGETS[target].inputs
    count = inputs if source == SOURCES[0] else -(-inputs // _GUIDED_SHARE)
    return [Case(target, source, options.seed, first, min(_BATCH, count - first)) for first in range(0, count, _BATCH)]


def _total(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums and maxima over results, and findings by verdict."""
    findings: Counter[str] = Counter()
    for result in results:
        findings.update(result["findings"])
    return {
        **{key: sum(result[key] for result in results) for key in ("inputs", ACCEPTED, REFUSED)},
        "findings": dict(findings),
        **{key: max((result[key] for result in results), default=0) for key in ("worst_s", "peak_bytes")},
    }


def _progress(case: Case, result: Mapping[str, Any]) -> str:
    findings = "; ".join(result["findings"]) or "no findings"
    counts = f"{result[ACCEPTED]:,} accepted, {result[REFUSED]:,} refused, {findings}"
    return f"{case.target} by {case.source} from {case.first:,}: {counts}"


def watched(case: Case, findings: Path | None = None) -> dict[str, Any]:
    """Counts of accepted and refused inputs, findings by verdict, longest time and peak memory.

    `findings` receives the files of findings.

    Raises:
        GnnplaceError: the valid files cannot be made or read.
    """
    result: dict[str, Any] = {
        "inputs": case.count, ACCEPTED: 0, REFUSED: 0, "findings": {}, "worst_s": 0.0, "peak_bytes": 0,
    }  # fmt: skip
    rest = case
    while rest.count:
        done = _one_process(rest, result, findings)
        rest = replace(rest, first=rest.first + done, count=rest.count - done)
    return result


def _one_process(case: Case, result: dict[str, Any], findings: Path | None, only: Files | None = None) -> int:
    """Reads inputs in one process until its end; returns their number.

    An input that takes too long is read once more, alone, in a new process, as machines stand still at times.
    """
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
                    outcome: Outcome = process.call(None, MOST_S)
                except ProcessEnded as end:
                    files = read_files(room / "input")
                    if end.cause == "time" and only is None:
                        late = replace(case, first=case.first + done, count=1)
                        return done + _one_process(late, result, findings, files)
                    verdict = f"took over {MOST_S:.0f} s" if end.cause == "time" else str(end)
                    _keep(case, result, findings, verdict, files)
                    return done + 1
                result["worst_s"] = max(result["worst_s"], outcome.took_s)
                result["peak_bytes"] = max(result["peak_bytes"], outcome.peak_bytes)
                if outcome.verdict in {ACCEPTED, REFUSED}:
                    result[outcome.verdict] += 1
                else:
                    _keep(case, result, findings, outcome.verdict, outcome.files or {})
    return case.count


def _keep(case: Case, result: dict[str, Any], findings: Path | None, verdict: str, files: Files) -> None:
    """Counts a finding, and stores the files of the first of its kind."""
    known: dict[str, int] = result["findings"]
    kind = verdict.partition(": ")[0]
    like = next((text for text in known if text.partition(": ")[0] == kind), None)
    known[like or verdict] = known.get(like or verdict, 0) + 1
    if like is None and findings is not None:
        name = re.sub(r"\W+", "-", kind)[:60]
        target = findings / f"{case.target}-{name}-{hashlib.sha256(kind.encode()).hexdigest()[:6]}"
        shutil.rmtree(target, ignore_errors=True)
        write_files({**files, "verdict.txt": f"{case}\n{verdict}\n".encode()}, target)
