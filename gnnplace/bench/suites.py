"""The suites by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gnnplace.bench.conformance.suite import bench_backend
from gnnplace.bench.engine import bench_engine
from gnnplace.bench.execution import bench_equality, bench_execution
from gnnplace.bench.fidelity.suite import bench_fidelity
from gnnplace.bench.generalization.suite import bench_generalization
from gnnplace.bench.hostile.suite import bench_hostile
from gnnplace.bench.interrupted.suite import bench_interrupted
from gnnplace.bench.measured.suite import bench_measured
from gnnplace.bench.options import BenchOptions
from gnnplace.bench.papers.seeds import bench_seeds
from gnnplace.bench.papers.spotlight import bench_spotlight
from gnnplace.bench.planners import bench_planners
from gnnplace.bench.report import bench_report
from gnnplace.bench.result import BenchResult
from gnnplace.bench.zoo import bench_zoo
from gnnplace.errors import GnnplaceError

__all__ = ["SUITES", "Suite", "run_suite"]


@dataclass(frozen=True)
class Suite:
    """A comparison by name."""

    run: Callable[[BenchOptions], BenchResult]
    takes: tuple[str, ...] = ()
    """Options besides the seed."""


_TABLES = ("--evaluations", "--seeds", "--only", "--rows", "--jobs", "--extend")
SUITES: Mapping[str, Suite] = {
    "engine": Suite(lambda options: bench_engine(options.seed)),
    "planners": Suite(lambda options: bench_planners(options.seed)),
    "equality": Suite(lambda options: bench_equality(options.seed)),
    "execution": Suite(bench_execution, ("--only",)),
    "backend": Suite(bench_backend, ("--only", "--jobs")),
    "zoo": Suite(bench_zoo, ("--jobs",)),
    "seeds": Suite(bench_seeds, _TABLES),
    "spotlight": Suite(bench_spotlight, _TABLES),
    "generalization": Suite(bench_generalization, ("--seeds", "--only", "--rows", "--policy", "--jobs", "--extend")),
    "fidelity": Suite(bench_fidelity, ("--only",)),
    "interrupted": Suite(bench_interrupted, ("--seeds", "--only", "--jobs")),
    "measured": Suite(bench_measured, ("--evaluations", "--seeds", "--only", "--rows")),
    "report": Suite(bench_report),
    "hostile": Suite(bench_hostile, ("--evaluations", "--only", "--rows", "--jobs")),
}


def run_suite(name: str, options: BenchOptions) -> BenchResult:
    """The result of a suite.

    Raises:
        GnnplaceError: there is no such suite, or it does not take the options.
    """
    if name not in SUITES:
        raise GnnplaceError(f"there is no bench suite {name!r}; known are {', '.join(SUITES)}")
    suite = SUITES[name]
    given = (*options.arguments, *(("--extend",) if options.extend is not None else ()))
    refused = [text for text in given if text.startswith("--") and text not in suite.takes]
    if refused:
        takers = ", ".join(known for known, other in SUITES.items() if refused[0] in other.takes)
        raise GnnplaceError(f"bench {name}: takes no {refused[0]}; only {takers} do")
    return suite.run(options)
