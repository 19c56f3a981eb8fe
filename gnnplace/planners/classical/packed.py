"""List schedules that pack memory first, for devices that hold the model only together, or not at all without a host."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import depth_first_order
from gnnplace.graph.units import unit_bytes
from gnnplace.planners.classical.estimates import best_estimated
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule, rank_order
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution

_BUILDS = (8, 200)  # fewest and most schedules that are built before the best of them are evaluated
_OPS_BUILT = 4_000_000  # ops times devices of all these schedules, which take two seconds
_TRANSFER_FACTORS = (0.7, 10.0)
_NOISES = (0.0, 0.1, 0.2)
_MEMORY_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7)
_FILLED_SHARES = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, np.inf)
_BATCH_SIZE = 16
_PATIENCE = 10  # rounds without a new placement that end the search
_UNLIMITED_EVALUATIONS = 100


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best of HEFT's placement and of list schedules that pack memory, over the whole budget.

    This project's own method. Each schedule counts the memory of live activations and of received copies, from the op that
    produces a tensor to the last one that reads it, and lets no device fill more than a share of its memory while another
    one has room. Where some devices have room for everything (hosts), the others charge for memory: a unit costs more
    there, by a price times its bytes, so that units which the hosts delay least per byte leave the others. That is the
    greedy rule for knapsacks (Dantzig 1957) as an addition to HEFT's finish times. Price, share, order of ops, transfer
    costs and noise are random.

    A schedule estimates its makespan and its peak memory itself. Of up to 200 schedules only those with the best estimates
    are evaluated: placements whose estimated memory fits come first, then the shorter makespan.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng, idle = np.random.default_rng(seed), 0
    with Search(problem, budget, "packed", seed) as search:
        seen = Seen()
        evaluate_heft(search, seen)
        while idle < _PATIENCE and (not budget.is_unlimited or search.evaluations < _UNLIMITED_EVALUATIONS):
            before = search.evaluations
            evaluate_packed(search, _BATCH_SIZE, rng, seen)
            idle = idle + 1 if search.evaluations == before else 0
    return search.solution()


def evaluate_packed(search: Search, count: int, rng: np.random.Generator, seen: Seen | None = None) -> None:
    """Evaluates the `count` packed schedules with the best estimates; adds them to `seen` and leaves out those in it."""
    count = min(count, search.remaining)
    if count <= 0:
        return
    fresh = (seen or Seen()).fresh(packed_assignments(search, count, rng))
    if fresh:
        search.evaluate_batch(np.stack(fresh))


def packed_assignments(search: Search, count: int, rng: np.random.Generator) -> list[IntArray]:
    """At most `count` distinct assignments `[N]` of packed schedules, those with the best estimates first."""
    affordable = _OPS_BUILT // max(1, search.problem.op_time_s.size)
    builds = min(max(affordable, _BUILDS[0], count), _BUILDS[1])
    return best_estimated(search, islice(packed_schedules(search.problem, rng), builds))[:count]


def packed_schedules(problem: Problem, rng: np.random.Generator) -> Iterator[ListSchedule]:
    """Random packed schedules without end."""
    graph, prices = problem.graph, _Prices(problem)
    while True:
        factor = float(np.exp(rng.uniform(*np.log(_TRANSFER_FACTORS))))
        share, noise = float(rng.choice(_MEMORY_SHARES)), float(rng.choice(_NOISES))
        if rng.random() < 0.5:
            order = rank_order(problem, factor, np.exp(noise * rng.normal(size=graph.num_ops)))
        else:
            order = depth_first_order(graph.successor_offsets, graph.successors, rng.random(graph.num_ops))
        yield list_schedule(
            problem,
            ScheduleOptions(
                transfer_factor=factor,
                channels=bool(rng.random() < 0.5),
                memory_share=share,
                live=True,
                finish_noise=np.exp(noise * rng.normal(size=problem.op_time_s.shape)),
                order=order,
                remaining_s=prices.of_ops(share * float(rng.choice(_FILLED_SHARES))),
            ),
        )


@dataclass(eq=False)
class _Prices:
    """Prices of memory on devices that cannot hold the whole model, where others can."""

    problem: Problem

    def of_ops(self, filled_share: float) -> FloatArray:
        """`[N, D]` seconds, at the price at which the scarce devices would be filled to the share; zeros where it is infinite."""
        prices = np.zeros_like(self.problem.op_time_s)
        if not self._is_scarce.any() or self._is_scarce.all() or filled_share == np.inf:
            return prices
        delay, cumulated_bytes = self._by_delay
        topology = self.problem.topology
        is_first = topology.memory_home == np.arange(topology.num_devices)
        capacity_bytes = float(topology.memory_bytes[self._is_scarce & is_first].sum())
        position = int(np.searchsorted(cumulated_bytes, filled_share * capacity_bytes))
        if position < len(delay):
            unit_s = max(0.0, delay[position]) * self._unit_bytes
            prices[:, self._is_scarce] = unit_s[self.problem.unit_of_op][:, None]
        return prices

    @cached_property
    def _unit_bytes(self) -> FloatArray:
        """`[U]` weights, shared ones in equal parts, and the outputs that are live when one device would need most memory."""
        live = live_at_peak(self.problem, rank_order(self.problem))
        return unit_bytes(self.problem.graph, self.problem.unit_of_op, live)

    @cached_property
    def _is_scarce(self) -> BoolArray:
        """`[D]` true for devices whose memory is smaller than the model."""
        topology = self.problem.topology
        pool_bytes = topology.memory_bytes[topology.memory_home]
        return np.asarray(pool_bytes < self._unit_bytes.sum())

    @cached_property
    def _by_delay(self) -> tuple[FloatArray, FloatArray]:
        """Seconds per byte `[U]` by which the devices with room delay a unit, falling, and the bytes of the units so far `[U]`."""
        unit_s, scarce = self.problem.unit_time_s, self._is_scarce
        apart_s = unit_s[:, ~scarce].min(axis=1) - unit_s[:, scarce].min(axis=1)
        delay = np.nan_to_num(apart_s / np.maximum(1.0, self._unit_bytes), nan=0.0, posinf=1e30, neginf=-1e30)
        order = np.argsort(-delay, kind="stable")
        return delay[order], np.cumsum(self._unit_bytes[order])


def live_at_peak(problem: Problem, order: IntArray) -> BoolArray:
    """`[T]` true for tensors that are live when one device, which runs all ops in `order` `[N]`, needs most memory."""
    graph = problem.graph
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[order] = np.arange(graph.num_ops)
    begin = position[graph.tensor_producer]
    end = np.where(np.diff(graph.consumer_offsets) == 0, graph.num_ops, begin)
    np.maximum.at(end, graph.consumer_tensor, position[graph.consumers])
    change = np.zeros(graph.num_ops + 2)
    np.add.at(change, begin, graph.tensor_bytes)
    np.subtract.at(change, end + 1, graph.tensor_bytes)
    used = np.cumsum(change)[: graph.num_ops] + graph.workspace_bytes[order]
    peak = int(used.argmax()) if len(used) else 0
    return np.asarray((begin <= peak) & (end >= peak))
