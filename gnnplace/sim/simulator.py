"""The simulator: evaluates placements, schedules and moves of ops and of op groups."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from gnnplace.arrays import FloatArray, IntArray, csr
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidGraph, InvalidPlacement
from gnnplace.evaluation import Evaluation, EvaluationBatch, EvaluatorKind, Problem, SingleOps
from gnnplace.graph.coarsen import Coarsening
from gnnplace.graph.op_graph import OpGraph
from gnnplace.local_search import CompiledSimulator, LocalSearch
from gnnplace.placement import Placement
from gnnplace.schedule import Schedule
from gnnplace.sim.compiled import Minimised, compiled_run, run_units, schedule_units
from gnnplace.sim.engine import evaluate_all, resident_bytes
from gnnplace.sim.moves import EngineWorker, Moves
from gnnplace.sim.state import FAILED, NO_RECORDING, RECORDED, SENT_BYTES, EngineState, recording
from gnnplace.sim.tables import EngineTables, check_sums, engine_tables, mean_upward_rank, priority_order
from gnnplace.sim.walk import Walker

_CHUNKS_PER_THREAD = 4
_OPS_PER_CHUNK = 10_000  # less is not worth another thread; compiled loops of one thread search graphs with fewer ops


@dataclass(eq=False)
class Simulator:
    """Evaluator and schedule estimator of one graph on one topology; threads may share it.

    >>> from gnnplace.devices import Device, Topology
    >>> from gnnplace.graph import Op, OpGraph
    >>> graph = OpGraph.build("two", [Op("a"), Op("b")])
    >>> simulator = Simulator(graph, Topology("one", (Device("d"),)), np.array([[2.0], [3.0]]))
    >>> simulator.evaluate(Placement(np.array([0, 0]))).makespan_s
    5.0
    >>> from gnnplace.graph.coarsen import coarsen
    >>> one = coarsen(graph, max_groups=1, max_fraction=1.0)  # a group's ops still run one by one
    >>> simulator.of_groups(one).op_time_s.tolist(), simulator.over_groups(one).evaluate(Placement(np.array([0]))).makespan_s
    ([[5.0]], 5.0)
    """

    kind: ClassVar[EvaluatorKind] = "simulated"
    graph: OpGraph
    topology: Topology
    op_time_s: FloatArray  # [N, D]; infinite where the op cannot run
    num_threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    _idle: list[EngineWorker] = field(default_factory=list, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        expected = (self.graph.num_ops, self.topology.num_devices)
        if self.op_time_s.shape != expected:
            raise InvalidGraph(f"op_time_s has the shape {self.op_time_s.shape}; expected {expected} (ops, devices)")
        if np.isnan(self.op_time_s).any() or (self.op_time_s < 0).any():
            op = int(np.argwhere(np.isnan(self.op_time_s) | (self.op_time_s < 0))[0, 0])
            raise InvalidGraph(f"op {self.graph.op_names[op]!r} has a time that is negative or no number")
        check_sums(self.graph, self.topology, self.op_time_s)

    def __reduce__(self) -> tuple[type[Simulator], tuple[OpGraph, Topology, FloatArray, int]]:
        """Pickles the inputs only; another process builds the rest anew."""
        return Simulator, (self.graph, self.topology, self.op_time_s, self.num_threads)

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement, with its priorities if it has any."""
        tables = self._tables(placement)
        with self._worker(placement) as worker:
            state = worker.state
            makespan_s, period_s, _ = evaluate_all(tables, placement.assignment[None, :], state, NO_RECORDING)[0]
            if state.counters[FAILED]:
                idle_s = np.zeros(self.topology.num_devices)
                nothing = idle_s.astype(np.int64)
                failure = "a tensor is needed on a device that no link or host connects"
                return Evaluation("simulated", np.inf, np.inf, nothing, nothing, idle_s, 0, failure=failure)
            peak = self._peak_bytes(tables, placement, state)
            return Evaluation(
                evaluator="simulated",
                makespan_s=float(makespan_s),
                period_s=float(period_s),
                peak_memory_bytes=peak,
                shortfall_bytes=self.topology.at_home(np.maximum(peak - self.topology.memory_bytes, 0)),
                busy_s=state.device_busy_s.copy(),
                transferred_bytes=int(state.counters[SENT_BYTES]),
            )

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments with default priorities, on all threads."""
        assignments = np.ascontiguousarray(assignments, dtype=np.int64)
        # Several chunks per thread: a thread on a busy core then delays the batch less.
        work = len(assignments) * self.graph.num_ops
        num_chunks = min(_CHUNKS_PER_THREAD * self.num_threads, work // _OPS_PER_CHUNK, len(assignments))
        run, num_chunks = (self._pool.map, num_chunks) if self.num_threads > 1 < num_chunks else (map, 1)
        out = np.concatenate(list(run(self._evaluate_chunk, np.array_split(assignments, num_chunks))))
        return EvaluationBatch(*np.ascontiguousarray(out.T))

    def schedule(self, placement: Placement) -> Schedule:
        """The schedule of one placement.

        Raises:
            InvalidPlacement: a tensor has no route.
        """
        tables = self._tables(placement)
        record = recording(tables)
        with self._worker(placement) as worker:
            evaluate_all(tables, placement.assignment[None, :], worker.state, record)
            if worker.state.counters[FAILED]:
                raise InvalidPlacement("the placement needs a transfer between devices that no link or host connects")
            count = int(worker.state.counters[RECORDED])
            peak = self._peak_bytes(tables, placement, worker.state)
        new_op = np.argsort(tables.old_op)
        return Schedule(
            assignment=placement.assignment,
            start_s=record.start_s[new_op],
            end_s=record.end_s[new_op],
            transfer_tensor=tables.old_tensor[record.tensor[:count]].astype(np.int64),
            transfer_target=record.target[:count].astype(np.int64),
            transfer_link=record.link[:count].astype(np.int64),
            transfer_start_s=record.hop_start_s[:count].copy(),
            transfer_end_s=record.hop_end_s[:count].copy(),
            peak_memory_bytes=peak,
        )

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves, each from `assignment`, with the results of evaluating each moved placement; see `ScheduleEstimator`."""
        tables, moves = self._default_tables, Moves(*self._moved_ops(ops), np.asarray(devices, dtype=np.int64))
        base = np.asarray(assignment, dtype=np.uint32)[tables.old_op]
        with self._worker() as worker:
            out = worker.evaluate_moves(tables, base, moves)
        return EvaluationBatch(*out.T)

    def local_search(self, problem: Problem, unit_of_op: IntArray | None = None) -> LocalSearch:
        """Random moves of the problem's units; see `ScheduleEstimator`.

        For a problem over groups of this graph's ops, `unit_of_op` `[N]` is the unit of each op.
        """
        pool = (lambda: self._pool) if self.num_threads > 1 else None
        return Walker(problem, self._default_tables, problem.unit_of_op if unit_of_op is None else unit_of_op, pool)

    def compiled(self, problem: Problem) -> CompiledSimulator | None:
        """The engine for compiled loops; see `Compilable`."""
        return self.compiled_over(problem, self, problem.unit_of_op)

    def compiled_over(self, problem: Problem, groups: Simulator, unit_of_op: IntArray) -> CompiledSimulator | None:
        """The engine for units of these ops `[N]`; schedules are those of `groups`, which has the ops of the problem."""
        if self.num_threads > 1 and self.graph.num_ops >= _OPS_PER_CHUNK:
            return None
        minimised = Minimised.of(problem)
        schedule = compiled_run(minimised, groups._default_tables, problem.unit_of_op, with_schedule=True)
        whole = compiled_run(minimised, self._default_tables, unit_of_op, with_schedule=False)
        return CompiledSimulator(run_units, whole, schedule_units, schedule, len(schedule.record.link))

    def over_ops(self, problem: Problem) -> SingleOps:
        """The problem itself; see `ScheduleEstimator`."""
        return SingleOps(problem, np.arange(self.graph.num_ops))

    def over_groups(self, coarsening: Coarsening) -> GroupedSimulator:
        """The evaluator of groups of these ops; see `ScheduleEstimator`."""
        return GroupedSimulator(coarsening, self, self.of_groups(coarsening))

    def of_groups(self, coarsening: Coarsening) -> Simulator:
        """A simulator in which each group is one op."""
        times_s = coarsening.total(self.op_time_s)
        return Simulator(coarsening.graph, self.topology, times_s, self.num_threads)

    @cached_property
    def _default_tables(self) -> EngineTables:
        rank = mean_upward_rank(self.graph, self.topology, self.op_time_s)
        return engine_tables(self.graph, self.topology, self.op_time_s, priority_order(self.graph, rank))

    @cached_property
    def _new_op(self) -> IntArray:
        """`[N]` each op in the engine's numbers."""
        return np.argsort(self._default_tables.old_op)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        cores = itertools.cycle(sorted(os.sched_getaffinity(0)))

        def stay_on_a_core() -> None:
            # Threads that wake together share a core until the kernel moves them, which takes longer than a batch.
            os.sched_setaffinity(0, {next(cores)})

        return ThreadPoolExecutor(self.num_threads, "simulator", stay_on_a_core)

    def _tables(self, placement: Placement) -> EngineTables:
        if placement.priorities is None:
            return self._default_tables
        order = priority_order(self.graph, placement.priorities)
        return engine_tables(self.graph, self.topology, self.op_time_s, order)

    def _moved_ops(self, ops: IntArray) -> tuple[IntArray, IntArray]:
        """Offsets `[M + 1]` and the ops of each move, from `[M]` indices or a `[M, N]` mask."""
        if ops.ndim == 1:
            return np.arange(len(ops) + 1), self._new_op[ops]
        rows, columns = np.nonzero(ops)
        return csr(rows, self._new_op[columns], len(ops))

    def _evaluate_chunk(self, assignments: IntArray) -> FloatArray:
        with self._worker() as worker:
            return evaluate_all(self._default_tables, assignments, worker.state, NO_RECORDING)

    def _peak_bytes(self, tables: EngineTables, placement: Placement, state: EngineState) -> IntArray:
        resident = np.empty(self.topology.num_devices, dtype=np.int64)
        resident_bytes(tables, placement.assignment.astype(np.uint32)[tables.old_op], resident)
        return (resident + state.peak_bytes)[self.topology.memory_home]

    @contextmanager
    def _worker(self, placement: Placement | None = None) -> Iterator[EngineWorker]:
        """An idle worker. A failed run leaves its state dirty; the next reset clears it."""
        if placement is not None and placement.assignment.shape != (self.graph.num_ops,):
            raise InvalidPlacement(f"the placement has {placement.assignment.size} ops, the graph {self.graph.num_ops}")
        with self._lock:
            worker = self._idle.pop() if self._idle else EngineWorker(self._default_tables)
        yield worker
        with self._lock:
            self._idle.append(worker)


