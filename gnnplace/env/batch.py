"""The environment over several placements of one problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import Timing, empty_timing, refresh, unit_tables
from gnnplace.errors import InvalidAction, InvalidGraph
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement, check_legal

Runtime = Callable[[IntArray], FloatArray]
"""`[B]` penalised seconds of `[B, N]` assignments; a planner's implementation counts them against its budget."""


@dataclass(frozen=True)
class EnvConfig:
    """The length of an episode, and whether moves are evaluated ahead."""

    num_sweeps: int = 1
    """Visits per unit; Placeto (Addanki et al. 2019) visits every unit once."""
    lookahead: bool = False
    """Whether every candidate move of the current unit is evaluated before one is chosen."""


class PlacementBatch:
    """`B` placements of one problem; each step moves one unit in each of them.

    The reward of a step is (seconds before - seconds after) / reference seconds. A placement that does not fit has
    penalised seconds (`Problem.penalised_s`); one that fails to run has `failed_s`, so rewards stay finite. A step that
    leaves its unit on its device needs no evaluation.
    """

    def __init__(
        self,
        problem: Problem,
        config: EnvConfig = EnvConfig(),
        runtime: Runtime | None = None,
        reference: float | None = None,
    ) -> None:
        """An environment without placements; `reset` starts an episode.

        `runtime` replaces the problem's evaluator. `reference` (seconds) is computed unless it is passed.

        Raises:
            InvalidGraph: the graph has no ops.
        """
        if not problem.num_units:
            raise InvalidGraph(f"graph {problem.graph.name!r} has no ops; there is nothing to place")
        self.problem = problem
        self.config = config
        self.tables = unit_tables(problem)
        self.failed_s = 4.0 * max(problem.worst_case_s, 1e-9)
        self.step_index = 0
        self.visited: IntArray = np.arange(problem.num_units)
        self.seconds: FloatArray = np.zeros(0)
        self.best_seconds: FloatArray = np.zeros(0)
        self.best_assignments: IntArray = np.zeros((0, problem.graph.num_ops), dtype=np.int64)
        self.timing: Timing = empty_timing(problem, 0)
        self.candidate_s: FloatArray | None = None
        self._runtime: Runtime = self._evaluated if runtime is None else runtime
        self._lookahead_is_exact = runtime is None and problem.evaluator.kind == "simulated"
        self._reference = reference
        self._routable = np.isfinite(self.tables.route_latency_s)
        self._neighbours = _neighbours(problem)

    def reset(self, starts: IntArray, start_s: FloatArray | None = None, visited: IntArray | None = None) -> Self:
        """Begins an episode from `[B, N]` assignments; their seconds `start_s` `[B]` are evaluated unless passed.

        `visited` lists the units of a sweep in order; by default, all units in topological order.

        Raises:
            InvalidPlacement: a start is illegal.
        """
        for start in np.unique(starts, axis=0):
            check_legal(self.problem.graph, self.problem.topology, Placement(start))
        seconds = self._runtime(starts) if start_s is None else start_s
        self.seconds = np.minimum(seconds, self.failed_s)
        self.best_seconds = self.seconds.copy()
        self.best_assignments = starts.copy()
        self.step_index = 0
        self.visited = np.arange(self.problem.num_units) if visited is None else visited
        self.timing = empty_timing(self.problem, len(starts))
        for row, start in enumerate(starts):
            refresh(self.problem, self.tables, self.timing, row, start)
        if self._reference is None:
            self._reference = max(self._single_device_s(float(self.seconds.min())), 1e-12)
        self._look_ahead()
        return self

    @property
    def num_placements(self) -> int:
        """`B`."""
        return len(self.seconds)

    @property
    def num_steps(self) -> int:
        """`T`, the number of steps of an episode."""
        return self.config.num_sweeps * len(self.visited)

    @property
    def reference_s(self) -> float:
        """Reference seconds that rewards are divided by."""
        assert self._reference is not None, "reset first"
        return self._reference

    @property
    def is_done(self) -> bool:
        """True after the last sweep."""
        return self.step_index >= self.num_steps

    @property
    def unit(self) -> int:
        """The unit that the next step moves."""
        return int(self.visited[self.step_index % len(self.visited)])

    @property
    def devices(self) -> IntArray:
        """`[B]` device of the current unit."""
        return self.timing.assignment[:, self.problem.unit_ops[self.unit][0]]

    @property
    def action_mask(self) -> BoolArray:
        """`[B, D]` true where the current unit can run and exchange tensors with its neighbours."""
        allowed = np.repeat(self.problem.action_mask[[self.unit]], self.num_placements, axis=0)
        producers, consumers = self._neighbours[self.unit]
        if not self._routable.all():
            assignment = self.timing.assignment
            allowed &= self._routable[assignment[:, producers]].all(axis=1)
            allowed &= self._routable.T[assignment[:, consumers]].all(axis=1)
        return allowed

    def step(self, actions: IntArray) -> FloatArray:
        """Moves the current unit to device `actions[b]` in every placement `b`; returns the rewards `[B]`.

        Raises:
            InvalidAction: the mask forbids a device, or the episode is over.
        """
        self._check(actions)
        moved = np.flatnonzero(actions != self.devices)
        after = self.seconds.copy()
        if len(moved):
            assignments = self.timing.assignment[moved]
            assignments[:, self.problem.unit_ops[self.unit]] = actions[moved, None]
            if self.candidate_s is not None and self._lookahead_is_exact:
                after[moved] = self.candidate_s[moved, actions[moved]]
            else:
                after[moved] = np.minimum(self._runtime(assignments), self.failed_s)
            for row, assignment in zip(moved.tolist(), assignments, strict=True):
                refresh(self.problem, self.tables, self.timing, row, assignment)
        rewards = (self.seconds - after) / self.reference_s
        self.seconds = after
        better = after < self.best_seconds
        self.best_seconds[better] = after[better]
        self.best_assignments[better] = self.timing.assignment[better]
        self.step_index += 1
        self._look_ahead()
        return rewards

    def _evaluated(self, assignments: IntArray) -> FloatArray:
        return self.problem.penalised_batch_s(self.problem.evaluator.evaluate_batch(assignments))

    def _single_device_s(self, start_s: float) -> float:
        """Seconds of the best single device, or `start_s` if none can run everything."""
        problem = self.problem
        devices = np.flatnonzero(problem.action_mask.all(axis=0))
        if not len(devices):
            return start_s
        singles = np.repeat(devices[:, None], problem.graph.num_ops, axis=1)
        best_s = float(self._runtime(singles).min())
        return best_s if best_s < problem.worst_case_s else start_s

    def _check(self, actions: IntArray) -> None:
        if self.is_done:
            raise InvalidAction(f"step {self.step_index} comes after the end of the episode; reset first")
        mask = self.action_mask
        known = (actions >= 0) & (actions < mask.shape[1])
        wrong = np.flatnonzero(~known | ~mask[np.arange(len(mask)), np.where(known, actions, 0)])
        if len(wrong):
            name = self.problem.graph.op_names[self.problem.unit_ops[self.unit][0]]
            raise InvalidAction(
                f"action {actions[wrong[0]]} for op {name!r} is forbidden by the mask {mask[wrong[0]].tolist()}; "
                "choose a device whose entry is true"
            )

    def _look_ahead(self) -> None:
        """Writes `candidate_s` `[B, D]`: seconds after each allowed move, infinite where forbidden."""
        self.candidate_s = None
        if not self.config.lookahead or self.is_done:
            return
        problem, mask, here, rows = self.problem, self.action_mask, self.devices, np.arange(self.num_placements)
        self.candidate_s = np.full(mask.shape, np.inf)
        self.candidate_s[rows, here] = self.seconds
        mask[rows, here] = False
        for row in rows.tolist():
            devices = np.flatnonzero(mask[row])
            if len(devices):
                ops = np.tile(problem.unit_of_op == self.unit, (len(devices), 1))
                moves = problem.estimator.evaluate_moves(self.timing.assignment[row], ops, devices)
                self.candidate_s[row, devices] = np.minimum(problem.penalised_batch_s(moves), self.failed_s)


def _neighbours(problem: Problem) -> list[tuple[IntArray, IntArray]]:
    """`[U]` producer ops and consumer ops of each unit in other units."""
    sources, targets = problem.graph.edges
    source_unit, target_unit = problem.unit_of_op[sources], problem.unit_of_op[targets]
    across = source_unit != target_unit
    sources, targets, source_unit, target_unit = (a[across] for a in (sources, targets, source_unit, target_unit))
    by_target, by_source = np.argsort(target_unit, kind="stable"), np.argsort(source_unit, kind="stable")
    into = np.split(sources[by_target], np.searchsorted(target_unit[by_target], np.arange(1, problem.num_units)))
    out_of = np.split(targets[by_source], np.searchsorted(source_unit[by_source], np.arange(1, problem.num_units)))
    return list(zip(into, out_of, strict=True))
