"""The suites by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gnnplace.bench.engine import bench_engine
from gnnplace.bench.execution import bench_equality, bench_execution
from gnnplace.bench.planners import bench_planners
from gnnplace.bench.result import BenchResult
from gnnplace.bench.zoo import bench_zoo
from gnnplace.errors import GnnplaceError

__all__ = ["SUITES", "run_suite"]

SUITES: Mapping[str, Callable[[int], BenchResult]] = {
    "engine": bench_engine,
    "planners": bench_planners,
    "equality": bench_equality,
    "execution": bench_execution,
    "zoo": bench_zoo,
}


def run_suite(name: str, seed: int) -> BenchResult:
    """The result of a suite.

    Raises:
        GnnplaceError: there is no such suite.
    """
    if name not in SUITES:
        raise GnnplaceError(f"there is no bench suite {name!r}; known are {', '.join(SUITES)}")
    return SUITES[name](seed)
