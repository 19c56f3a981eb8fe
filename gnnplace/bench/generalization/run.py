"""One row on one case, and the facts of a case that do not depend on a row."""

import dataclasses
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api import PlaceOptions, ProblemSetup, Workload
from gnnplace.bench.generalization.cases import DEVELOPMENT, HeldOutCase, training_types
from gnnplace.bench.generalization.devices import held_out_devices, unlike_training, unseen_count
from gnnplace.bench.generalization.rows import ROWS, planner_of
from gnnplace.bench.problems import accelerators, bytes_alone, compiled_problem, run_planner, with_memory
from gnnplace.cost.cost_model import PerTypeCost, RooflineCost
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph
from gnnplace.planners.solution import Budget
from gnnplace.run_record import finite

FACTS = "facts"
"""Name in place of a row, for the sizes of the case, its lower bound, and its differences to training."""
COLD_START = "cold start"
"""Name in place of a row, for the row `ZERO_SHOT` in a new Python process, from its first import to its answer."""
ZERO_SHOT = "gnn-zero-shot"
_PLACE_ONCE = "import sys, gnnplace.bench.generalization.run as run; run.place_once(*sys.argv[1:])"
_SMALL, _FEW_EVALUATIONS = "wavefront_16x16 50 on servers-4x4", 64


@dataclass(frozen=True)
class Run:
    """A row on a case with a seed."""

    case: str
    row: str
    seed: int
    depends_on: str
    """Fingerprint of the row's settings and policy."""


def run_result(run: Run, policies: Mapping[str, Path]) -> dict[str, Any]:
    """Seconds on the whole graph, or the reason for a missing answer; planners run on one thread.

    `policies` are by row. Raises as `run_planner`.
    """
    if run.row == FACTS:
        return _facts(run.case)
    if run.row == COLD_START:
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-c", _PLACE_ONCE, run.case, str(policies[ZERO_SHOT])], check=True)
        return {"wall_s": time.perf_counter() - began_s}
    row, policy, (setup, problem) = ROWS[run.row], policies.get(run.row), _prepared(run.case)
    _warm_up(row.name, policy)
    done = run_planner(setup, problem, partial(planner_of, row, policy), row.budget(problem.num_units), run.seed)
    solution = done.solution
    return {
        "objective_s": done.makespan_s,
        "feasible": done.makespan_s is not None,
        "error": done.error,
        "evaluations": 0 if solution is None else solution.evaluations,
        "wall_s": done.wall_s if solution is None else solution.wall_s,
        "stages": [] if solution is None else [[name, finite(best_s)] for name, best_s in solution.stages],
    }


def place_once(case: str, policy: str) -> None:
    """Places a case with the row `ZERO_SHOT`: the program of a cold start, whose compiled code is cached on disk."""
    problem = setup_of_case(case).problem()
    planner_of(ROWS[ZERO_SHOT], Path(policy))(problem, ROWS[ZERO_SHOT].budget(problem.num_units), 0)


@cache
def _warm_up(row: str, policy: Path | None) -> None:
    """Runs the row's planner on a small case, once per process."""
    planner_of(ROWS[row], policy)(_prepared(_SMALL)[1], Budget(_FEW_EVALUATIONS), 0)


@lru_cache(maxsize=3)
def _prepared(name: str) -> tuple[ProblemSetup, Problem]:
    setup = setup_of_case(name)
    return setup, compiled_problem(setup)


def setup_of_case(name: str) -> ProblemSetup:
    """The set-up of the development case of this name."""
    case = DEVELOPMENT.cases[name]
    return setup_of(case, DEVELOPMENT.graph(case.graph))


def setup_of(case: HeldOutCase, graph: OpGraph) -> ProblemSetup:
    """The case's graph on its devices, simulated on one thread.

    With a share of memory, accelerators hold that share of the model's memory together, and hosts keep their own. Capacities
    fall linearly, and the last accelerator holds half as much as the first.
    """
    workload, topology = Workload.of(graph), held_out_devices(case.devices)
    cost = PerTypeCost(RooflineCost(), zlib.crc32(case.name.encode()), case.type_spread)
    setup = ProblemSetup.build(workload, topology, cost, PlaceOptions(max_groups=case.max_groups))
    setup = dataclasses.replace(setup, num_threads=1)
    if case.memory_share is None:
        return setup
    names = accelerators(topology)
    host = next(index for index, device in enumerate(topology.device_names) if device not in names)
    weights = np.linspace(2.0, 1.0, len(names))
    capacities = case.memory_share * bytes_alone(setup, host) * weights / weights.sum()
    return with_memory(setup, dict(zip(names, capacities.astype(np.int64).tolist(), strict=True)))


def _facts(name: str) -> dict[str, Any]:
    case, (setup, problem) = DEVELOPMENT.cases[name], _prepared(name)
    graph, topology = setup.workload.graph, setup.topology
    return {
        **dataclasses.asdict(case),
        "family": DEVELOPMENT.family(case.graph),
        "ops": graph.num_ops,
        "groups": problem.num_units,
        "num_devices": topology.num_devices,
        "device_names": list(topology.device_names),
        "memory_bytes": [device.memory_bytes for device in topology.devices],
        "unseen_count": unseen_count(topology),
        "unlike_training": list(unlike_training(held_out_devices(case.devices))),
        "unseen_types": sorted(set(graph.op_types) - training_types()),
        "lower_bound": dataclasses.asdict(setup.bound),
    }
