"""The same on the hosts of a Ray cluster: batches of simulations, and a comparison whose planners run side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.solution import LEARNED, chosen_planner, failed_row, planned, planner_row
from gnnplace.api.workload import Workload
from gnnplace.distributed.cluster import connected, different_results
from gnnplace.distributed.evaluators import (
    HostsMeasuring,
    HostsSimulator,
    MeasuringPool,
    SimulationPool,
    measuring,
    measuring_options,
    simulating,
)
from gnnplace.distributed.pool import Pool
from gnnplace.distributed.workers import Role
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Evaluator
from gnnplace.files import temporary_folder
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.planners.budget import Budget, Progress
from gnnplace.run_record import PlannerRow

__all__ = ["compared_on_hosts", "executed_on_hosts", "simulated_on_hosts"]


@contextmanager
def simulated_on_hosts(
    setting: ProblemSetup, address: str | None, on_warning: Callable[[str], None]
) -> Iterator[Evaluator | None]:
    """What simulates large batches on all hosts of a cluster; None without an address.

    Raises:
        MissingDependency: Ray is not installed.
        GnnplaceError: there is no cluster, or none of its hosts can take part.
    """
    if address is None:
        yield None
        return

    graph, num_devices = setting.workload.graph, setting.topology.num_devices
    role = simulating(_to_be_sent(setting).problem().evaluator)
    pool: SimulationPool
    with connected(address), Pool(role, on_warning=on_warning) as pool:
        pool.wait_ready()
        yield HostsSimulator(setting.problem().evaluator, pool, graph.num_ops, num_devices)


@contextmanager
def executed_on_hosts(
    evaluator: MeasuredEvaluator, timeout_s: float, options: PlaceOptions, on_warning: Callable[[str], None]
) -> Iterator[int]:
    """Within the block the evaluator's placements are executed on the hosts of a cluster, so many at once; 1 without an address.

    Raises:
        MissingDependency: Ray is not installed.
        GnnplaceError: there is no cluster, or none of its hosts has this machine's devices and versions.
    """
    if options.ray is None:
        yield 1
        return

    pool: MeasuringPool
    role = measuring(evaluator, timeout_s, options.force)
    with connected(options.ray), Pool(role, measuring_options(timeout_s), on_warning) as pool:
        pool.wait_ready()
        evaluator.elsewhere = HostsMeasuring(pool)
        try:
            yield pool.num_workers
        finally:
            evaluator.elsewhere = None


def compared_on_hosts(setting: ProblemSetup, planners: Sequence[str], options: PlaceOptions) -> list[PlannerRow]:
    """A row per planner in the order in which they were named, each with the host that it ran on and took its seconds on.

    Raises:
        GnnplaceError: there is no cluster, or none of its hosts can take part.
        KeyboardInterrupt: there was no placement yet.
    """
    policy = () if options.policy is None else (_PolicyFiles.read(Path(options.policy)),)
    budget = dataclasses.replace(options.budget, on_progress=None)
    role = Role(_comparing, (_to_be_sent(setting), budget, options.seed, *policy), different_results)
    rows: dict[int, PlannerRow] = {}
    assert options.ray is not None
    with connected(options.ray), Pool[str, PlannerRow](role, on_warning=options.on_warning) as pool:
        try:
            for done in pool.results(planners):
                row = done.value or failed_row(planners[done.index], done.failure, done.wall_s)
                rows[done.index] = {**row, "host": done.host}
                if options.on_progress is not None:
                    best_s = min(found["makespan_s"] or np.inf for found in rows.values())
                    options.on_progress(Progress(row["planner"], row["evaluations"], row["wall_s"], best_s))
        except KeyboardInterrupt:
            if not rows:
                raise
    return [rows[index] for index in sorted(rows)]


@dataclass(frozen=True)
class _PolicyFiles:
    """A trained policy, to be written on another host."""

    name: str
    weights: bytes
    card: bytes

    @classmethod
    def read(cls, path: Path) -> _PolicyFiles:
        chosen_planner(LEARNED, path)
        return cls(path.name, path.read_bytes(), path.with_suffix(".json").read_bytes())

    @contextmanager
    def written(self) -> Iterator[Path]:
        with temporary_folder() as folder:
            path = folder / self.name
            path.write_bytes(self.weights)
            path.with_suffix(".json").write_bytes(self.card)
            yield path


def _to_be_sent(setting: ProblemSetup) -> ProblemSetup:
    """The setting without the model, which is not needed to simulate it, for one thread."""
    bare = Workload(setting.workload.graph)
    others = tuple(_to_be_sent(other) for other in setting.others)
    return dataclasses.replace(setting, workload=bare, num_threads=1, others=others)


def _comparing(
    setting: ProblemSetup, budget: Budget, seed: int, policy: _PolicyFiles | None = None
) -> Callable[[str], PlannerRow]:
    return partial(_compared, setting, budget, seed, policy)


def _compared(setting: ProblemSetup, budget: Budget, seed: int, policy: _PolicyFiles | None, name: str) -> PlannerRow:
    chosen = setting.for_planner(name)
    problem = chosen.problem()
    try:
        if policy is None or name != LEARNED:
            solution = chosen_planner(name)(problem, budget, seed)
        else:
            with policy.written() as path:
                solution = chosen_planner(name, path)(problem, budget, seed)
    except GnnplaceError as error:
        return failed_row(name, str(error), 0.0)
    return planner_row(setting, *planned(chosen, solution))
