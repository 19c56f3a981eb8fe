"""One planner on one row of a table, and the facts of a row that do not depend on a planner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import load_workload
from gnnplace.bench.papers.tables import row_of
from gnnplace.bench.problems import compiled_problem, failure_of, run_planner
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.report import device_letters
from gnnplace.run_record import finite

__all__ = ["FACTS", "Case", "Results", "case_result"]

FACTS = "facts"
"""Name in place of a planner, for the sizes of the row, its single devices and its lower bound."""


@dataclass(frozen=True)
class Case:
    """One run of a planner."""

    row: str
    planner: str
    seed: int
    evaluations: int


Results = Mapping[Case, Mapping[str, Any]]


def case_result(case: Case) -> dict[str, Any]:
    """Seconds on the whole graph and the history on op groups, or the reason for a missing answer.

    Raises:
        MissingDependency: the planner needs a library that is not installed.
        KeyboardInterrupt: the search was interrupted; its answer is not a result.
    """
    setting = _setting(case.row)
    if case.planner == FACTS:
        return _facts(setting)
    load = partial(load_planner, case.planner)
    run = run_planner(setting, compiled_problem(setting), load, Budget(case.evaluations), case.seed)
    result = {"makespan_s": run.makespan_s, "error": run.error, "wall_s": run.wall_s, "evaluations": 0}
    if run.solution is None:
        return result
    return result | {
        "evaluations": run.solution.evaluations,
        "history": [[count, best_s] for count, _, best_s in run.solution.history],
        "placement": device_letters(run.solution.placement.assignment.tolist()),
    }


@lru_cache(maxsize=2)
def _setting(key: str) -> ProblemSetup:
    """The row's workload on its testbed, with the roofline costs of published figures."""
    row = row_of(key)
    workload = load_workload(row.workload)
    topology = preset(row.devices)
    setting = ProblemSetup.build(workload, topology, RooflineCost())
    if row.memory_share is None:
        return setting
    needed = setting.simulator.evaluate(Placement(np.zeros(workload.graph.num_ops, dtype=np.int64)))
    memory = int(row.memory_share * int(needed.peak_memory_bytes[0]))
    devices = tuple(
        device if device.is_host else dataclasses.replace(device, memory_bytes=memory) for device in topology.devices
    )
    return ProblemSetup.build(workload, dataclasses.replace(topology, devices=devices), RooflineCost())


def _facts(setting: ProblemSetup) -> dict[str, Any]:
    graph, topology, groups = setting.workload.graph, setting.topology, setting.coarsening.graph
    singles: dict[str, dict[str, Any]] = {}
    for index, device in enumerate(topology.devices):
        column = "single-cpu" if device.is_host else "single-gpu"
        if column not in singles:
            alone = setting.simulator.evaluate(Placement(np.full(graph.num_ops, index, dtype=np.int64)))
            singles[column] = {
                "makespan_s": finite(alone.makespan_s) if alone.feasible else None,
                "error": failure_of(alone),
                "peak_memory_bytes": int(alone.peak_memory_bytes[index]),
                "memory_bytes": device.memory_bytes,
            }
    return {
        "ops": graph.num_ops,
        "groups": groups.num_ops,
        "devices": list(topology.device_names),
        "singles": singles,
        "lower_bound": dataclasses.asdict(setting.bound),
        "group_stages": groups.stages.tolist(),
        "group_types": list(groups.op_types),
    }
