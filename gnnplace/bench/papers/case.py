"""One planner on one row of a table, and what holds for the row whatever the planner."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gnnplace.api.problem_setup import Setting, setting_of
from gnnplace.api.solution import finite, planned
from gnnplace.api.workload import load_workload
from gnnplace.bench.compiled import compiled_problem
from gnnplace.bench.papers.tables import row_of
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.devices.topology import HOST_KIND_PREFIX
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Evaluation
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.report.bench_format import device_letters

__all__ = ["DOES_NOT_FIT", "FACTS", "Case", "Results", "case_result"]

DOES_NOT_FIT = "does not fit into memory"
FACTS = "facts"
"""Stands for a planner: sizes of the row, its single devices and its lower bound."""


@dataclass(frozen=True)
class Case:
    """One run of a bench."""

    row: str
    planner: str
    seed: int
    evaluations: int


Results = Mapping[Case, Mapping[str, Any]]


def case_result(case: Case) -> dict[str, Any]:
    """What the planner found: seconds on the whole graph, the history on op groups; or why it found nothing.

    Wall seconds are the planner's alone: what it imports and compiles has been there before.

    Raises:
        MissingDependency: the planner needs something that is not installed, which is no result.
        KeyboardInterrupt: the search was interrupted; half a search is no result either.
    """
    setting = _setting(case.row)
    if case.planner == FACTS:
        return _facts(setting)
    problem = compiled_problem(setting)
    began = time.perf_counter()
    try:
        planner = load_planner(case.planner)
        began = time.perf_counter()
        solution = planner(problem, Budget(case.evaluations), case.seed)
    except MissingDependency:
        raise
    except GnnplaceError as error:
        return {"makespan_s": None, "error": str(error), "wall_s": time.perf_counter() - began, "evaluations": 0}
    wall_s = time.perf_counter() - began
    if solution.interrupted:
        raise KeyboardInterrupt
    _, _, evaluation = planned(setting, solution)
    return {
        "makespan_s": finite(evaluation.makespan_s) if evaluation.feasible else None,
        "error": _failure(evaluation),
        "wall_s": wall_s,
        "evaluations": solution.evaluations,
        "history": [[count, best_s] for count, _, best_s in solution.history],
        "placement": device_letters(solution.placement.assignment.tolist()),
    }


def _failure(evaluation: Evaluation) -> str | None:
    """Why a placement has no seconds; None when it has."""
    if evaluation.feasible:
        return None
    return evaluation.failure or (DOES_NOT_FIT if evaluation.shortfall_bytes.any() else "cannot run on its devices")


@lru_cache(maxsize=2)
def _setting(key: str) -> Setting:
    """The row's workload on its testbed, by the roofline of published figures."""
    row = row_of(key)
    workload = load_workload(row.workload)
    topology = preset(row.devices)
    setting = setting_of(workload, topology, RooflineCost())
    if row.memory_share is None:
        return setting
    needed = setting.simulator.evaluate(Placement(np.zeros(workload.graph.num_ops, dtype=np.int64)))
    memory = int(row.memory_share * int(needed.peak_memory_bytes[0]))
    devices = tuple(
        device if device.kind.startswith(HOST_KIND_PREFIX) else dataclasses.replace(device, memory_bytes=memory)
        for device in topology.devices
    )
    return setting_of(workload, dataclasses.replace(topology, devices=devices), RooflineCost())


def _facts(setting: Setting) -> dict[str, Any]:
    graph, topology, groups = setting.workload.graph, setting.topology, setting.coarsening.graph
    singles: dict[str, dict[str, Any]] = {}
    for index, device in enumerate(topology.devices):
        column = "single-cpu" if device.kind.startswith(HOST_KIND_PREFIX) else "single-gpu"
        if column not in singles:
            alone = setting.simulator.evaluate(Placement(np.full(graph.num_ops, index, dtype=np.int64)))
            singles[column] = {
                "makespan_s": finite(alone.makespan_s) if alone.feasible else None,
                "error": _failure(alone),
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
