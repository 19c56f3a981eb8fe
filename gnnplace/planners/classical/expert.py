"""The expert's placement: whole layers in their order, one device after the other, with equal loads."""

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.classical.partition_graph import participants
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The one placement that an expert would choose, after Mirhoseini et al. (2017), section 4.2.

    Where the graph has stages (an LSTM layer with its gradients, a tower, a residual block), they stay whole and in
    order. Other graphs are cut in topological order, as for a pipeline. Hosts take no part while there are accelerators.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "expert", seed) as search:
        search.evaluate(Placement(expert_assignment(problem)))
    return search.solution()


def expert_assignment(problem: Problem) -> IntArray:
    """`[N]`: stages cut into consecutive runs, one for each device, so that the busiest device has the least load.

    The accelerators that exchange tensors with the fastest one take part, or the hosts where there are none.
    A unit that may not run on its device goes to the fastest one where it may. Such a unit counts in the loads with its
    time on the fastest device that takes part, and not at all where no such device may run it.
    """
    stage, order = _stage_of_unit(problem), fastest_first(problem)
    order = order[participants(problem, hosts=False)[order]]
    devices = order[problem.topology.exchanges[order[0]][order]]
    own_s = problem.unit_time_s[:, devices]
    elsewhere_s = own_s.min(axis=1, keepdims=True, initial=np.inf)
    elsewhere_s[np.isinf(elsewhere_s)] = 0.0
    stage_s = np.zeros((int(stage.max(initial=-1)) + 1, len(devices)))
    np.add.at(stage_s, stage, np.where(np.isfinite(own_s), own_s, elsewhere_s))
    wanted = devices[balanced_cuts(stage_s)[stage]]
    elsewhere = problem.fastest_near(int(devices[0]))
    units = np.where(problem.action_mask[np.arange(problem.num_units), wanted], wanted, elsewhere)
    return np.asarray(units[problem.unit_of_op])


def balanced_cuts(seconds: FloatArray) -> IntArray:
    """`[S]` index of the device of every stage, ascending, from seconds `[S, D]`, with the least largest load.

    Devices come in the order of their columns, and one may get nothing. Among equally good cuts the sum of squared loads
    is least, so that idle devices help even where the largest stage decides. `O(S^2 D)`.
    """
    num_stages, num_devices = seconds.shape
    before = np.vstack([np.zeros(num_devices), np.cumsum(seconds, axis=0)])
    loads = before[None, :, :] - before[:, None, :]  # [begin, end, device]
    loads[np.tril_indices(num_stages + 1, -1)] = np.inf
    largest, _ = _cuts(loads, np.maximum)
    fits = loads <= largest * (1 + 1e-9)
    _, origin = _cuts(np.where(fits, loads, np.inf) ** 2, np.add)
    ends = [num_stages]
    for device in reversed(range(num_devices)):
        ends.append(int(origin[device, ends[-1]]))
    return np.repeat(np.arange(num_devices), -np.diff(ends)[::-1])


def _cuts(cost: FloatArray, combine: np.ufunc) -> tuple[float, IntArray]:
    """The least combined cost of all stages, and `[D, S + 1]` where each device begins, by where it ends."""
    total = np.full(len(cost), np.inf)
    total[0] = 0.0
    origin = np.zeros((cost.shape[2], len(cost)), dtype=np.int64)
    for device in range(cost.shape[2]):
        candidates = combine(total[:, None], cost[:, :, device])
        origin[device] = np.argmin(candidates, axis=0)
        total = candidates.min(axis=0)
    return float(total[-1]), origin


def fastest_first(problem: Problem) -> IntArray:
    """`[D]` devices by the number of ops that they may not run, then by the seconds of all ops that they may run."""
    seconds = np.where(np.isfinite(problem.op_time_s), problem.op_time_s, 0.0).sum(axis=0)
    forbidden = (~problem.action_mask[problem.unit_of_op]).sum(axis=0)
    return np.asarray(np.lexsort((seconds, forbidden)))


def _stage_of_unit(problem: Problem) -> IntArray:
    """`[U]` stages numbered from 0; the units themselves, in topological order, where no op has a stage.

    A unit takes the last stage of its ops; one without a stage follows the unit before it.
    """
    stages = problem.graph.stages
    if not (stages >= 0).any():
        return np.arange(problem.num_units)
    stage = np.full(problem.num_units, -1, dtype=np.int64)
    np.maximum.at(stage, problem.unit_of_op, stages)
    known = np.flatnonzero(stage >= 0)
    follows = np.maximum(np.searchsorted(known, np.arange(problem.num_units), side="right") - 1, 0)
    return np.asarray(np.unique(stage[known[follows]], return_inverse=True)[1])