@dataclass(frozen=True, eq=False)
class GroupedSimulator:
    """Evaluator of `G` op groups, which simulates the whole graph of `N` ops.

    A group simulated as one op would wait for all its inputs and send all outputs at its end; on a deep graph that takes
    twice as long as its ops. Only `schedule`, the source of features, treats each group as one op.
    """

    kind: ClassVar[EvaluatorKind] = "simulated"
    coarsening: Coarsening
    whole: Simulator
    groups: Simulator

    @property
    def num_threads(self) -> int:
        """Threads of the simulator of the whole graph; see `ScheduleEstimator`."""
        return self.whole.num_threads

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement `[G]`; the ops of a group have its priority."""
        return self.whole.evaluate(placement.expanded(self.coarsening.group_of_op))

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, G]` assignments with the ops' own priorities."""
        return self.whole.evaluate_batch(self.coarsening.expand(np.asarray(assignments)))

    def schedule(self, placement: Placement) -> Schedule:
        """The schedule with each group as one op."""
        return self.groups.schedule(placement)

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves of groups, each from `assignment` `[G]`; see `ScheduleEstimator`."""
        group_of_op = self.coarsening.group_of_op
        moved = ops[:, group_of_op] if ops.ndim == 2 else group_of_op[None, :] == ops[:, None]
        return self.whole.evaluate_moves(self.coarsening.expand(assignment), moved, devices)

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of units of groups, simulated op by op; see `ScheduleEstimator`."""
        return self.whole.local_search(problem, self.coarsening.expand(problem.unit_of_op))

    def compiled(self, problem: Problem) -> CompiledSimulator | None:
        """The engine for compiled loops; see `Compilable`."""
        return self.whole.compiled_over(problem, self.groups, self.coarsening.expand(problem.unit_of_op))

    def over_ops(self, problem: Problem) -> SingleOps:
        """The problem of the same units over single ops; see `ScheduleEstimator`."""
        whole, coarsening = self.whole, self.coarsening
        units = coarsening.expand(problem.unit_of_op)
        single = Problem(whole.graph, whole.topology, whole.op_time_s, whole, whole, problem.objective, clusters=units)
        return SingleOps(single, coarsening.group_of_op)

    def over_groups(self, coarsening: Coarsening) -> GroupedSimulator:
        """The evaluator of groups of these groups; see `ScheduleEstimator`."""
        return GroupedSimulator(coarsening.after(self.coarsening), self.whole, self.groups.of_groups(coarsening))
