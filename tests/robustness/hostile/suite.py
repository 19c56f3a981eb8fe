"""`make bench-hostile`: outcomes of hundreds of thousands of damaged and harmful files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from gnnplace.bench.harness import BenchOptions, BenchResult, matching, run_cases
from gnnplace.errors import GnnplaceError, MissingDependency
from tests.robustness.hostile.inputs import ACCEPTED, REFUSED, Case
from tests.robustness.hostile.targets import TARGETS
from tests.robustness.hostile.watch import merged, watched

__all__ = ["SOURCES", "bench_hostile"]

SOURCES = ("chance", "guided")
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
    cases = [case for name in names for source in sources for case in _cases(name, source, options)]
    findings = None if options.cases_file is None else options.cases_file.with_suffix(".findings")
    found = run_cases(cases, partial(watched, findings=findings), options, _progress)
    rows = []
    for name in names:
        for source in sources:
            mine = {case: result for case, result in found.items() if (case.target, case.source) == (name, source)}
            rows.append({"files": name, "source": source, **merged(mine)})
    summary = {
        **{key: sum(row[key] for row in rows) for key in ("inputs", ACCEPTED, REFUSED)},
        "findings": sum(sum(row["findings"].values()) for row in rows),
        **{key: max((row[key] for row in rows), default=0) for key in ("worst_s", "peak_bytes")},
    }
    return BenchResult("hostile", options, rows, summary)


def _cases(target: str, source: str, options: BenchOptions) -> list[Case]:
    inputs = options.evaluations or TARGETS[target].inputs
    count = inputs if source == SOURCES[0] else -(-inputs // _GUIDED_SHARE)
    return [Case(target, source, options.seed, first, min(_BATCH, count - first)) for first in range(0, count, _BATCH)]


def _progress(case: Case, result: Mapping[str, Any]) -> str:
    findings = "; ".join(result["findings"]) or "no findings"
    counts = f"{result[ACCEPTED]:,} accepted, {result[REFUSED]:,} refused, {findings}"
    return f"{case.target} by {case.source} from {case.first:,}: {counts}"
