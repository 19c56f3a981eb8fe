"""Everything on one device: the placement that every other one has to beat."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.search import Search, Solution

__all__ = ["exchanges_with", "fastest_elsewhere", "fastest_first", "plan", "single_device_assignments", "unit_time_s"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best placement on a single device; ops that may not run there go to the fastest device that may run them.

    When no device holds the whole graph, the placement with the least shortfall.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    6.0
    """
    with Search(problem, budget, "single", seed) as search:
        search.evaluate_batch(single_device_assignments(problem))
    return search.solution()


def single_device_assignments(problem: Problem) -> IntArray:
    """`[K, N]`, `K <= D`: one placement per device, the most promising first; each is there once.

    Promising is what lacks the least weight memory, then what needs the fewest seconds when ops run one by one.

    >>> from dataclasses import replace
    >>> from gnnplace.sim.example import diamond
    >>> single_device_assignments(diamond()).tolist()  # two devices that nothing tells apart
    [[0, 0, 0, 0]]
    >>> single_device_assignments(replace(diamond(), op_time_s=np.array([[2.0, 1.0]] * 4))).tolist()
    [[1, 1, 1, 1], [0, 0, 0, 0]]
    """
    unit_time = unit_time_s(problem)
    rows, seen = [], set()
    for device in range(problem.topology.num_devices):
        units = np.where(problem.action_mask[:, device], device, fastest_elsewhere(problem, unit_time, device))
        alike = _signature(problem, units, device)
        if alike in seen:
            continue
        seen.add(alike)
        seconds = float(unit_time[np.arange(problem.num_units), units].sum())
        assignment = units[problem.unit_of_op]
        rows.append((_shortfall_bytes(problem, assignment), seconds, device, assignment))
    rows.sort(key=lambda row: row[:3])
    return np.array([row[3] for row in rows], dtype=np.int64).reshape(len(rows), problem.graph.num_ops)


def unit_time_s(problem: Problem) -> FloatArray:
    """`[U, D]` seconds, infinite where the unit may not go.

    >>> from dataclasses import replace
    >>> from gnnplace.sim.example import diamond
    >>> unit_time_s(replace(diamond(), op_time_s=np.array([[1.0, np.inf], [2.0, 3.0], [2.0, 3.0], [1.0, 1.0]]))).tolist()
    [[1.0, inf], [2.0, 3.0], [2.0, 3.0], [1.0, 1.0]]
    """
    seconds = np.zeros((problem.num_units, problem.topology.num_devices))
    np.add.at(seconds, problem.unit_of_op, problem.op_time_s)
    seconds[~problem.action_mask] = np.inf
    return seconds


def fastest_first(problem: Problem) -> IntArray:
    """`[D]` devices: by the ops that they may not run, fewest first, then by the seconds of all that they may.

    >>> from dataclasses import replace
    >>> from gnnplace.sim.example import diamond
    >>> fastest_first(replace(diamond(), op_time_s=np.array([[2.0, 1.0]] * 4))).tolist()
    [1, 0]
    """
    seconds = np.where(np.isfinite(problem.op_time_s), problem.op_time_s, 0.0).sum(axis=0)
    forbidden = (~problem.action_mask[problem.unit_of_op]).sum(axis=0)
    return np.asarray(np.lexsort((seconds, forbidden)))


def fastest_elsewhere(problem: Problem, unit_time: FloatArray, device: int) -> IntArray:
    """`[U]` the fastest allowed device of each unit, of those that can exchange tensors with `device` if there is one.

    >>> from gnnplace.sim.example import diamond
    >>> fastest_elsewhere(diamond(), np.array([[2.0, 1.0], [np.inf, 1.0], [1.0, 2.0], [1.0, 1.0]]), device=0).tolist()
    [1, 1, 0, 0]
    """
    near = np.where(exchanges_with(problem.topology, device)[None, :], unit_time, np.inf)
    away = ~np.isfinite(near).any(axis=1)
    near[away] = unit_time[away]
    return np.asarray(np.argmin(near, axis=1))


def exchanges_with(topology: Topology, device: int) -> BoolArray:
    """`[D]` true for the devices that can send tensors to `device` and receive some from it, itself included.

    >>> from gnnplace.devices.topology import Device, Link
    >>> devices, links = (Device("x"), Device("y"), Device("z")), (Link("x", "y", 0.0, 1e9), Link("y", "x", 0.0, 1e9))
    >>> exchanges_with(Topology("z is apart", devices, links), 0).tolist()
    [True, True, False]
    """
    route = topology.route
    return np.array(
        [route(device, d) is not None and route(d, device) is not None for d in range(topology.num_devices)]
    )


def _signature(problem: Problem, units: IntArray, device: int) -> object:
    """Equal for placements that cost the same: whole graphs on devices that cannot be told apart."""
    if (units != device).any():
        return device
    return problem.op_time_s[:, device].tobytes(), int(problem.topology.memory_bytes[device])


def _shortfall_bytes(problem: Problem, assignment: IntArray) -> int:
    """Bytes of weights above capacity, summed over devices."""
    graph, num_devices = problem.graph, problem.topology.num_devices
    resident = np.zeros(num_devices, dtype=np.int64)
    np.add.at(resident, assignment, graph.memory_bytes)
    for weight, size in enumerate(graph.weight_bytes.tolist()):
        resident[np.unique(assignment[graph.weights_of(weight)])] += size
    return int(np.maximum(0, resident - problem.topology.memory_bytes).sum())
