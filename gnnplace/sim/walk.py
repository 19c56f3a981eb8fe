"""The walk: draw a move, simulate it, accept or undo it. Compiled.

How bad a move may be is drawn before it is simulated, so that its run ends as soon as it is certain to be worse: with
transfers free and every op on its fastest device, what is left would take too long. To begin at states kept of the
current placement's run, as `moves.py` does, was measured to be no faster here: an accepted move outdates the states
behind it, and to keep new ones costs as much as they save.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray, csr
from gnnplace.evaluation import Problem, Proposals, Walk, WalkRequest
from gnnplace.graph.unit_graph import UnitGraph
from gnnplace.interruption import interrupts_held
from gnnplace.sim.batch import result
from gnnplace.sim.engine import advance
from gnnplace.sim.proposals import ProposalTables, draw_move, proposal_tables
from gnnplace.sim.state import EngineState, Recording, engine_state, no_recording, reset
from gnnplace.sim.tables import EngineTables, IndexArray

__all__ = ["Metropolis", "UnitOps", "Walker", "metropolis"]


_ROUNDING = 1e-9


class Metropolis(NamedTuple):
    """What is minimised, and how worse moves are accepted."""

    throughput: bool
    penalty_s: float
    penalty_bytes: float
    first_temperature_s: float
    last_temperature_s: float


class UnitOps(NamedTuple):
    """The ops of each unit, in the engine's numbers."""

    offsets: IntArray  # [U + 1]
    ops: IntArray  # [N]


