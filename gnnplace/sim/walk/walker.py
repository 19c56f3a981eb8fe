"""The local search that planners are handed: a problem's units, moved inside the engine of its ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gnnplace.arrays import IntArray, csr
from gnnplace.evaluation import Problem, Proposals, Walk, WalkRequest
from gnnplace.interruption import interrupts_held
from gnnplace.sim.state import EngineState, engine_state, no_recording
from gnnplace.sim.tables import EngineTables
from gnnplace.sim.walk.metropolis import Metropolis, UnitOps, metropolis
from gnnplace.sim.walk.proposals import UnitGraph, draw_move, proposal_tables, unit_graph

__all__ = ["Walker"]


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
                count, device = draw_move(self._graph, tables, devices, rng, room)
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
                self.tables, self._unit_ops, self._graph, proposals, rule, state, no_recording(),
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
    def _graph(self) -> UnitGraph:
        return unit_graph(self.problem)

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
