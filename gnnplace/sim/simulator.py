"""The simulator: evaluates placements, schedules, and moves. Same inputs, same schedule, bit for bit."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidGraph, InvalidPlacement
from gnnplace.evaluation import Evaluation, EvaluationBatch, EvaluatorKind, LocalSearch, Problem
from gnnplace.graph.coarsen import Coarsening
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import Placement
from gnnplace.schedule import Schedule
from gnnplace.sim.batch import evaluate_all, resident_bytes
from gnnplace.sim.moves import MoveBase, evaluate_moves
from gnnplace.sim.state import (
    FAILED,
    RECORDED,
    SENT_BYTES,
    EngineState,
    Recording,
    no_recording,
    recording,
)
from gnnplace.sim.tables import EngineTables, IndexArray, check_sums, engine_tables, mean_upward_rank, priority_order
from gnnplace.sim.walk import Walker

__all__ = ["GroupedSimulator", "Simulator", "expanded"]

_MOVES_WORTH_A_BASE_RUN = 4
_CHUNKS_PER_THREAD = 4
_OPS_PER_CHUNK = 10_000


@dataclass(eq=False)
class Simulator:
    """Evaluator and schedule estimator of one graph on one topology; may be used from several threads at once.

    >>> from gnnplace.devices import Device, Topology
    >>> from gnnplace.graph import Op, OpGraph
    >>> graph = OpGraph.build("two", [Op("a"), Op("b")])
    >>> simulator = Simulator(graph, Topology("one", (Device("d"),)), np.array([[2.0], [3.0]]))
    >>> simulator.evaluate(Placement(np.array([0, 0]))).makespan_s
    5.0
    >>> from gnnplace.graph.coarsen import coarsen
    >>> one = coarsen(graph, max_groups=1, max_fraction=1.0)  # `over_groups` still runs the two ops of it one by one
    >>> simulator.of_groups(one).op_time_s.tolist(), simulator.over_groups(one).evaluate(Placement(np.array([0]))).makespan_s
    ([[5.0]], 5.0)
    """

    graph: OpGraph
    topology: Topology
    op_time_s: FloatArray  # [N, D]; infinite where the op cannot run
    num_threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    _idle: list[MoveBase] = field(default_factory=list, init=False, repr=False)
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
        """As another process makes it anew; the arrays that it gets may be read-only."""
        return Simulator, (self.graph, self.topology, self.op_time_s, self.num_threads)

    @property
    def kind(self) -> EvaluatorKind:
        """Simulated."""
        return "simulated"

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement, with its own priorities if it has any."""
        tables = self._tables(placement)
        with self._worker(placement) as worker:
            makespan_s, period_s, _ = self._run(tables, placement.assignment[None, :], worker, no_recording())
            if worker.state.counters[FAILED]:
                return self._unroutable()
            peak = self._peak_bytes(tables, placement, worker.state)
            return Evaluation(
                evaluator="simulated",
                makespan_s=float(makespan_s[0]),
                period_s=float(period_s[0]),
                peak_memory_bytes=peak,
                shortfall_bytes=np.maximum(peak - self.topology.memory_bytes, 0),
                busy_s=worker.state.device_busy_s.copy(),
                transferred_bytes=int(worker.state.counters[SENT_BYTES]),
            )

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments with default priorities, on all threads.

        >>> from gnnplace.sim.example import diamond
        >>> diamond().evaluator.evaluate_batch(np.array([[0, 0, 0, 0], [0, 0, 1, 1]])).makespan_s.round(3).tolist()
        [6.0, 4.001]
        """
        assignments = np.ascontiguousarray(assignments, dtype=np.int64)
        # Several chunks per thread, so that one on a busy core does not keep the others waiting.
        work = len(assignments) * self.graph.num_ops
        num_chunks = max(1, min(_CHUNKS_PER_THREAD * self.num_threads, work // _OPS_PER_CHUNK, len(assignments)))
        if self.num_threads == 1:
            num_chunks = 1
        chunks = np.array_split(assignments, num_chunks)
        if num_chunks == 1:
            parts = [self._evaluate_chunk(assignments)]
        else:
            parts = list(self._pool.map(self._evaluate_chunk, chunks))
        makespan_s, period_s, shortfall = (np.concatenate(column) for column in zip(*parts, strict=True))
        return EvaluationBatch(makespan_s, period_s, shortfall)

    def schedule(self, placement: Placement) -> Schedule:
        """When everything runs.

        >>> from gnnplace.sim.example import diamond
        >>> diamond().estimator.schedule(Placement(np.array([0, 0, 1, 1]))).start_s.round(3).tolist()
        [0.0, 1.0, 1.001, 3.001]

        Raises:
            InvalidPlacement: a tensor has no route.
        """
        tables = self._tables(placement)
        record = recording(tables)
        with self._worker(placement) as worker:
            self._run(tables, placement.assignment[None, :], worker, record)
            if worker.state.counters[FAILED]:
                raise InvalidPlacement("the placement needs a transfer between devices that no link or host connects")
            count = int(worker.state.counters[RECORDED])
            peak = self._peak_bytes(tables, placement, worker.state)
        start_s, end_s = np.empty(self.graph.num_ops), np.empty(self.graph.num_ops)
        start_s[tables.old_op], end_s[tables.old_op] = record.start_s, record.end_s
        return Schedule(
            assignment=placement.assignment,
            start_s=start_s,
            end_s=end_s,
            transfer_tensor=tables.old_tensor[record.tensor[:count]].astype(np.int64),
            transfer_target=record.target[:count].astype(np.int64),
            transfer_link=record.link[:count].astype(np.int64),
            transfer_start_s=record.hop_start_s[:count].copy(),
            transfer_end_s=record.hop_end_s[:count].copy(),
            peak_memory_bytes=peak,
        )

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves, each from `assignment`; see `ScheduleEstimator`. Equal to evaluating each moved placement whole.

        >>> from gnnplace.sim.example import diamond
        >>> alone = np.zeros(4, dtype=np.int64)
        >>> diamond().estimator.evaluate_moves(alone, np.array([1, 2, 3]), np.array([1, 1, 1])).makespan_s.round(3).tolist()
        [4.002, 4.002, 6.001]
        """
        offsets, moved = self._moved_ops(ops)
        with self._worker() as worker:
            out = np.empty((len(devices), 3))
            if len(devices) < _MOVES_WORTH_A_BASE_RUN and not worker.knows(assignment):
                worker.forget()
                base, kept = self._engine_assignment(assignment), 0
            else:
                base, kept = worker.base(self._default_tables, self._engine_assignment(assignment), assignment)
            evaluate_moves(
                self._default_tables, base, self._producer, worker.state, no_recording(), worker.end_s,
                worker.saved, kept, offsets, moved, np.asarray(devices, dtype=np.int64), out,
            )  # fmt: skip
        return EvaluationBatch(out[:, 0], out[:, 1], out[:, 2])

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of the problem's units; see `ScheduleEstimator`.

        >>> from gnnplace.evaluation import Proposals
        >>> from gnnplace.sim.example import diamond
        >>> problem, one_by_one = diamond(), Proposals(follow_neighbour=0.0, cluster_share=0.0, mean_cluster=1.0)
        >>> search = problem.estimator.local_search(problem)
        >>> moved = search.propose(np.zeros(4, dtype=np.int64), one_by_one, np.random.default_rng(0))
        >>> int(moved.sum())  # one unit went to device 1
        1
        """
        return self.local_search_over(problem, problem.unit_of_op)

    def over_groups(self, coarsening: Coarsening) -> GroupedSimulator:
        """This simulator for placements of groups of its ops; see `ScheduleEstimator`."""
        return GroupedSimulator(coarsening, self, self.of_groups(coarsening))

    def of_groups(self, coarsening: Coarsening) -> Simulator:
        """A simulator in which every group is one op."""
        times_s = coarsening.total(self.op_time_s)
        return Simulator(coarsening.graph, self.topology, times_s, self.num_threads)

    def local_search_over(self, problem: Problem, unit_of_op: IntArray) -> LocalSearch:
        """Random moves of the units of a problem over groups of this graph's ops, `unit_of_op` `[N]`.

        >>> from gnnplace.sim.example import diamond
        >>> problem = diamond()
        >>> problem.estimator.local_search_over(problem, np.array([0, 1, 2, 3])).ops_per_evaluation
        4
        """
        pool = (lambda: self._pool) if self.num_threads > 1 else None
        return Walker(problem, self._default_tables, unit_of_op, pool)

    @cached_property
    def _default_tables(self) -> EngineTables:
        rank = mean_upward_rank(self.graph, self.topology, self.op_time_s)
        return engine_tables(self.graph, self.topology, self.op_time_s, priority_order(self.graph, rank))

    @cached_property
    def _new_op(self) -> IntArray:
        """`[N]` the engine's number of each op."""
        new_op = np.empty(self.graph.num_ops, dtype=np.int64)
        new_op[self._default_tables.old_op] = np.arange(self.graph.num_ops)
        return new_op

    @cached_property
    def _producer(self) -> IndexArray:
        """`[T]` producers in the engine's numbers."""
        return self._new_op[self.graph.tensor_producer[self._default_tables.old_tensor]].astype(np.uint32)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        cores = itertools.cycle(sorted(os.sched_getaffinity(0)))

        def stay_on_a_core() -> None:
            # Woken together, the threads would share one core until the kernel moves them: longer than a batch takes.
            os.sched_setaffinity(0, {next(cores)})

        return ThreadPoolExecutor(self.num_threads, "simulator", stay_on_a_core)

    def _tables(self, placement: Placement) -> EngineTables:
        if placement.priorities is None:
            return self._default_tables
        order = priority_order(self.graph, placement.priorities)
        return engine_tables(self.graph, self.topology, self.op_time_s, order)

    def _engine_assignment(self, assignment: IntArray) -> IndexArray:
        return np.asarray(assignment, dtype=np.uint32)[self._default_tables.old_op]

    def _moved_ops(self, ops: IntArray) -> tuple[IntArray, IntArray]:
        """Moves as rows of ops, from `[M]` indices or a `[M, N]` mask."""
        if ops.ndim == 1:
            return np.arange(len(ops) + 1), self._new_op[ops]
        rows, columns = np.nonzero(ops)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(ops)))])
        return offsets, self._new_op[columns]

    def _evaluate_chunk(self, assignments: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        with self._worker() as worker:
            return self._run(self._default_tables, assignments, worker, no_recording())

    def _run(
        self, tables: EngineTables, assignments: IntArray, worker: MoveBase, record: Recording
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        out = [np.empty(len(assignments)) for _ in range(3)]
        evaluate_all(tables, assignments, worker.state, record, *out)
        return out[0], out[1], out[2]

    def _peak_bytes(self, tables: EngineTables, placement: Placement, state: EngineState) -> IntArray:
        resident = np.empty(self.topology.num_devices, dtype=np.int64)
        resident_bytes(tables, placement.assignment.astype(np.uint32)[tables.old_op], resident)
        return resident + state.peak_bytes

    def _unroutable(self) -> Evaluation:
        nothing = np.zeros(self.topology.num_devices, dtype=np.int64)
        return Evaluation(
            "simulated", np.inf, np.inf, nothing, nothing, nothing.astype(np.float64), 0,
            failure="a tensor is needed on a device that no link or host connects",
        )  # fmt: skip

    @contextmanager
    def _worker(self, placement: Placement | None = None) -> Iterator[MoveBase]:
        """State of an idle thread; a failed run leaves traces that the next reset clears."""
        if placement is not None and placement.assignment.shape != (self.graph.num_ops,):
            raise InvalidPlacement(f"the placement has {placement.assignment.size} ops, the graph {self.graph.num_ops}")
        with self._lock:
            worker = self._idle.pop() if self._idle else MoveBase(self._default_tables)
        yield worker
        with self._lock:
            self._idle.append(worker)


def expanded(coarsening: Coarsening, placement: Placement) -> Placement:
    """A placement of groups as one of ops; each op takes its group's device and priority."""
    priorities = placement.priorities
    return Placement(
        coarsening.expand(placement.assignment), None if priorities is None else coarsening.expand(priorities)
    )


@dataclass(frozen=True, eq=False)
class GroupedSimulator:
    """Evaluator of `G` op groups by the simulator of the whole graph of `N` ops.

    A group as one op would wait for all of its inputs and hand on everything at its end: on a deep graph that is half
    as fast as its ops are. Only `schedule`, which features are made of, is that of the groups.

    >>> from gnnplace.graph.coarsen import coarsen
    >>> from gnnplace.sim.example import diamond
    >>> whole = diamond().evaluator
    >>> coarsening = coarsen(whole.graph, max_groups=2, max_fraction=1.0)
    >>> grouped = whole.over_groups(coarsening)
    >>> coarsening.group_of_op.tolist(), round(grouped.evaluate(Placement(np.array([0, 1]))).makespan_s, 3)
    ([0, 0, 0, 1], 6.001)
    >>> grouped.schedule(Placement(np.array([0, 1]))).end_s.round(3).tolist()  # as one op, it hands on everything at its end
    [5.0, 6.002]
    >>> grouped.evaluate_batch(np.array([[0, 0], [0, 1]])).makespan_s.round(3).tolist()
    [6.0, 6.001]
    >>> grouped.evaluate_moves(np.array([0, 0]), np.array([1]), np.array([1])).makespan_s.round(3).tolist()
    [6.001]
    >>> one = grouped.over_groups(coarsen(coarsening.graph, max_groups=1, max_fraction=1.0))
    >>> one.evaluate(Placement(np.array([1]))).makespan_s
    6.0
    """

    coarsening: Coarsening
    whole: Simulator
    groups: Simulator

    @property
    def kind(self) -> EvaluatorKind:
        """Simulated."""
        return "simulated"

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement `[G]`; the ops of a group have its priority."""
        return self.whole.evaluate(expanded(self.coarsening, placement))

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, G]` assignments with the ops' own priorities."""
        return self.whole.evaluate_batch(self.coarsening.expand(np.asarray(assignments)))

    def schedule(self, placement: Placement) -> Schedule:
        """When each group would run, were it one op."""
        return self.groups.schedule(placement)

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves of groups, each from `assignment` `[G]`; see `ScheduleEstimator`."""
        group_of_op = self.coarsening.group_of_op
        moved = ops[:, group_of_op] if ops.ndim == 2 else group_of_op[None, :] == ops[:, None]
        return self.whole.evaluate_moves(self.coarsening.expand(assignment), moved, devices)

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of units of groups, simulated op by op; see `ScheduleEstimator`.

        >>> from gnnplace.graph.coarsen import coarsen
        >>> from gnnplace.sim.example import diamond
        >>> whole = diamond().evaluator
        >>> coarsening = coarsen(whole.graph, max_groups=2, max_fraction=1.0)
        >>> search = whole.over_groups(coarsening).local_search(diamond().over_groups(coarsening))
        >>> search.ops_per_evaluation  # the ops of two groups
        4
        """
        return self.whole.local_search_over(problem, self.coarsening.expand(problem.unit_of_op))

    def over_groups(self, coarsening: Coarsening) -> GroupedSimulator:
        """For placements of groups of these groups; see `ScheduleEstimator`."""
        return GroupedSimulator(coarsening.after(self.coarsening), self.whole, self.groups.of_groups(coarsening))
