"""Simulated annealing with random moves, in compiled code: draw a move, simulate it, accept or undo it.

The acceptance limit is drawn before the move is simulated. The run stops once its lower bound exceeds that limit: free
transfers and the fastest devices, or the ops that are left for a device. It begins at the last kept state before the move can
have an effect, see `moves.py`. An accepted move invalidates the later states; they are kept again by the next runs that pass
these instants without an effect of their own moves.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.evaluation import Problem
from gnnplace.graph.units import UnitGraph
from gnnplace.interruption import deferred_interrupts
from gnnplace.local_search import Proposals, Walk, WalkRequest
from gnnplace.sim.compiled import Minimised, minimised_s
from gnnplace.sim.engine import advance, result
from gnnplace.sim.kept_states import (
    KeptStates,
    bytes_per_state,
    first_input_s,
    keep,
    kept_states,
    restore,
    tensor_producers,
)
from gnnplace.sim.random_moves import ProposalTables, draw_move, proposal_tables
from gnnplace.sim.state import FAILED, NO_RECORDING, EngineState, Recording, engine_state, reset
from gnnplace.sim.tables import EngineTables, IndexArray

_ROUNDING = 1e-9
_MOST_KEPT, _KEPT_BYTES = 8, 32 * 2**20  # states of the current placement's run


class _Task(NamedTuple):
    """The inputs of a walk."""

    tables: EngineTables
    unit_ops: tuple[IntArray, IntArray]  # offsets [U + 1], ops [N] of each unit in the engine's numbers
    producer: IntArray  # [T] producer of each tensor
    unit_s: FloatArray  # [U, D] seconds of all ops of a unit
    occupies: BoolArray  # [D, resources]; where none are shared, each device is one
    graph: UnitGraph
    proposals: ProposalTables
    minimised: Minimised
    temperatures_s: tuple[float, float]  # first and last


class _Base(NamedTuple):
    """The current placement of a walk after its run, and scratch for that of a move; one thread uses it at a time."""

    state: EngineState
    saved: KeptStates
    assignment: IndexArray  # [N]
    total_s: FloatArray  # seconds of all ops, as in `EngineState`
    record: Recording  # of the run of a move
    end_s: FloatArray  # [N] ends of ops
    resident: IntArray  # [D] scratch
    scratch: IntArray  # [3, U]


def _base(tables: EngineTables, num_units: int) -> _Base:
    state, num_ops = engine_state(tables), len(tables.num_inputs)
    count = max(0, min(_MOST_KEPT, num_ops - 1, _KEPT_BYTES // bytes_per_state(state)))
    record = NO_RECORDING._replace(start_s=np.empty(num_ops), end_s=np.empty(num_ops))
    return _Base(
        state,
        kept_states(state, count),
        np.empty(num_ops, dtype=np.uint32),
        np.zeros_like(state.total_s),
        record,
        np.empty(num_ops),
        np.empty(len(tables.capacity_bytes), dtype=np.int64),
        np.empty((3, num_units), dtype=np.int64),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _metropolis(
    task: _Task, evaluations: int, device_of_unit: IntArray, base: _Base, rng: np.random.Generator
) -> tuple[float, IntArray, float, IntArray, FloatArray]:
    """Moves `device_of_unit` `[U]`; returns its seconds, the best placement `[U]`, and its seconds.

    Also returns the evaluation, from 1, and the seconds of each improvement. One long function: a helper that takes `base` counts
    the references to all its arrays, which costs a microsecond per evaluation.
    """
    tables, unit_ops, producer, unit_s, occupies, graph, proposals, minimised, temperatures_s = task
    state, saved, assignment, record = base.state, base.saved, base.assignment, base.record
    best, members, num_ops, improvements = device_of_unit.copy(), base.scratch[0], len(assignment), 0
    improved_at, improved_s = np.empty(evaluations, dtype=np.int64), np.empty(evaluations)
    for unit in range(len(best)):
        members[0] = unit
        _assign(unit_ops, members, 1, device_of_unit[unit], assignment)
    reset(tables, assignment, state)
    advance(tables, assignment, state, record, num_ops, np.inf)
    value_s = best_s = minimised_s(minimised, result(tables, assignment, state, base.resident))
    kept = 0
    if value_s == np.inf:  # it has no schedule
        record.end_s[:] = 0.0
    _accept(task, base, device_of_unit)
    for evaluation in range(evaluations):
        count, device, back = draw_move(graph, proposals, device_of_unit, rng, base.scratch)
        here = device_of_unit[members[0]]
        change_s = _first_change_s(tables, producer, unit_ops, members[: count + back], base.end_s)
        heat_s = temperature_s(temperatures_s[0], temperatures_s[1], evaluation / evaluations)
        limit_s = value_s - heat_s * np.log(1.0 - rng.random())
        until_s = np.inf if minimised.throughput else limit_s * (1.0 + _ROUNDING)
        _assign(unit_ops, members[:count], count, device, assignment)
        _assign(unit_ops, members[count:], back, here, assignment)
        row = kept - 1
        while row >= 0 and saved.when_s[row] >= change_s:
            row -= 1
        if row >= 0:
            restore(state, saved, row)
        else:
            reset(tables, assignment, state)
        state.total_s[:] = base.total_s
        for index in range(count + back):
            source, target = (here, device) if index < count else (device, here)
            _add(unit_s, occupies, members[index], source, -1.0, state.total_s)
            _add(unit_s, occupies, members[index], target, 1.0, state.total_s)
        record.end_s[:] = base.end_s
        if row + 1 == kept < len(saved.when_s):
            ended = _ends_before(base.end_s, change_s)
            while kept < len(saved.when_s) and ended >= _slot(kept, saved, num_ops) and not state.counters[FAILED]:
                advance(tables, assignment, state, record, _slot(kept, saved, num_ops), until_s)
                if not state.counters[FAILED]:
                    keep(state, saved, kept)
                    kept += 1
        advance(tables, assignment, state, record, num_ops, until_s)
        after_s = minimised_s(minimised, result(tables, assignment, state, base.resident))
        if after_s > limit_s or after_s == np.inf:
            _assign(unit_ops, members[:count], count, here, assignment)
            _assign(unit_ops, members[count:], back, device, assignment)
            continue
        value_s = after_s
        for index in range(count + back):
            device_of_unit[members[index]] = device if index < count else here
        _accept(task, base, device_of_unit)
        while kept > 0 and saved.when_s[kept - 1] >= change_s:
            kept -= 1
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
def _slot(row: int, saved: KeptStates, num_ops: int) -> int:
    """Number of ops that have ended in the kept state `row`."""
    return (row + 1) * num_ops // (len(saved.when_s) + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _ends_before(end_s: FloatArray, when_s: float) -> int:
    count = 0
    for end in end_s:
        count += end < when_s
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _first_change_s(
    tables: EngineTables,
    producer: IntArray,
    unit_ops: tuple[IntArray, IntArray],
    units: IntArray,
    end_s: FloatArray,
) -> float:
    """First end of a producer of these units' ops; nothing before it depends on their devices."""
    offsets, ops = unit_ops
    first_s = np.inf
    for unit in units:
        for entry in range(offsets[unit], offsets[unit + 1]):
            first_s = min(first_s, first_input_s(tables, producer, end_s, ops[entry]))
    return first_s


