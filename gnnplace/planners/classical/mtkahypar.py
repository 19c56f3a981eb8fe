"""Mt-KaHyPar: a hypergraph of tensors cut into parts that fit into the devices' memories."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.graph.units import unit_bytes
from gnnplace.isolated_process import IsolatedProcess, ProcessEnded
from gnnplace.planners.classical.mtkahypar_process import Hypergraph, partitioner
from gnnplace.planners.classical.partition_graph import Parts, nets_of, parts_of, whole_numbers
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution

_TOTAL = 1 << 24  # the library's weights are 32-bit integers


@dataclass(frozen=True)
class MtKahyparConfig:
    """The sweep; the partitioner keeps the defaults of its deterministic preset (Gottesbüren and Hamann 2022)."""

    imbalances: tuple[float, ...] = (np.inf, 0.3, 0.05)
    """Shares that a part may have beyond its due, within the memory of its device (infinite: all of that memory)."""
    orders: int = 3
    """Random numberings of the units, each partitioned anew."""
    device_orders: int = 4
    """Random orders in which the parts go to devices, besides the order of the cut and busiest part to fastest device."""
    timeout_s: float = 30.0
    """Wall-clock seconds of one partition, or of the start of the library, which hangs now and then."""
    max_timeouts: int = 3
    """Timeouts that end the sweep."""
    activation_shares: tuple[float, ...] = (1.0, 0.3, 0.0)
    """Shares of the bytes produced that count as weight; the next share is tried only while memory limits every partition."""


def plan(problem: Problem, budget: Budget, seed: int, config: MtKahyparConfig = MtKahyparConfig()) -> Solution:
    """The best of many partitions with the least sum of (parts that a tensor touches - 1) times its transfer.

    Mt-KaHyPar (Gottesbüren, Heuer, Maas, Sanders and Schlag 2024), deterministic mode. A vertex is a unit and weighs its
    bytes, weights and results. A net is a tensor and weighs the seconds of its transfer over a mean link, so that the
    objective km1 counts a tensor once for each device that receives it. The number of parts runs from 2 to all devices,
    fastest first. The imbalance is what memory allows; because plenty of memory would leave everything in one part, the
    sweep also tries smaller imbalances about shares by the devices' speeds.

    Details: every part has a limit of its own, as memories differ. A unit that may not run on its part's device goes to
    the fastest device that may run it (fixed vertices would serve better, but make release 1.7 crash). `set_seed` of
    release 1.7 has no effect in deterministic mode, so the seed renumbers the units instead. The single devices are
    candidates too, and each distinct placement is evaluated once. A partition that crashes the library or takes longer
    than `timeout_s` is left out, so a loaded machine may find fewer than an idle one.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001

    Raises:
        MissingDependency: the library is not installed, or does not start.
    """
    with Search(problem, budget, "mtkahypar", seed) as search:
        search.evaluate_batch(problem.single_device_assignments)
        if problem.num_units > 1 and problem.topology.num_devices > 1:
            if importlib.util.find_spec("mtkahypar") is None:
                raise MissingDependency("the planner 'mtkahypar' needs mtkahypar; pip install 'gnnplace[partition]'")
            with IsolatedProcess(partitioner) as process:
                _search_partitions(search, _Cutter(problem, process, config.timeout_s), config)
    return search.solution()


def part_limits(total: float, capacity: FloatArray, speed: FloatArray, imbalance: float) -> FloatArray | None:
    """`[P]` the largest weight of each part: `1 + imbalance` times `total` in sum, by speed, within the capacities.

    Parts with room take over the weight that full devices cannot hold, except for half of what those hold. None where
    the devices hold too little together, or where one may take everything, which needs no partitioner.
    """
    limits, left = capacity.astype(np.float64), (1.0 + imbalance) * total
    if limits.sum() < total:
        return None
    rest = list(np.argsort(limits / speed, kind="stable"))
    while rest and limits[rest[0]] * speed[rest].sum() <= left * speed[rest[0]]:
        left -= limits[rest.pop(0)]
    if rest:
        held = np.delete(limits, rest).sum()
        limits[rest] = min(left, total - held / 2 if held else left) * speed[rest] / speed[rest].sum()
    return limits if limits.max() < total else None


def _search_partitions(search: Search, cutter: _Cutter, config: MtKahyparConfig) -> None:
    """Evaluates the sweep, with the largest activation share first."""
    problem, rng = search.problem, np.random.default_rng(search.seed)
    seen, parts = Seen(problem.single_device_assignments), parts_of(problem, hosts=True)
    for activation_share in config.activation_shares:
        weight = unit_bytes(problem.graph, problem.unit_of_op, activation_share)
        weight = weight if weight.any() else np.ones(problem.num_units)
        roomy = False
        for _ in range(config.orders):
            order = rng.permutation(problem.num_units)
            for used, limits in _limits(weight, problem, parts, config):
                if not search.remaining or cutter.timeouts >= config.max_timeouts:
                    return
                roomy |= bool((limits < problem.topology.memory_bytes[used.devices]).all())
                left_s = None if search.budget.seconds is None else search.budget.seconds - search.wall_s
                part = cutter.cut(weight, limits, used, order, left_s)
                if part is None:
                    continue
                found = [used.assignment(problem, p) for p in _on_devices(used, part, rng, config.device_orders)]
                fresh = seen.fresh(found)
                if fresh:
                    search.evaluate_batch(np.stack(fresh))
        if roomy and search.best_s <= problem.worst_case_s:
            return


def _limits(
    weight: FloatArray, problem: Problem, parts: Parts, config: MtKahyparConfig
) -> Iterator[tuple[Parts, FloatArray]]:
    """The first 2, 3, ... devices with the distinct limits `[P]` of all imbalances."""
    total = float(weight.sum())
    for count in range(2, len(parts.devices) + 1):
        used = Parts(parts.devices[:count], parts.speed[:count], parts.unit_s[:, :count], parts.fallback)
        capacity = problem.topology.memory_bytes[used.devices].astype(np.float64)
        seen: set[bytes] = set()
        for imbalance in config.imbalances:
            limits = part_limits(total, capacity, used.speed, imbalance)
            if limits is not None and limits.tobytes() not in seen:
                seen.add(limits.tobytes())
                yield used, limits


def _on_devices(used: Parts, part: IntArray, rng: np.random.Generator, random_orders: int) -> list[IntArray]:
    """`[U]` the parts in several device orders: as cut, the busiest part on the fastest device, and random ones."""
    count = len(used.devices)
    busy_s = np.bincount(part, used.mean_s, minlength=count)
    busiest_first = np.empty(count, dtype=np.int64)
    busiest_first[np.argsort(-busy_s, kind="stable")] = np.arange(count)
    return [part, busiest_first[part], *(rng.permutation(count)[part] for _ in range(random_orders))]


class _Cutter:
    """Partitions of one problem's hypergraph, from the library in an isolated process."""

    def __init__(self, problem: Problem, process: IsolatedProcess[Hypergraph, list[int]], timeout_s: float) -> None:
        self._mask, self._nets = problem.action_mask, nets_of(problem)
        self._process, self._timeout_s = process, timeout_s
        latency_s, per_byte_s = problem.topology.mean_transfer
        num_bytes = problem.graph.tensor_bytes[self._nets.tensors].astype(np.float64)
        self._net_weights = whole_numbers(latency_s + per_byte_s * num_bytes, least=1).tolist()
        self._has_started = False
        self.timeouts = 0
        """Number of partitions, and of starts, that took too long."""

    def cut(
        self, weight: FloatArray, limits: FloatArray, used: Parts, order: IntArray, left_s: float | None
    ) -> IntArray | None:
        """`[U]` part of each unit, which the library sees in `order` `[U]`; None when it found no partition."""
        # Units that none of the devices may run are moved elsewhere and weigh nothing here.
        heavy = np.where(self._mask[:, used.devices].any(axis=1), weight, 0.0)
        scale = _TOTAL / max(1.0, float(heavy.sum()))
        weights = np.empty_like(order)
        weights[order] = np.rint(heavy * scale)
        # Rounding must not leave less room than there is weight.
        room = np.ceil(np.minimum(limits * scale, _TOTAL)).astype(np.int64) + len(order)
        if weights.max() > room.max():
            return None
        pins = np.split(order[self._nets.units], self._nets.offsets[1:-1]) if self._net_weights else []
        graph = Hypergraph(weights.tolist(), room.tolist(), [net.tolist() for net in pins], self._net_weights)
        found = self._partition(graph, self._timeout_s if left_s is None else min(left_s, self._timeout_s))
        return None if found is None else np.array(found, dtype=np.int64)[order]

    def _partition(self, graph: Hypergraph, timeout_s: float) -> list[int] | None:
        """`[U]` part of each vertex; None when the library crashed or took too long.

        Raises:
            MissingDependency: the library has never worked.
        """
        until_s = time.monotonic() + timeout_s
        try:
            self._process.start(timeout_s)
            self._has_started = True
            return self._process.call(graph, max(0.0, until_s - time.monotonic()))
        except ProcessEnded as end:
            if end.cause == "time":
                self.timeouts += 1
            elif end.starting and not self._has_started:
                raise MissingDependency(
                    f"the planner 'mtkahypar' needs a working mtkahypar; with the one of {sys.executable} {end} "
                    "on a graph of four vertices; pip install --force-reinstall 'gnnplace[partition]'"
                ) from None
            return None
