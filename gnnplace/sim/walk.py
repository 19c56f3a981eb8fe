"""Random moves, and simulated annealing with them, in compiled code: draw a move, simulate it, accept or undo it.

The acceptance limit is drawn before the move is simulated. The run stops once its lower bound exceeds that limit: free
transfers, every op on its fastest device. Starting from kept states, as in `moves.py`, was measured to be no faster here,
because every accepted move invalidates the later states.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray, csr
from gnnplace.evaluation import Problem
from gnnplace.graph.units import UnitGraph, first_above, grow_cluster, unit_bytes
from gnnplace.interruption import deferred_interrupts
from gnnplace.local_search import Proposals, Walk, WalkRequest
from gnnplace.sim.compiled import Minimised, minimised_s
from gnnplace.sim.engine import advance, result
from gnnplace.sim.state import NO_RECORDING, EngineState, Recording, engine_state, reset
from gnnplace.sim.tables import EngineTables, IndexArray

_ROUNDING = 1e-9
_TRIES = 16  # draws of units that may make room


class _ProposalTables(NamedTuple):
    """`Proposals` as compiled code reads them."""

    units: IntArray  # [M] units that a move can begin at
    cumulative: FloatArray  # [M] cumulative weights of these units
    device_weights: FloatArray  # [U, D] zero where a unit may not go
    follow_neighbour: float
    cluster_share: float
    mean_cluster: float
    exchange_share: float
    unit_bytes: FloatArray  # [U]


def _proposal_tables(problem: Problem, proposals: Proposals) -> _ProposalTables:
    """The tables of `proposals`; `units` is empty if no movable unit has a weight."""
    units = problem.movable_units
    weights = np.ones(problem.num_units) if proposals.unit_weights is None else proposals.unit_weights
    units = units[weights[units] > 0]
    device_weights = problem.action_mask.astype(np.float64)
    if proposals.device_weights is not None:
        device_weights = np.where(problem.action_mask, proposals.device_weights, 0.0)
    return _ProposalTables(
        units, np.cumsum(weights[units], dtype=np.float64), device_weights,
        proposals.follow_neighbour, proposals.cluster_share, proposals.mean_cluster, proposals.exchange_share,
        unit_bytes(problem.graph, problem.unit_of_op, 1.0),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_move(
    graph: UnitGraph, tables: _ProposalTables, device_of_unit: IntArray, rng: np.random.Generator, scratch: IntArray
) -> tuple[int, int, int]:
    """Draws a move: the number of units that move, the device that they move to, and the number of units that make room.

    The units are written to `scratch[0]` of `[3, U]`; all are on one other device. Those that make room come after them; they
    go the other way. Plain loops compile several times faster than array expressions, and such moves are small.
    """
    unit = tables.units[first_above(tables.cumulative, rng.random() * tables.cumulative[-1])]
    device = _target(graph, tables, device_of_unit, rng, unit)
    members = scratch[0]
    members[0] = unit
    count = 1
    if rng.random() < tables.cluster_share:
        count = grow_cluster(graph, tables.mean_cluster, device_of_unit, rng, scratch)
    kept = 0
    for index in range(count):
        if graph.allowed[members[index], device]:
            members[kept] = members[index]
            kept += 1
    back = 0
    if tables.exchange_share > 0.0 and rng.random() < tables.exchange_share:
        back = _draw_back(graph, tables, device_of_unit, rng, members, (kept, device))
    return kept, device, back


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_back(
    graph: UnitGraph,
    tables: _ProposalTables,
    device_of_unit: IntArray,
    rng: np.random.Generator,
    members: IntArray,
    move: tuple[int, int],
) -> int:
    """Number of units that leave the device of a move, until they hold the bytes of its units; written behind these in `members`."""
    (count, device), back, missing = move, 0, 0.0
    here = device_of_unit[members[0]]
    for index in range(count):
        missing += tables.unit_bytes[members[index]]
    for _ in range(_TRIES):
        unit = tables.units[int(rng.random() * len(tables.units))]
        is_drawn = False
        for index in range(back):
            is_drawn = is_drawn or members[count + index] == unit
        if is_drawn or device_of_unit[unit] != device or not graph.allowed[unit, here]:
            continue
        members[count + back] = unit
        back += 1
        missing -= tables.unit_bytes[unit]
        if missing <= 0.0:
            break
    return back


@njit(cache=True, nogil=True, error_model="numpy")
def _target(
    graph: UnitGraph, tables: _ProposalTables, device_of_unit: IntArray, rng: np.random.Generator, unit: int
) -> int:
    """A random neighbour's device, or a device drawn by its weight; never the unit's own."""
    here, weights = device_of_unit[unit], tables.device_weights
    begin, end = graph.neighbour_offsets[unit], graph.neighbour_offsets[unit + 1]
    if end > begin and rng.random() < tables.follow_neighbour:
        device = device_of_unit[graph.neighbours[begin + int(rng.random() * (end - begin))]]
        if device != here and graph.allowed[unit, device]:
            return int(device)
    total, others = 0.0, 0
    for device in range(weights.shape[1]):
        if device != here and graph.allowed[unit, device]:
            total += weights[unit, device]
            others += 1
    evenly = total == 0.0  # no other device has a weight
    left, chosen = rng.random() * (others if evenly else total), -1
    for device in range(weights.shape[1]):
        weight = 1.0 if evenly else weights[unit, device]
        if device != here and graph.allowed[unit, device] and weight > 0.0:
            chosen = device
            left -= weight
            if left < 0.0:
                break
    return chosen


class _Task(NamedTuple):
    """The inputs of a walk."""

    tables: EngineTables
    unit_ops: tuple[IntArray, IntArray]  # offsets [U + 1], ops [N] of each unit in the engine's numbers
    graph: UnitGraph
    proposals: _ProposalTables
    minimised: Minimised
    temperatures_s: tuple[float, float]  # first and last
    record: Recording  # records nothing


@njit(cache=True, nogil=True, error_model="numpy")
def _metropolis(
    task: _Task, evaluations: int, device_of_unit: IntArray, state: EngineState, rng: np.random.Generator
) -> tuple[float, IntArray, float, IntArray, FloatArray]:
    """Moves `device_of_unit` `[U]`; returns its seconds, the best placement `[U]`, and its seconds.

    Also returns the evaluation, from 1, and the seconds of each improvement.
    """
    tables, unit_ops, graph, proposals, minimised, temperatures_s, record = task
    num_ops, best = len(unit_ops[1]), device_of_unit.copy()
    improved_at, improved_s = np.empty(evaluations, dtype=np.int64), np.empty(evaluations)
    assignment, scratch = np.empty(num_ops, dtype=np.uint32), np.empty((3, len(best)), dtype=np.int64)
    resident, members, improvements = np.empty(len(tables.capacity_bytes), dtype=np.int64), scratch[0], 0
    for unit in range(len(best)):
        members[0] = unit
        _assign(unit_ops, members, 1, device_of_unit[unit], assignment)
    reset(tables, assignment, state)
    advance(tables, assignment, state, record, num_ops, np.inf)
    value_s = best_s = minimised_s(minimised, result(tables, assignment, state, resident))
    for evaluation in range(evaluations):
        count, device, back = _draw_move(graph, proposals, device_of_unit, rng, scratch)
        here = device_of_unit[members[0]]
        _assign(unit_ops, members[:count], count, device, assignment)
        _assign(unit_ops, members[count:], back, here, assignment)
        heat_s = temperature_s(temperatures_s[0], temperatures_s[1], evaluation / evaluations)
        limit_s = value_s - heat_s * np.log(1.0 - rng.random())
        reset(tables, assignment, state)
        until_s = np.inf if minimised.throughput else limit_s * (1.0 + _ROUNDING)
        advance(tables, assignment, state, record, num_ops, until_s)
        after_s = minimised_s(minimised, result(tables, assignment, state, resident))
        if after_s > limit_s or after_s == np.inf:
            _assign(unit_ops, members[:count], count, here, assignment)
            _assign(unit_ops, members[count:], back, device, assignment)
            continue
        value_s = after_s
        for index in range(count + back):
            device_of_unit[members[index]] = device if index < count else here
        if value_s < best_s:
            best_s = value_s
            best[:] = device_of_unit
            improved_at[improvements], improved_s[improvements] = evaluation + 1, value_s
            improvements += 1
    return value_s, best, best_s, improved_at[:improvements], improved_s[:improvements]


@njit(cache=True, nogil=True, error_model="numpy")
def _assign(
    unit_ops: tuple[IntArray, IntArray], units: IntArray, count: int, device: int, assignment: IndexArray
) -> None:
    """Puts the first `count` of `units` on a device."""
    offsets, ops = unit_ops
    for index in range(count):
        for entry in range(offsets[units[index]], offsets[units[index] + 1]):
            assignment[ops[entry]] = device


@njit(cache=True, nogil=True, error_model="numpy")
def temperature_s(first_s: float, last_s: float, done: float) -> float:
    """The temperature after a fraction `done` of the evaluations: geometric, or always zero if `first_s` is zero."""
    if first_s == 0.0:
        return 0.0
    return float(first_s * (last_s / first_s) ** done)


@dataclass(frozen=True, eq=False)
class Walker:
    """The `LocalSearch` over the units of one problem; threads may share it."""

    problem: Problem
    tables: EngineTables
    unit_of_op: IntArray  # [N] unit of each simulated op, in the numbers of its graph
    pool: Callable[[], Executor] | None = None
    """Threads for walks side by side; None: the calling thread."""
    _idle: list[EngineState] = field(default_factory=list, init=False, repr=False)

    @property
    def ops_per_evaluation(self) -> int:
        """Number of ops that the engine runs per placement."""
        return len(self.unit_of_op)

    @property
    def num_threads(self) -> int:
        """Walks that run at the same time."""
        return 1 if self.pool is None else self.problem.num_threads

    def propose(self, assignment: IntArray, proposals: Proposals, rng: np.random.Generator) -> IntArray:
        """`[N]` the assignment after one random move; see `LocalSearch`."""
        tables, devices = _proposal_tables(self.problem, proposals), self._device_of_unit(assignment)
        if len(tables.units):
            scratch = np.empty((3, len(devices)), dtype=np.int64)
            with deferred_interrupts():
                count, device, back = _draw_move(self.problem.unit_graph, tables, devices, rng, scratch)
            here = devices[scratch[0, 0]]
            devices[scratch[0, :count]] = device
            devices[scratch[0, count : count + back]] = here
        return devices[self.problem.unit_of_op]

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """Metropolis moves from an assignment; see `LocalSearch`."""
        problem, devices = self.problem, self._device_of_unit(request.assignment)
        proposals = _proposal_tables(problem, request.proposals)
        evaluations = request.evaluations if len(proposals.units) else 0
        temperatures = request.first_temperature_s, request.last_temperature_s
        task = _Task(
            self.tables,
            self._unit_ops,
            problem.unit_graph,
            proposals,
            Minimised.of(problem),
            temperatures,
            NO_RECORDING,
        )
        try:
            state = self._idle.pop()
        except IndexError:
            state = engine_state(self.tables)
        with deferred_interrupts():
            value_s, best, best_s, improved_at, improved_s = _metropolis(task, evaluations, devices, state, rng)
        self._idle.append(state)
        last, best = devices[problem.unit_of_op], best[problem.unit_of_op]
        improvements = tuple(zip(improved_at.tolist(), improved_s.tolist(), strict=True))
        return Walk(last, value_s, best, best_s, evaluations, improvements)

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        """Independent walks on all threads; see `LocalSearch`."""
        run = map if self.pool is None else self.pool().map
        return list(run(self.walk, requests, rng.spawn(len(requests))))

    @cached_property
    def _unit_ops(self) -> tuple[IntArray, IntArray]:
        return csr(self.unit_of_op[self.tables.old_op], np.arange(len(self.unit_of_op)), self.problem.num_units)

    def _device_of_unit(self, assignment: IntArray) -> IntArray:
        """`[U]` the device of each unit's first op."""
        devices = np.empty(self.problem.num_units, dtype=np.int64)
        devices[self.problem.unit_of_op[::-1]] = assignment[::-1]
        return devices
