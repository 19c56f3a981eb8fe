"""Catalog of the suites by name: a new suite is one module and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gnnplace.errors import GnnplaceError, did_you_mean

if TYPE_CHECKING:
    from gnnplace.bench.harness import BenchOptions, BenchResult


@dataclass(frozen=True)
class Suite:
    """A comparison; its module is imported when it runs."""

    module: str
    """Module with a function `bench_NAME(options) -> BenchResult`; unknown names in its options raise `GnnplaceError`."""
    description: str
    options: tuple[str, ...] = ()
    """Options of the command line besides the seed."""
    has_page: bool = False
    """Whether `gnnplace report` draws the result."""


_TABLES = ("--evaluations", "--seeds", "--only", "--rows", "--jobs", "--extend", "--ray")
_HELD_OUT = ("--seeds", "--only", "--rows", "--policy", "--jobs", "--extend", "--ray")
_LADDER = ("--seeds", "--only", "--rows", "--policy", "--jobs", "--ray")
_MEASURED = ("--evaluations", "--seeds", "--only", "--rows")
SUITES: Mapping[str, Suite] = {
    "engine": Suite("gnnplace.bench.engine", "nanoseconds per op of the simulator"),
    "planners": Suite("gnnplace.bench.planners", "planners on light models, simulated, at the same evaluations"),
    "equality": Suite("gnnplace.bench.execution", "outputs of placed runs against one plain session"),
    "execution": Suite("gnnplace.bench.execution", "speed-ups on two cores, executed", ("--only", "--rows")),
    "sets": Suite("gnnplace.bench.core_sets", "sets of cores of every size, plain and placed, executed", ("--only",)),
    "gpu": Suite("gnnplace.bench.gpu", "placed models on a GPU: outputs, overheads and hand-overs", ("--only",)),
    "zoo": Suite("gnnplace.bench.zoo", "every recipe built, compared with torch, cut and run", ("--jobs",)),
    "seeds": Suite("gnnplace.bench.papers.suites", "the papers' tables with every method", _TABLES, True),
    "spotlight": Suite(
        "gnnplace.bench.papers.suites", "proximal policy optimisation against policy gradient", _TABLES, True
    ),
    "generalization": Suite(
        "gnnplace.bench.generalization.suite", "graphs and devices that no training has seen", _HELD_OUT, True
    ),
    "ladder": Suite("gnnplace.bench.ladder.suite", "what learning adds, from one evaluation to ten seconds", _LADDER),
    "servers": Suite("gnnplace.bench.ladder.suite", "the same on wide graphs over several servers", _LADDER),
    "sealed": Suite(
        "gnnplace.bench.ladder.suite", "the same on cases that nobody has looked at; run it once, at the end", _LADDER
    ),
    "encoder": Suite(
        "gnnplace.bench.ladder.encoder",
        "policies with and without messages between units, alone and in the search",
        ("--seeds", "--only", "--rows", "--policy", "--jobs", "--ray"),
    ),
    "fidelity": Suite("gnnplace.bench.fidelity", "simulated against measured seconds", ("--only", "--rows"), True),
    "measured": Suite("gnnplace.bench.measured", "searches by execution on two cores", _MEASURED, True),
    "pairs": Suite("gnnplace.bench.pairs", "paired measurements of known differences", ("--only", "--seeds", "--rows")),
    "training": Suite("gnnplace.bench.training", "policies that learn from executed runtime", ("--only", "--seeds")),
    "providers": Suite(
        "gnnplace.bench.providers",
        "ONNX Runtime's kernels and OpenVINO side by side, executed",
        ("--evaluations", "--only"),
    ),
    "records": Suite(
        "gnnplace.bench.records.suite",
        "the best known placements: checked, searched, or taken from a file",
        ("--seeds", "--only", "--rows", "--jobs", "--extend", "--ray"),
    ),
    "scaling": Suite("gnnplace.bench.scaling", "kernels with one thread and with two, by op type", ("--only",)),
    "cores": Suite(
        "gnnplace.bench.cores", "one core, several or all for each op, simulated", ("--evaluations", "--only")
    ),
    "scale": Suite("gnnplace.bench.scale", "time, memory and quality at 1,000 to 200,000 ops", ("--only",)),
    "ray": Suite("gnnplace.distributed.bench.suite", "one host and two of a Ray cluster, and what follows for 1,000"),
    "report": Suite("gnnplace.bench.report", "size and loading time of reports, in a browser"),
}


def takers(option: str) -> str:
    """Names of the suites that take an option of the command line, separated by commas.

    >>> takers("--policy")
    'generalization, ladder, servers, sealed, encoder'
    """
    return ", ".join(name for name, suite in SUITES.items() if option in suite.options)


def run_suite(name: str, options: BenchOptions) -> BenchResult:
    """The result of a suite.

    Raises:
        GnnplaceError: the suite does not exist, or does not take one of the options.
    """
    if name not in SUITES:
        hint = did_you_mean(name, SUITES, f"known are {', '.join(SUITES)}")
        raise GnnplaceError(f"there is no bench suite {name!r}; {hint}")
    suite = SUITES[name]
    refused = [text for text in options.arguments if text.startswith("--") and text not in suite.options]
    if refused:
        raise GnnplaceError(f"bench {name}: takes no {refused[0]}; only {takers(refused[0])} do")
    module = importlib.import_module(suite.module)
    return cast("BenchResult", getattr(module, f"bench_{name}")(options))
