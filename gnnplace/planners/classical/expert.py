"""What a person would do: whole layers, in their order, on one device after the other, with equal loads."""

from __future__ import annotations

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.devices.topology import HOST_KIND_PREFIX
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.single import exchanges_with, fastest_elsewhere, fastest_first, unit_time_s
from gnnplace.planners.search import Search, Solution

__all__ = ["balanced_cuts", "expert_assignment", "plan"]


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The expert's one placement, after Mirhoseini et al. (2017), section 4.2.

    Where the graph states stages - an LSTM layer with its gradients, a tower, a residual block - they stay whole, in
    their order; where it does not, ops are cut in topological order, as for a pipeline. Hosts take no part while there
    are accelerators.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "expert", seed) as search:
        search.evaluate(Placement(expert_assignment(problem)))
    return search.solution()


def expert_assignment(problem: Problem) -> IntArray:
    """`[N]`: stages cut into consecutive runs, one for each device, so that the busiest device has least to do.

    A unit that may not run on its device goes to the fastest one where it may. In the loads it counts as long as on the
    fastest of the devices that take part, and not at all where none of them may run it.

    >>> from gnnplace.sim.example import diamond
    >>> expert_assignment(diamond()).tolist()
    [0, 0, 1, 1]
    """
    stage = _stage_of_unit(problem)
    seconds = unit_time_s(problem)
    devices = _devices(problem)
    own_s = seconds[:, devices]
    elsewhere_s = own_s.min(axis=1, keepdims=True, initial=np.inf)
    elsewhere_s[np.isinf(elsewhere_s)] = 0.0
    stage_s = np.zeros((int(stage.max(initial=-1)) + 1, len(devices)))
    np.add.at(stage_s, stage, np.where(np.isfinite(own_s), own_s, elsewhere_s))
    wanted = devices[balanced_cuts(stage_s)[stage]]
    elsewhere = fastest_elsewhere(problem, seconds, int(devices[0]))
    units = np.where(problem.action_mask[np.arange(problem.num_units), wanted], wanted, elsewhere)
    return np.asarray(units[problem.unit_of_op])


def balanced_cuts(seconds: FloatArray) -> IntArray:
    """`[S]` index of the device of every stage, ascending, from seconds `[S, D]`: the largest sum of any device is least.

    Devices come in the order of their columns, and one may get nothing; of equally good cuts the one whose sums have the
    least squares, so that idle devices help even where the largest stage decides. `O(S^2 D)`.

    >>> balanced_cuts(np.full((4, 2), [[3.0], [1.0], [1.0], [1.0]])).tolist()
    [0, 1, 1, 1]
    >>> balanced_cuts(np.full((3, 3), [[1.0], [1.0], [3.0]])).tolist()
    [0, 1, 2]
    """
    num_stages, num_devices = seconds.shape
    before = np.vstack([np.zeros(num_devices), np.cumsum(seconds, axis=0)])
    loads = before[None, :, :] - before[:, None, :]  # [begin, end, device]
    loads[np.tril_indices(num_stages + 1, -1)] = np.inf
    largest, _ = _cuts(loads, np.maximum)
    fits = loads <= largest * (1 + 1e-9)
    _, origin = _cuts(np.where(fits, loads, np.inf) ** 2, np.add)
    found = np.zeros(num_stages, dtype=np.int64)
    end = num_stages
    for device in reversed(range(num_devices)):
        begin = int(origin[device, end])
        found[begin:end] = device
        end = begin
    return found


def _cuts(price: FloatArray, joined: np.ufunc) -> tuple[float, IntArray]:
    """The least price of all stages, and `[D, S + 1]` where each device begins, by the stage before which it ends."""
    total = np.full(len(price), np.inf)
    total[0] = 0.0
    origin = np.zeros((price.shape[2], len(price)), dtype=np.int64)
    for device in range(price.shape[2]):
        candidates = joined(total[:, None], price[:, :, device])
        origin[device] = np.argmin(candidates, axis=0)
        total = candidates.min(axis=0)
    return float(total[-1]), origin


def _devices(problem: Problem) -> IntArray:
    """The accelerators that may run anything, `fastest_first`; the hosts where there are none.

    Only those that can exchange tensors with the fastest of them.
    """
    able: BoolArray = np.asarray(problem.action_mask.any(axis=0) | (problem.num_units == 0))
    accelerator = np.array([not device.kind.startswith(HOST_KIND_PREFIX) for device in problem.topology.devices])
    chosen = able & accelerator if (able & accelerator).any() else able
    order = fastest_first(problem)
    order = order[chosen[order]]
    return np.asarray(order[exchanges_with(problem.topology, int(order[0]))[order]])


def _stage_of_unit(problem: Problem) -> IntArray:
    """`[U]` stages numbered from 0; the units themselves, in topological order, where no op states one.

    A unit takes the last stage of its ops; one without a stage goes with the unit before it.
    """
    stated = problem.graph.stages
    if not (stated >= 0).any():
        return np.arange(problem.num_units)
    stage = np.full(problem.num_units, -1, dtype=np.int64)
    np.maximum.at(stage, problem.unit_of_op, stated)
    known = np.flatnonzero(stage >= 0)
    follows = np.maximum(np.searchsorted(known, np.arange(problem.num_units), side="right") - 1, 0)
    return np.asarray(np.unique(stage[known[follows]], return_inverse=True)[1])
