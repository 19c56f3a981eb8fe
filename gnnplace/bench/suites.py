"""The suites by name: a new one is one file and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gnnplace.bench.options import BenchOptions
from gnnplace.errors import GnnplaceError, did_you_mean

if TYPE_CHECKING:
    from gnnplace.bench.result import BenchResult

__all__ = ["SUITES", "Suite", "run_suite"]


@dataclass(frozen=True)
class Suite:
    """A comparison by name; its module is imported when it runs."""

    module: str
    """Below `gnnplace.bench`; has a function `bench_NAME(options) -> BenchResult`."""
    description: str
    takes: tuple[str, ...] = ()
    """Options besides the seed."""

    @property
    def has_page(self) -> bool:
        """`gnnplace report` draws its result."""
        return self.module.startswith(("papers", "generalization", "measured", "fidelity"))


_TABLES = ("--evaluations", "--seeds", "--only", "--rows", "--jobs", "--extend", "--ray")
SUITES: Mapping[str, Suite] = {
    "engine": Suite("engine", "nanoseconds per op of the simulator"),
    "planners": Suite("planners", "planners on light models, simulated, at the same evaluations"),
    "equality": Suite("execution", "outputs of placed runs against one plain session"),
    "execution": Suite("execution", "speed-ups on two cores, executed", ("--only",)),
    "zoo": Suite("zoo", "every recipe built, compared with torch, cut and run", ("--jobs",)),
    "seeds": Suite("papers.seeds", "the papers' tables with every method", _TABLES),
    "spotlight": Suite("papers.spotlight", "proximal policy optimisation against policy gradient", _TABLES),
    "generalization": Suite(
        "generalization.suite",
        "graphs and devices that no training has seen",
        ("--seeds", "--only", "--rows", "--policy", "--jobs", "--extend", "--ray"),
    ),
    "fidelity": Suite("fidelity.suite", "simulated against measured seconds", ("--only",)),
    "measured": Suite(
        "measured.suite", "searches by execution on two cores", ("--evaluations", "--seeds", "--only", "--rows")
    ),
    "scale": Suite("scale.suite", "time, memory and quality at 1,000 to 200,000 ops", ("--only",)),
    "ray": Suite("scaling.suite", "one host and two of a Ray cluster, and what follows for 1,000"),
    "report": Suite("report", "size and loading time of reports, in a browser"),
}


def run_suite(name: str, options: BenchOptions) -> BenchResult:
    """The result of a suite.

    Raises:
        GnnplaceError: there is no such suite, or it does not take the options.
    """
    if name not in SUITES:
        hint = did_you_mean(name, SUITES, f"known are {', '.join(SUITES)}")
        raise GnnplaceError(f"there is no bench suite {name!r}; {hint}")
    suite = SUITES[name]
    given = (*options.arguments, *(("--extend",) if options.extend is not None else ()))
    refused = [text for text in given if text.startswith("--") and text not in suite.takes]
    if refused:
        takers = ", ".join(known for known, other in SUITES.items() if refused[0] in other.takes)
        raise GnnplaceError(f"bench {name}: takes no {refused[0]}; only {takers} do")
    module = importlib.import_module(f"gnnplace.bench.{suite.module}")
    return cast("BenchResult", getattr(module, f"bench_{name}")(options))
