"""Set-ups and searches as benches time them: on real devices with measured costs, compiled, with limited memory."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api import ProblemSetup, set_up
from gnnplace.arrays import IntArray
from gnnplace.devices.topology import Topology
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Evaluation, Problem
from gnnplace.local_search import Proposals, WalkRequest
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.timing import MeasureOptions
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.placement import Placement
from gnnplace.planners.solution import Budget, Planner, Solution
from gnnplace.run_record import finite
from gnnplace.running.session import PARTS


@dataclass(frozen=True, eq=False)
class PlannerRun:
    """One run of a planner, evaluated on the whole graph."""

    makespan_s: float | None
    """Seconds of one step; None without a feasible placement."""
    error: str | None
    """Reason for a missing makespan."""
    wall_s: float
    solution: Solution | None = None
    """None where the planner raised an error."""


def run_planner(
    setup: ProblemSetup, problem: Problem, load: Callable[[], Planner], budget: Budget, seed: int
) -> PlannerRun:
    """Runs the planner that `load` gives on `problem`; the planner's imports do not count as wall time.

    Raises:
        MissingDependency: the planner needs a library that is not installed.
        KeyboardInterrupt: the search was interrupted; its answer is not a result.
    """
    begin_s = time.perf_counter()
    try:
        planner = load()
        begin_s = time.perf_counter()
        solution = planner(problem, budget, seed)
    except MissingDependency:
        raise
    except GnnplaceError as error:
        return PlannerRun(None, str(error), time.perf_counter() - begin_s)
    wall_s = time.perf_counter() - begin_s
    if solution.interrupted:
        raise KeyboardInterrupt
    _, evaluation = setup.evaluate_groups(solution.placement)
    seconds = finite(evaluation.makespan_s) if evaluation.feasible else None
    return PlannerRun(seconds, failure_of(evaluation), wall_s, solution)


def failure_of(evaluation: Evaluation) -> str | None:
    """Reason why a placement is infeasible; None for a feasible one."""
    if evaluation.feasible:
        return None
    return evaluation.failure or (
        "does not fit into memory" if evaluation.shortfall_bytes.any() else "cannot run on its devices"
    )


def compiled_problem(setup: ProblemSetup) -> Problem:
    """The problem of a setup after one call of every compiled function that a planner may use."""
    problem = setup.problem()
    assignment = np.argmax(problem.action_mask, axis=1)[problem.unit_of_op]
    problem.evaluator.evaluate(Placement(assignment))
    problem.evaluator.evaluate_batch(assignment[None])
    problem.estimator.evaluate_moves(assignment, np.zeros(1, dtype=np.int64), assignment[:1])
    request = WalkRequest(assignment, 1, 0.0, 0.0, Proposals(0.0, 0.0, 1.0))
    problem.local_search.walk(request, np.random.default_rng(0))
    return problem


def accelerators(topology: Topology) -> list[str]:
    """Names of the devices that are no hosts."""
    return [device.name for device in topology.devices if not device.is_host]


def bytes_alone(setup: ProblemSetup, device: int = 0) -> int:
    """Memory in bytes that the whole graph needs on one device."""
    alone = setup.simulator.evaluate(Placement(np.full(setup.workload.graph.num_ops, device)))
    return int(alone.peak_memory_bytes[device])


def with_memory(setup: ProblemSetup, memory_bytes: Mapping[str, int]) -> ProblemSetup:
    """The setup with other memory capacities of some devices, by name."""
    topology = setup.topology
    devices = tuple(
        dataclasses.replace(device, memory_bytes=memory_bytes.get(device.name, device.memory_bytes))
        for device in topology.devices
    )
    return dataclasses.replace(setup, topology=dataclasses.replace(topology, devices=devices))


@lru_cache(maxsize=1)
def real_setup(model: str, devices: str) -> ProblemSetup:
    """A zoo model on real devices, with the costs that this machine measures for it."""
    return set_up(f"zoo:{model}", devices, measure=True, force=True)


def executing(setup: ProblemSetup, options: MeasureOptions = MeasureOptions()) -> MeasuredEvaluator:
    """Executes placements of the op groups; unlike in a search of `gnnplace.place`, earlier measurements do not count."""
    return MeasuredEvaluator(setup.grouped_model, setup.topology, setup.group_simulator, options)


def write_placed(setup: ProblemSetup, assignment: IntArray, folder: Path, order: IntArray | None = None) -> int:
    """Writes the parts of a placement `[N]` for a `Session`; the number of its segments.

    `order` `[N]` is a global run order of the ops; None: by their simulated start.
    """
    if order is None:
        order = setup.simulator.schedule(Placement(assignment)).order()
    segments = setup.segments(Placement(assignment), order)
    write_parts(setup.workload.models[0], segments, setup.topology.device_names, folder / PARTS, setup.kernels)
    return len(segments)


def worst_error(outputs: Sequence[Any], expected: Sequence[Any]) -> float:
    """Largest difference of an output to the expected one, as a fraction of its largest expected value."""
    from models_zoo.networks.export.comparison import relative_error

    return max(float(relative_error(found, wanted)) for found, wanted in zip(outputs, expected, strict=True))
