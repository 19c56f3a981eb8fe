"""`make bench-hostile`: hundreds of thousands of damaged and harmful files, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from gnnplace.errors import GnnplaceError, MissingDependency
from tests.robustness.hostile.inputs import ACCEPTED, REFUSED, Case
from tests.robustness.hostile.targets import TARGETS
from tests.robustness.hostile.watch import merged, watched

__all__ = ["SOURCES", "bench_hostile"]

SOURCES = ("chance", "guided")
_BATCH = 2_500
_GUIDED_SHARE = 10
"""Of as many inputs as by chance, one in so many is guided besides: coverage takes time."""


def bench_hostile(options: BenchOptions) -> BenchResult:
    """A line per kind of file: how many inputs were accepted and refused, and what else happened, which should be nothing.

    `evaluations` are the inputs of each kind; files that something else happened with are kept beside the result.

    Raises:
        GnnplaceError: no kind or source of inputs has the name that is asked for.
        MissingDependency: inputs are to be guided, and atheris is not installed.
    """
    names = chosen({name: name for name in TARGETS}, options.only, "kind of file")
    unknown = set(options.rows) - set(SOURCES)
    if unknown:
        raise GnnplaceError(f"no source of inputs is called {min(unknown)!r}; known are {', '.join(SOURCES)}")
    sources = options.rows or SOURCES[:1]
    if "guided" in sources and find_spec("atheris") is None:
        raise MissingDependency("guided inputs need atheris; install gnnplace[fuzz], or leave --rows out")
    cases = [case for name in names for source in sources for case in _cases(name, source, options)]
    findings = None if options.kept is None else options.kept.with_suffix(".findings")
    run = partial(watched, findings=findings)
    found = run_resumable(cases, run, Case, options.jobs, options.kept, partial(_report, options))
    lines = [_line(name, source, found) for name in names for source in sources]
    return BenchResult("hostile", lines, _totals(lines), options.seed, options.arguments)


def _cases(target: str, source: str, options: BenchOptions) -> list[Case]:
    inputs = options.evaluations or TARGETS[target].inputs
    count = inputs if source == SOURCES[0] else -(-inputs // _GUIDED_SHARE)
    return [Case(target, source, options.seed, first, min(_BATCH, count - first)) for first in range(0, count, _BATCH)]


def _line(target: str, source: str, found: Mapping[Case, Mapping[str, Any]]) -> dict[str, Any]:
    mine = {case: result for case, result in found.items() if (case.target, case.source) == (target, source)}
    return {"files": target, "source": source, **merged(mine)}


def _totals(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **{key: sum(line[key] for line in lines) for key in ("inputs", ACCEPTED, REFUSED)},
        "findings": sum(sum(line["findings"].values()) for line in lines),
        **{key: max((line[key] for line in lines), default=0) for key in ("worst_s", "peak_bytes")},
    }


def _report(options: BenchOptions, case: Case, result: Mapping[str, Any]) -> None:
    if options.on_progress is not None:
        told = "; ".join(result["findings"]) or "nothing else"
        options.on_progress(
            f"{case.target} by {case.source} from {case.first:,}: {result[ACCEPTED]:,} accepted, {result[REFUSED]:,} refused, {told}"
        )
