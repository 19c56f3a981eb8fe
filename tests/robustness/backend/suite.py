"""Every case of ONNX's test suite for backends that the installed `onnx` package brings, plain and placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.result import BenchResult
from gnnplace.errors import ProcessLost
from tests.robustness.backend.cases import FAMILIES, BackendCase, backend_cases
from tests.robustness.backend.compare import Outcome, compare, plain_outcome
from tests.robustness.backend.isolated import IsolatedProcess

__all__ = ["Outcomes", "Question", "bench_backend", "outcomes_of"]

_LIMIT_S = 120.0
_PROGRESS = 200

Outcomes = Mapping[str, Mapping[str, Any]]
"""The fields of an `Outcome` for `plain` and for `placed`."""


def bench_backend(options: BenchOptions) -> BenchResult:
    """Per family of cases, as they are and with all their values travelling between devices: who passes how many.

    A case travels when a plain session passes it as it is, and counts when one that does not optimise passes it then. Where
    the plain session runs and its outputs are not as expected, those of the parts have to agree with them. The details list
    every case that is not passed, and why.

    Raises:
        GnnplaceError: no case has the name that is asked for.
    """
    cases = chosen({case.name: case for family in FAMILIES for case in backend_cases(family)}, options.only, "case")
    with ExitStack() as stack:
        ask = _pool(stack, options)
        found = dict(zip(cases, ask(cases), strict=True))
        passed = [case.travelling() for case in cases if found[case]["plain"]["verdict"] == "passes"]
        travelled = dict(zip(passed, ask(passed), strict=True))
    rows = [
        _row(family, travels, {case: outcomes for case, outcomes in results.items() if case.family == family})
        for travels, results in ((False, found), (True, travelled))
        for family in FAMILIES
    ]
    both = {**found, **travelled}
    return BenchResult(
        "backend",
        [row for row in rows if row["cases"]],
        {
            key: sum(row[key] for row in rows)
            for key in ("plain_passes", "placed_passes", "agrees", "placed_fails", "breaks")
        },
        options.seed,
        options.arguments,
        details={
            "placed_fails": _listed(both, "placed", _fails),
            "agrees": _listed(both, "placed", _only_agrees),
            "breaks": _listed(both, "placed", lambda outcomes: outcomes["placed"]["verdict"] in ("breaks", "crashes")),
            "plain_does_not_pass": _listed(found, "plain", lambda outcomes: outcomes["plain"]["verdict"] != "passes"),
        },
        columns=("family", "travels", "cases", "plain_loads", "plain_passes", "placed_passes", "placed_fails", "cut"),
    )


@dataclass(frozen=True)
class Question:
    """A case, and whether the parts are run too."""

    case: BackendCase
    seed: int
    placed: bool = True


def _answer(question: Question) -> dict[str, Any]:
    if question.placed:
        return compare(question.case, question.seed)
    return {"plain": asdict(plain_outcome(question.case)[0])}


def _pool(stack: ExitStack, options: BenchOptions) -> Callable[[Sequence[BackendCase]], Iterator[Outcomes]]:
    """Gives the outcomes of cases in their order, from processes that live as long as the stack."""
    free: SimpleQueue[IsolatedProcess[Question, dict[str, Any]]] = SimpleQueue()
    for _ in range(options.jobs):
        free.put(stack.enter_context(IsolatedProcess(_answer, _LIMIT_S)))
    threads = stack.enter_context(ThreadPoolExecutor(options.jobs))

    def outcomes(case: BackendCase) -> Outcomes:
        process = free.get()
        try:
            return outcomes_of(process.ask, case, options.seed)
        finally:
            free.put(process)

    def ask(cases: Sequence[BackendCase]) -> Iterator[Outcomes]:
        for number, found in enumerate(threads.map(outcomes, cases), start=1):
            if options.on_progress is not None and (number % _PROGRESS == 0 or number == len(cases)):
                options.on_progress(f"{number} of {len(cases)} cases{', travelling' * cases[0].travels}")
            yield found

    return ask


def outcomes_of(ask: Callable[[Question], Outcomes], case: BackendCase, seed: int) -> Outcomes:
    """Of a case that a process is asked for; when that is lost, a second try without placing tells whose fault it is."""
    try:
        return ask(Question(case, seed))
    except ProcessLost as lost:
        crashed = asdict(Outcome("crashes", str(lost)))
    try:
        return {**ask(Question(case, seed, placed=False)), "placed": crashed}
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
    """Verdict and reason of the wanted cases, by name."""
    return {
        case.name: f"{outcomes[side]['verdict']}: {outcomes[side]['reason']}"
        for case, outcomes in found.items()
        if wanted(outcomes)
    }
