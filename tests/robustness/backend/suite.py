"""`make bench-backend`: every case of ONNX's backend test suite, plain and placed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any

from gnnplace.bench.harness import BenchOptions, BenchResult, matching
from gnnplace.errors import ProcessLost
from gnnplace.isolated_process import IsolatedProcess
from tests.robustness.backend.cases import FAMILIES, BackendCase, backend_cases
from tests.robustness.backend.compare import Outcome, compare

_LIMIT_S = 120.0
_PROGRESS = 200
_SUMMED = ("plain_passes", "placed_passes", "agrees", "placed_fails", "breaks")

Outcomes = Mapping[str, Mapping[str, Any]]
"""Fields of the outcomes of `plain` and `placed`."""
Request = tuple[BackendCase, int, bool]
"""Case, seed, and whether its parts run too: arguments of `compare`."""


def bench_backend(options: BenchOptions) -> BenchResult:
    """A row per family of cases, and one for the cases that a plain session passes, with all values travelling between devices.

    Where outputs of the plain session are unexpected, those of the parts have to equal them. The details list every case
    that does not pass, with the reason.

    Raises:
        GnnplaceError: no case has the requested name.
    """
    cases = matching({case.name: case for family in FAMILIES for case in backend_cases(family)}, options.only, "case")
    with ExitStack() as stack:
        run_all = _pool(stack, options)
        found = dict(zip(cases, run_all(cases), strict=True))
        passed = [case.travelling() for case in cases if found[case]["plain"]["verdict"] == "passes"]
        travelled = dict(zip(passed, run_all(passed), strict=True))
    rows = [
        _row(family, travels, {case: outcomes for case, outcomes in results.items() if case.family == family})
        for travels, results in ((False, found), (True, travelled))
        for family in FAMILIES
    ]
    both = {**found, **travelled}
    return BenchResult(
        "backend",
        options,
        [row for row in rows if row["cases"]],
        {key: sum(row[key] for row in rows) for key in _SUMMED},
        details={
            "placed_fails": _listed(both, "placed", _fails),
            "agrees": _listed(both, "placed", _only_agrees),
            "breaks": _listed(both, "placed", lambda outcomes: outcomes["placed"]["verdict"] in ("breaks", "crashes")),
            "plain_does_not_pass": _listed(found, "plain", lambda outcomes: outcomes["plain"]["verdict"] != "passes"),
        },
        columns=("family", "travels", "cases", "plain_loads", "plain_passes", "placed_passes", "placed_fails", "cut"),
    )


def _answering() -> Callable[[Request], dict[str, Any]]:
    return lambda request: compare(*request)


def _pool(stack: ExitStack, options: BenchOptions) -> Callable[[Sequence[BackendCase]], Iterator[Outcomes]]:
    """A function that runs cases in the stack's processes and yields their outcomes in order."""
    free: SimpleQueue[IsolatedProcess[Request, dict[str, Any]]] = SimpleQueue()
    for _ in range(options.jobs):
        free.put(stack.enter_context(IsolatedProcess(_answering)))
    threads = stack.enter_context(ThreadPoolExecutor(options.jobs))

    def outcomes(case: BackendCase) -> Outcomes:
        process = free.get()
        try:
            return outcomes_of(partial(process.call, limit_s=_LIMIT_S), case, options.seed)
        finally:
            free.put(process)

    def run_all(cases: Sequence[BackendCase]) -> Iterator[Outcomes]:
        for number, found in enumerate(threads.map(outcomes, cases), start=1):
            if number % _PROGRESS == 0 or number == len(cases):
                options.on_progress(f"{number} of {len(cases)} cases{', travelling' * cases[0].travels}")
            yield found

    return run_all


def outcomes_of(run: Callable[[Request], Outcomes], case: BackendCase, seed: int) -> Outcomes:
    """Outcomes of a case; after a crash, a second run without the parts shows which of the two crashes."""
    try:
        return run((case, seed, True))
    except ProcessLost as lost:
        crashed = asdict(Outcome("crashes", str(lost)))
    try:
        return {**run((case, seed, False)), "placed": crashed}
    except ProcessLost:
        return {"plain": crashed, "placed": asdict(Outcome("refuses", "not tried, as the plain session crashes"))}


def _row(family: str, travels: bool, found: Mapping[BackendCase, Outcomes]) -> dict[str, Any]:
    plain = Counter(outcomes["plain"]["verdict"] for outcomes in found.values())
    passed = [outcomes["placed"] for outcomes in found.values() if outcomes["plain"]["verdict"] == "passes"]
    placed = Counter(outcome["verdict"] for outcome in passed)
    return {
        "family": family,
        "travels": travels,
        "cases": len(found),
        "plain_loads": len(found) - plain["refuses"],
        "plain_passes": plain["passes"],
        "placed_passes": placed["passes"],
        "agrees": placed["agrees"],
        "placed_fails": sum(map(_fails, found.values())),
        "cut": sum(outcome["segments"] > 1 for outcome in passed),
        "several_ops": sum(len(case.op_types) > 1 for case in found),
        "breaks": sum(outcomes["placed"]["verdict"] in ("breaks", "crashes") for outcomes in found.values()),
    }


def _fails(outcomes: Outcomes) -> bool:
    ran = outcomes["plain"]["verdict"] in ("passes", "differs")
    return ran and outcomes["placed"]["verdict"] not in ("passes", "agrees")


def _only_agrees(outcomes: Outcomes) -> bool:
    return (outcomes["plain"]["verdict"], outcomes["placed"]["verdict"]) == ("passes", "agrees")


def _listed(found: Mapping[BackendCase, Outcomes], side: str, wanted: Callable[[Outcomes], bool]) -> dict[str, str]:
    """Verdict and reason of the cases that `wanted` selects, by name."""
    return {
        case.name: f"{outcomes[side]['verdict']}: {outcomes[side]['reason']}"
        for case, outcomes in found.items()
        if wanted(outcomes)
    }