@njit(cache=True, nogil=True, error_model="numpy")
def _accept(task: _Task, base: _Base, device_of_unit: IntArray) -> None:
    """The last run becomes that of the current placement."""
    base.end_s[:] = base.record.end_s
    base.total_s[:] = 0.0
    for unit in range(len(device_of_unit)):
        _add(task.unit_s, task.occupies, unit, device_of_unit[unit], 1.0, base.total_s)


@njit(cache=True, nogil=True, error_model="numpy")
def _add(unit_s: FloatArray, occupies: BoolArray, unit: int, device: int, sign: float, total_s: FloatArray) -> None:
    """Adds the seconds of a unit on a device to those of all devices that run nothing else meanwhile, or takes them off."""
    for resource in range(occupies.shape[1]):
        if occupies[device, resource]:
            total_s[resource] += sign * unit_s[unit, device]


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
    _idle: list[_Base] = field(default_factory=list, init=False, repr=False)

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
        tables, devices = proposal_tables(self.problem, proposals), self._device_of_unit(assignment)
        if len(tables.units):
            scratch = np.empty((3, len(devices)), dtype=np.int64)
            with deferred_interrupts():
                count, device, back = draw_move(self.problem.unit_graph, tables, devices, rng, scratch)
            here = devices[scratch[0, 0]]
            devices[scratch[0, :count]] = device
            devices[scratch[0, count : count + back]] = here
        return devices[self.problem.unit_of_op]

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """Metropolis moves from an assignment; see `LocalSearch`."""
        problem, devices = self.problem, self._device_of_unit(request.assignment)
        proposals = proposal_tables(problem, request.proposals)
        evaluations = request.evaluations if len(proposals.units) else 0
        temperatures = request.first_temperature_s, request.last_temperature_s
        task = _Task(
            self.tables,
            self._unit_ops,
            self._producer,
            *self._loads,
            problem.unit_graph,
            proposals,
            Minimised.of(problem),
            temperatures,
        )
        try:
            base = self._idle.pop()
        except IndexError:
            base = _base(self.tables, problem.num_units)
        with deferred_interrupts():
            value_s, best, best_s, improved_at, improved_s = _metropolis(task, evaluations, devices, base, rng)
        self._idle.append(base)
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

    @cached_property
    def _producer(self) -> IntArray:
        return tensor_producers(self.tables)

    @cached_property
    def _loads(self) -> tuple[FloatArray, BoolArray]:
        """Seconds `[U, D]` of units, and the resources `[D, resources]` that each device occupies."""
        tables, num_devices = self.tables, self.problem.topology.num_devices
        unit_s = np.zeros((self.problem.num_units, num_devices))
        np.add.at(unit_s, self.unit_of_op[tables.old_op], tables.op_time_s)
        occupies = self.problem.topology.uses_resource if tables.excludes else np.eye(num_devices, dtype=np.bool_)
        return unit_s, np.ascontiguousarray(occupies)

    def _device_of_unit(self, assignment: IntArray) -> IntArray:
        """`[U]` the device of each unit's first op."""
        devices = np.empty(self.problem.num_units, dtype=np.int64)
        devices[self.problem.unit_of_op[::-1]] = assignment[::-1]
        return devices