@njit(cache=True, nogil=True, error_model="numpy")
def metropolis(
    tables: EngineTables,
    unit_ops: UnitOps,
    graph: UnitGraph,
    proposals: ProposalTables,
    rule: Metropolis,
    state: EngineState,
    record: Recording,
    device_of_unit: IntArray,
    best: IntArray,
    improved_at: IntArray,
    improved_s: FloatArray,
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """Walks for `len(improved_at)` evaluations; gives current and best seconds and the number of improvements.

    Writes the last placement to `device_of_unit` `[U]`, the best one to `best` `[U]`, and each improvement's evaluation
    (from 1) and seconds to `improved_at` and `improved_s`. `record` is one that writes nothing.

    >>> from gnnplace.evaluation import Proposals
    >>> from gnnplace.sim.example import diamond, diamond_tables
    >>> from gnnplace.sim.state import engine_state, no_recording
    >>> from gnnplace.sim.proposals import proposal_tables
    >>> problem, tables = diamond(), diamond_tables()
    >>> graph, proposals = problem.unit_graph, proposal_tables(problem, Proposals(0.8, 0.5, 3.0))
    >>> downhill, unit_ops = Metropolis(False, *problem.penalty, 0.0, 0.0), UnitOps(np.arange(5), np.arange(4))
    >>> room = np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64), np.empty(20, dtype=np.int64), np.empty(20)
    >>> _, best_s, improvements = metropolis(tables, unit_ops, graph, proposals, downhill, engine_state(tables),
    ...     no_recording(), *room, np.random.default_rng(0))
    >>> round(best_s, 3), room[1].tolist(), room[3][:improvements].round(3).tolist()
    (4.001, [1, 0, 1, 0], [4.002, 4.001])
    """
    num_ops, evaluations = len(unit_ops.ops), len(improved_at)
    assignment, room = np.empty(num_ops, dtype=np.uint32), np.empty((3, len(best)), dtype=np.int64)
    resident, members, improvements = np.empty(len(tables.capacity_bytes), dtype=np.int64), room[0], 0
    for unit in range(len(best)):
        members[0] = unit
        _assign(unit_ops, members, 1, device_of_unit[unit], assignment)
    reset(tables, assignment, state)
    advance(tables, assignment, state, record, num_ops, np.inf)
    value_s = best_s = _penalised_s(rule, result(tables, assignment, state, resident))
    best[:] = device_of_unit
    for evaluation in range(evaluations):
        count, device = draw_move(graph, proposals, device_of_unit, rng, room)
        here = device_of_unit[members[0]]
        _assign(unit_ops, members, count, device, assignment)
        limit_s = value_s - _temperature_s(rule, evaluation / evaluations) * np.log(1.0 - rng.random())
        reset(tables, assignment, state)
        until_s = np.inf if rule.throughput else limit_s * (1.0 + _ROUNDING)
        advance(tables, assignment, state, record, num_ops, until_s)
        after_s = _penalised_s(rule, result(tables, assignment, state, resident))
        if after_s > limit_s or after_s == np.inf:
            _assign(unit_ops, members, count, here, assignment)
            continue
        value_s = after_s
        for index in range(count):
            device_of_unit[members[index]] = device
        if value_s < best_s:
            best_s = value_s
            best[:] = device_of_unit
            improved_at[improvements], improved_s[improvements] = evaluation + 1, value_s
            improvements += 1
    return value_s, best_s, improvements


@njit(cache=True, nogil=True, error_model="numpy")
def _assign(unit_ops: UnitOps, units: IntArray, count: int, device: int, assignment: IndexArray) -> None:
    """Puts the first units on a device."""
    for index in range(count):
        for entry in range(unit_ops.offsets[units[index]], unit_ops.offsets[units[index] + 1]):
            assignment[unit_ops.ops[entry]] = device


@njit(cache=True, nogil=True, error_model="numpy")
def _temperature_s(rule: Metropolis, done: float) -> float:
    """Geometric, after a share of the evaluations; zero throughout where it is zero."""
    if rule.first_temperature_s == 0.0:
        return 0.0
    return float(rule.first_temperature_s * (rule.last_temperature_s / rule.first_temperature_s) ** done)


@njit(cache=True, nogil=True, error_model="numpy")
def _penalised_s(rule: Metropolis, outcome: tuple[float, float, float]) -> float:
    """As `Problem.penalised_batch_s`, to the last bit."""
    makespan_s, period_s, shortfall_bytes = outcome
    objective_s = period_s if rule.throughput else makespan_s
    if shortfall_bytes > 0:
        objective_s += (1.0 + shortfall_bytes / rule.penalty_bytes) * rule.penalty_s
    return objective_s


@dataclass(frozen=True, eq=False)
class Walker:
    """Random moves of the units of one problem; may be used from several threads at once.

    >>> from gnnplace.sim.example import diamond, diamond_tables
    >>> walker, moves = Walker(diamond(), diamond_tables(), np.arange(4)), Proposals(0.8, 0.5, 3.0)
    >>> alone, rng = np.zeros(4, dtype=np.int64), np.random.default_rng(0)
    >>> bool((walker.propose(alone, moves, rng) != alone).any())
    True
    >>> found = walker.walk(WalkRequest(alone, 20, 0.0, 0.0, moves), rng)
    >>> round(found.best_s, 3), found.evaluations, walker.ops_per_evaluation
    (4.001, 20, 4)
    >>> [round(each.best_s, 3) for each in walker.walk_side_by_side([WalkRequest(alone, 20, 0.0, 0.0, moves)] * 2, rng)]
    [4.001, 4.001]
    """

    problem: Problem
    tables: EngineTables
    unit_of_op: IntArray  # [N] unit of each simulated op, in the numbers of its graph
    pool: Callable[[], Executor] | None = None
    """Threads for walks side by side, if there are several."""
    _idle: list[EngineState] = field(default_factory=list, init=False, repr=False)

    @property
    def ops_per_evaluation(self) -> int:
        """Ops that the engine runs for one placement."""
        return len(self.unit_of_op)

    def propose(self, assignment: IntArray, proposals: Proposals, rng: np.random.Generator) -> IntArray:
        """`[N]` after one random move; see `LocalSearch`."""
        tables, devices = proposal_tables(self.problem, proposals), self._device_of_unit(assignment)
        if len(tables.units):
            room = np.empty((3, len(devices)), dtype=np.int64)
            with interrupts_held():
                count, device = draw_move(self.problem.unit_graph, tables, devices, rng, room)
            devices[room[0, :count]] = device
        return devices[self.problem.unit_of_op]

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """Metropolis moves from an assignment; see `LocalSearch`."""
        proposals, devices = proposal_tables(self.problem, request.proposals), self._device_of_unit(request.assignment)
        evaluations = request.evaluations if len(proposals.units) else 0
        penalty_s, penalty_bytes = self.problem.penalty
        rule = Metropolis(
            self.problem.objective == "throughput", penalty_s, penalty_bytes,
            request.first_temperature_s, request.last_temperature_s,
        )  # fmt: skip
        best, improved_at, improved_s = devices.copy(), np.empty(evaluations, dtype=np.int64), np.empty(evaluations)
        try:
            state = self._idle.pop()
        except IndexError:
            state = engine_state(self.tables)
        with interrupts_held():
            value_s, best_s, count = metropolis(
                self.tables, self._unit_ops, self.problem.unit_graph, proposals, rule, state, no_recording(),
                devices, best, improved_at, improved_s, rng,
            )  # fmt: skip
        self._idle.append(state)
        return Walk(
            assignment=devices[self.problem.unit_of_op],
            value_s=value_s,
            best=best[self.problem.unit_of_op],
            best_s=best_s,
            evaluations=evaluations,
            improvements=tuple(zip(improved_at[:count].tolist(), improved_s[:count].tolist(), strict=True)),
        )

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        """Walks on all threads; see `LocalSearch`."""
        run = map if self.pool is None else self.pool().map
        return list(run(self.walk, requests, rng.spawn(len(requests))))

    @cached_property
    def _unit_ops(self) -> UnitOps:
        unit_of_op = self.unit_of_op[self.tables.old_op]
        offsets, ops = csr(unit_of_op, np.arange(len(unit_of_op)), self.problem.num_units)
        return UnitOps(offsets, ops)

    def _device_of_unit(self, assignment: IntArray) -> IntArray:
        """`[U]`: a unit is where its first op is."""
        devices = np.empty(self.problem.num_units, dtype=np.int64)
        devices[self.problem.unit_of_op[::-1]] = assignment[::-1]
        return devices
