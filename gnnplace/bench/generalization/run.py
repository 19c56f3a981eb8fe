"""One row on one case, and what holds for the case whatever the row."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api.problem_setup import Setting, setting_of
from gnnplace.api.solution import planned
from gnnplace.api.workload import Workload
from gnnplace.bench.compiled import compiled_problem
from gnnplace.bench.generalization.cases import case_of
from gnnplace.bench.generalization.devices import held_out_devices
from gnnplace.bench.generalization.graphs import family_of_graph, held_out_graph, training_types
from gnnplace.bench.generalization.rows import ROWS, planner_of
from gnnplace.bench.generalization.unlike_training import unlike_training, unseen_count
from gnnplace.cost.cost_model import PerTypeCost, RooflineCost
from gnnplace.devices.topology import HOST_KIND_PREFIX, Topology
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget

__all__ = ["COLD_START", "FACTS", "ZERO_SHOT", "Run", "place_once", "run_result", "setting_of_case"]

FACTS = "facts"
"""Stands for a row: sizes of the case, its lower bound, and what training has not seen of it."""
COLD_START = "cold start"
"""Stands for a row too: the row `ZERO_SHOT` in a new Python process, from its first import to its answer."""
ZERO_SHOT = "gnn-zero-shot"
_PLACE_ONCE = "import sys, gnnplace.bench.generalization.run as run; run.place_once(*sys.argv[1:])"
_SMALL, _MOMENT = "wavefront_16x16 50 on servers-4x4", 64


@dataclass(frozen=True)
class Run:
    """A row on a case with a seed."""

    case: str
    row: str
    seed: int
    depends_on: str
    """See `fingerprint`."""


def run_result(run: Run, policies: Mapping[str, Path]) -> dict[str, Any]:
    """What the row's planner found: seconds on the whole graph, or why it found nothing that fits.

    Wall seconds are the planner's alone, on one thread: what it imports and compiles has been there before.

    Args:
        run: see there.
        policies: by row.

    Raises:
        MissingDependency: the planner needs something that is not installed, which is no result.
        KeyboardInterrupt: the search was interrupted; half a search is no result either.
    """
    if run.row == FACTS:
        return _facts(run.case)
    if run.row == COLD_START:
        return _cold_start(run.case, policies[ZERO_SHOT])
    row, policy, setting, problem = ROWS[run.row], policies.get(run.row), *_prepared(run.case)
    _warm_up(row.name, policy)
    began = time.perf_counter()
    try:
        solution = planner_of(row, policy)(problem, row.budget(problem.num_units), run.seed)
    except MissingDependency:
        raise
    except GnnplaceError as error:
        return _nothing(str(error), time.perf_counter() - began)
    if solution.interrupted:
        raise KeyboardInterrupt
    evaluation = planned(setting, solution)[2]
    return {
        "objective_s": float(evaluation.makespan_s) if evaluation.feasible else None,
        "feasible": evaluation.feasible,
        "error": None if evaluation.feasible else evaluation.failure or "does not fit into memory",
        "evaluations": solution.evaluations,
        "wall_s": solution.wall_s,
        "stages": [[name, best_s if np.isfinite(best_s) else None] for name, best_s in solution.stages],
    }


def _cold_start(case: str, policy: Path) -> dict[str, Any]:
    """Seconds of a process that reads the graph, groups it and places it; what Numba has compiled is on disk."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _PLACE_ONCE, case, str(policy)], check=True)
    return {"wall_s": time.perf_counter() - began}


def place_once(case: str, policy: str) -> None:
    """Places a case with the row `ZERO_SHOT`, as the process of a cold start does."""
    problem = setting_of_case(case).problem()
    planner_of(ROWS[ZERO_SHOT], Path(policy))(problem, ROWS[ZERO_SHOT].budget(problem.num_units), 0)


def _nothing(error: str, wall_s: float) -> dict[str, Any]:
    return {
        "objective_s": None, "feasible": False, "error": error, "evaluations": 0, "wall_s": wall_s, "stages": [],
    }  # fmt: skip


@cache
def _warm_up(row: str, policy: Path | None) -> None:
    """Runs the row's planner for a moment on a small case, once per process."""
    planner_of(ROWS[row], policy)(_prepared(_SMALL)[1], Budget(_MOMENT), 0)


@lru_cache(maxsize=3)
def _prepared(name: str) -> tuple[Setting, Problem]:
    """The case, and its problem as `compiled_problem` gives it."""
    setting = setting_of_case(name)
    return setting, compiled_problem(setting)


def setting_of_case(name: str) -> Setting:
    """The case's graph on its devices."""
    case = case_of(name)
    workload, topology = Workload(held_out_graph(case.graph)), held_out_devices(case.devices)
    cost = PerTypeCost(RooflineCost(), case.cost_seed, case.type_spread)
    setting = dataclasses.replace(setting_of(workload, topology, cost, max_groups=case.max_groups), num_threads=1)
    if case.memory_share is None:
        return setting
    return dataclasses.replace(setting, topology=_with_memory(setting, case.memory_share))


def _with_memory(setting: Setting, share: float) -> Topology:
    """Accelerators of unequal capacity that hold this part of the model together; hosts keep theirs.

    The last accelerator holds half as much as the first, and those between lie between.
    """
    topology = setting.topology
    host = next(index for index, device in enumerate(topology.devices) if device.kind.startswith(HOST_KIND_PREFIX))
    alone = setting.simulator.evaluate(Placement(np.full(setting.workload.graph.num_ops, host)))
    accelerators = [device.name for device in topology.devices if not device.kind.startswith(HOST_KIND_PREFIX)]
    weights = np.linspace(2.0, 1.0, len(accelerators))
    capacities = share * int(alone.peak_memory_bytes[host]) * weights / weights.sum()
    memory = dict(zip(accelerators, capacities.astype(np.int64).tolist(), strict=True))
    devices = tuple(
        dataclasses.replace(device, memory_bytes=memory.get(device.name, device.memory_bytes))
        for device in topology.devices
    )
    return dataclasses.replace(topology, devices=devices)


def _facts(name: str) -> dict[str, Any]:
    case, (setting, problem) = case_of(name), _prepared(name)
    graph, topology = setting.workload.graph, setting.topology
    return {
        **dataclasses.asdict(case),
        "family": family_of_graph(case.graph),
        "ops": graph.num_ops,
        "groups": problem.num_units,
        "num_devices": topology.num_devices,
        "device_names": list(topology.device_names),
        "memory_bytes": [device.memory_bytes for device in topology.devices],
        "unseen_count": unseen_count(topology),
        "unlike_training": list(unlike_training(held_out_devices(case.devices))),
        "unseen_types": sorted(set(graph.op_types) - training_types()),
        "lower_bound": dataclasses.asdict(setting.bound),
    }
