"""Runs of planners on a problem: one after the other here, or side by side on the hosts of a cluster."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload
from gnnplace.cost.cost_model import CostModel
from gnnplace.devices.topology import Topology
from gnnplace.difference import Difference
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Evaluation, Evaluator
from gnnplace.measuring.comparison import Comparison
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget, Planner, Solution
from gnnplace.run_record import MeasuredSearch, PlannerRow, finite

if TYPE_CHECKING:
    from gnnplace.training.process_group import StartGroup

LEARNED = "gnn"
"""The planner that can start from a trained policy."""

T = TypeVar("T")


def chosen_planner(name: str, policy: str | Path | None = None) -> Planner:
    """The planner of a name; `policy` replaces the shipped policy of the learned planner, by name or file.

    Raises:
        GnnplaceError: no planner has this name, or it takes no policy.
        InvalidPolicy: the policy file cannot be used.
    """
    if policy is None:
        return load_planner(name)
    if name != LEARNED:
        raise GnnplaceError(f"planner {name!r} takes no policy; leave policy out or choose {LEARNED!r}")
    from gnnplace.planners.gnn.planner import GnnConfig, plan
    from gnnplace.policy.checkpoint import named_policy

    named_policy(policy)  # one that cannot be used is an error before any work
    return partial(plan, config=GnnConfig(policy=policy))


@dataclass(frozen=True, eq=False)
class Run:
    """A planner with its budget, and an evaluator in place of the setup's simulator."""

    name: str
    planner: Planner
    budget: Budget
    evaluator: Evaluator | None = None


@dataclass(frozen=True, eq=False)
class Attempt:
    """The answer of one planner, or the error that ended it."""

    planner: str
    wall_s: float
    outcome: tuple[Solution, Placement, Evaluation] | GnnplaceError
    """The solution, its placement of every op, and the simulated cost of that; else the error."""

    def row(self, setup: ProblemSetup) -> PlannerRow:
        """The row of a comparison."""
        if isinstance(self.outcome, GnnplaceError):
            return {
                "planner": self.planner, "makespan_s": None, "gap": None, "evaluations": 0, "wall_s": self.wall_s,
                "feasible": False, "error": str(self.outcome),
            }  # fmt: skip
        solution, _, evaluation = self.outcome
        row: PlannerRow = {
            "planner": self.planner, "makespan_s": finite(evaluation.makespan_s), "gap": setup.gap(solution, evaluation),
            "evaluations": solution.evaluations, "wall_s": self.wall_s, "feasible": evaluation.feasible, "error": None,
        }  # fmt: skip
        return row if setup.objective == "latency" else {**row, "throughput_s": finite(evaluation.period_s)}

    def answer(self) -> tuple[Solution, Placement, Evaluation]:
        """See `outcome`.

        Raises:
            GnnplaceError: the planner found no placement.
        """
        if isinstance(self.outcome, GnnplaceError):
            raise self.outcome
        return self.outcome


def attempt(setup: ProblemSetup, run: Run, seed: int) -> Attempt:
    """Runs one planner."""
    begin_s = time.perf_counter()
    own = setup.for_planner(run.name)
    try:
        solution = run.planner(own.problem(run.evaluator), run.budget, seed)
    except GnnplaceError as error:
        return Attempt(run.name, time.perf_counter() - begin_s, error)
    return Attempt(run.name, solution.wall_s, (solution, *own.evaluate_groups(solution.placement)))


def attempts(setup: ProblemSetup, runs: Iterable[Run], seed: int) -> Iterator[Attempt]:
    """Runs planners one after the other; an attempt that Ctrl-C interrupted is the last one."""
    for run in runs:
        found = attempt(setup, run, seed)
        yield found
        if not isinstance(found.outcome, GnnplaceError) and found.outcome[0].interrupted:
            return


def until_interrupted(items: Iterable[T]) -> tuple[list[T], bool]:
    """The items before Ctrl-C, and whether Ctrl-C ended them.

    Raises:
        KeyboardInterrupt: before the first item.
    """
    found: list[T] = []
    try:
        found.extend(items)
    except KeyboardInterrupt:
        if found:
            return found, True
        raise
    return found, False


@dataclass(frozen=True, eq=False)
class ExecutedSearch:
    """The result of a search whose placements may have been executed."""

    solution: Solution
    counts: MeasuredSearch
    """Counts of executed placements, and the seconds that they took."""
    fastest: Sequence[Placement] = ()
    """The best executed placements, best first; none if the simulator searched."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Executor:
    """Searches for placements of op groups and executes them, on this machine or over several hosts."""

    search: Callable[[Planner], ExecutedSearch]
    """Runs the chosen planner."""
    compare: Callable[[Sequence[Placement]], Comparison]
    """The costs of placements that run in turns, and of a plain session on the best single device."""
    remembered: Callable[[Sequence[Placement]], Comparison]
    """The costs of placements as the search measured them, not confirmed side by side."""
    segments_of: Callable[[Placement], tuple[Segment, ...]]
    """The segments in which a placement runs."""
    difference: Callable[[Placement], Difference | None] = lambda _: None
    """The paired difference of a placement and the reference; None where it is unknown."""


class Hosts(Protocol):
    """The hosts of a cluster, which the Ray plug-in implements; every method connects if there is no connection yet."""

    def connection(self) -> AbstractContextManager[None]:
        """One connection for the whole block."""

    def own(self, devices: object) -> bool:
        """Whether the device set spans hosts: its names have hosts, or it is `auto` on a cluster of several hosts."""

    def topology(self, devices: str) -> Topology:
        """Devices of several hosts; probes unknown links first."""

    def profiled(
        self, workload: Workload, devices: str, options: PlaceOptions
    ) -> tuple[Topology, CostModel, tuple[str, ...]]:
        """Devices of several hosts, the costs of a workload on them, and warnings."""

    def simulating(self, setup: ProblemSetup, on_warning: Callable[[str], None]) -> AbstractContextManager[Evaluator]:
        """An evaluator whose large batches are simulated by all hosts."""

    def executing(
        self, evaluator: MeasuredEvaluator, options: PlaceOptions, on_warning: Callable[[str], None]
    ) -> AbstractContextManager[int]:
        """Lets the hosts execute the placements of an evaluator; gives the number that run at once."""

    def executor(self, setup: ProblemSetup, options: PlaceOptions) -> AbstractContextManager[Executor]:
        """Executes placements whose devices are on several hosts."""

    def rows(
        self, setup: ProblemSetup, planners: Sequence[str], options: PlaceOptions
    ) -> Iterator[tuple[int, PlannerRow]]:
        """The rows of a comparison with the index of the planner, in order of completion."""

    def process_group(self) -> StartGroup:
        """Starts the processes of a training run on the hosts."""

    def num_cores(self) -> int:
        """The number of cores of all hosts."""


def hosts_at(address: str | None) -> Hosts | None:
    """The Ray cluster at an address; None without an address. Nothing else loads `gnnplace.distributed`.

    Raises:
        MissingDependency: the plug-in is not installed.
    """
    if address is None:
        return None
    try:
        plugin = importlib.import_module("gnnplace.distributed.plugin")
    except ModuleNotFoundError as error:
        raise MissingDependency(f"--ray {address}: the plug-in gnnplace.distributed is missing ({error})") from None
    hosts: Hosts = plugin.RayHosts(address)
    return hosts
