"""The decision process: a step gives units their devices, its reward is the runtime that it saves, and it can be taken back."""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import Timing, UnitTables, empty_timing, refresh, unit_tables
from gnnplace.errors import InvalidAction, InvalidGraph
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement, check_legal

UNDECIDED = -1
"""Device of a unit that has none yet."""

Runtime = Callable[[IntArray], FloatArray]
"""`[B]` penalised seconds of `[B, N]` assignments; a planner's implementation counts them against its budget."""
Steps = Callable[[IntArray, FloatArray, IntArray], FloatArray]
"""`[C]` seconds after steps from assignments `[C, N]` of the seconds `[C]` to assignments `[C, N]`, measured as differences."""


class _State(NamedTuple):
    """What a step changes, and `take_back` restores; steps replace the arrays and never change them."""

    devices: IntArray  # [B, U]
    seconds: FloatArray  # [B]
    evaluated: IntArray  # [B, U] the complete placements that `seconds` belong to
    version: IntArray  # [B] changes with `evaluated`; the schedule of a row has the version it was made for


class PlacementProcess:
    """`B` placements of one problem; a step gives units of each their devices.

    The reward of a step between complete placements is (seconds before - seconds after) / reference seconds. Units may be
    undecided: a step to an incomplete placement has the reward 0, and the step that completes it is rewarded against the last
    complete placement, or against the reference if there was none. A placement that does not fit has penalised seconds
    (`Problem.penalised_s`). In rewards, one that fails to run counts as `failed_s`, so they stay finite.

    A search for one placement lets all rows be alternatives: it steps them from the same placement, then keeps one row for all
    or takes the step back.

    >>> from gnnplace.sim.example import diamond
    >>> process = PlacementProcess(diamond()).reset(np.zeros((2, 4), dtype=np.int64))
    >>> process.step(np.array([[0, 0, 1, 0], [0, 1, 1, 1]])).round(3)
    array([ 0.333, -0.   ])
    >>> process.keep(0)
    >>> process.seconds.round(3), process.devices.tolist()
    (array([4.002, 4.002]), [[0, 0, 1, 0], [0, 0, 1, 0]])
    """

    def __init__(
        self,
        problem: Problem,
        runtime: Runtime | None = None,
        reference_s: float | None = None,
        tables: UnitTables | None = None,
        steps: Steps | None = None,
    ) -> None:
        """A process without placements; `reset` gives it some.

        Args:
            problem: The graph, the devices and their evaluator.
            runtime: Replaces the problem's evaluator.
            reference_s: Seconds of the reference; by default those of the best single device, or of the best start where none
                can run everything.
            tables: Arrays of the problem, if they were computed before.
            steps: Measures the placements before and after a step against each other, instead of those after it alone.

        Raises:
            InvalidGraph: the graph has no ops.
        """
        if not problem.num_units:
            raise InvalidGraph(f"graph {problem.graph.name!r} has no ops; there is nothing to place")
        self.problem = problem
        self.tables = unit_tables(problem) if tables is None else tables
        self.failed_s = 4.0 * max(problem.worst_case_s, 1e-9)
        self.best_seconds: FloatArray = np.zeros(0)
        """`[B]` least seconds of each row since `reset`."""
        self.best_devices: IntArray = np.zeros((0, problem.num_units), dtype=np.int64)
        """`[B, U]` the placements with these seconds."""
        self._runtime: Runtime = self._evaluated if runtime is None else runtime
        self._steps, self._reference_s = steps, reference_s
        nothing = np.zeros(0, dtype=np.int64)
        self._state = self._before = _State(self.best_devices, self.best_seconds, self.best_devices, nothing)
        self._timing, self._timed = empty_timing(problem, 0), nothing
        self._num_versions = 0
        self._neighbours = _neighbours(problem)
        self._routable = np.isfinite(self.tables.route_latency_s)

    def reset(self, devices: IntArray, seconds: FloatArray | None = None) -> Self:
        """Begins at `[B, U]` devices of units, which may be undecided; the seconds `[B]` of complete ones are evaluated unless passed.

        Raises:
            InvalidPlacement: a placement is illegal.
        """
        rows = len(devices)
        complete = (devices != UNDECIDED).all(axis=1)
        for row in np.unique(devices[complete], axis=0):
            check_legal(self.problem.graph, self.problem.topology, Placement(row[self.problem.unit_of_op]))
        if seconds is None:
            seconds = np.full(rows, np.inf)
            if complete.any():
                seconds[complete] = self._runtime(devices[complete][:, self.problem.unit_of_op])
        if self._reference_s is None:
            least_s = float(seconds[complete].min()) if complete.any() else np.inf
            self._reference_s = max(self._single_device_s(min(least_s, self.failed_s)), 1e-12)
        seconds = np.where(complete, seconds, self._reference_s)
        self._num_versions += rows
        version = np.arange(self._num_versions - rows, self._num_versions)
        self._state = self._before = _State(devices.copy(), seconds, devices.copy(), version)
        self.best_seconds = np.where(complete, seconds, np.inf)
        self.best_devices = devices.copy()
        self._timing, self._timed = empty_timing(self.problem, rows), np.full(rows, -1)
        return self

    @property
    def num_placements(self) -> int:
        """`B`."""
        return len(self._state.seconds)

    @property
    def devices(self) -> IntArray:
        """`[B, U]` device of each unit, or `UNDECIDED`."""
        return self._state.devices

    @property
    def seconds(self) -> FloatArray:
        """`[B]` penalised seconds of the last complete placements; infinite for placements that fail to run."""
        return self._state.seconds

    @property
    def reference_s(self) -> float:
        """Reference seconds that rewards are divided by."""
        assert self._reference_s is not None, "reset first"
        return self._reference_s

    def schedules(self, *rows: int) -> Timing:
        """The estimator's schedules of the last complete placements, made anew for `rows`, or for all rows, where they changed.

        A row that was never complete has a schedule of zeros.
        """
        for row in rows or range(self.num_placements):
            devices = self._state.evaluated[row]
            if self._timed[row] != self._state.version[row] and UNDECIDED not in devices:
                refresh(self.problem, self.tables, self._timing, row, devices[self.problem.unit_of_op])
                self._timed[row] = self._state.version[row]
        return self._timing

    def action_mask(self, unit: int) -> BoolArray:
        """`[B, D]` true where a unit can run and exchange tensors with its decided neighbours."""
        allowed = np.repeat(self.problem.action_mask[[unit]], self.num_placements, axis=0)
        if not self._routable.all():
            for around, routable in zip(self._neighbours[unit], (self._routable, self._routable.T), strict=True):
                devices = self.devices[:, around]
                allowed &= (routable[devices] | (devices == UNDECIDED)[:, :, None]).all(axis=1)
        return allowed

    def step(self, devices: IntArray, known_s: FloatArray | None = None) -> FloatArray:
        """Gives the units of the first `C` placements these devices `[C, U]`; returns the rewards `[C]`.

        Other placements stay as they are. A placement that stays needs no evaluation, nor does one whose seconds are in
        `known_s` `[C]`, which is NaN elsewhere.

        Raises:
            InvalidAction: a unit cannot run on its device.
        """
        before, count = self._state, len(devices)
        to_evaluate, wrong = _compared(devices, before.evaluated, self.problem.action_mask)
        if wrong >= 0:
            self._refuse(devices, wrong)
        seconds, evaluated, version = before.seconds.copy(), before.evaluated.copy(), before.version.copy()
        rows = np.flatnonzero(to_evaluate)
        if known_s is not None:
            seconds[rows] = known_s[rows]
            rows = rows[np.isnan(known_s[rows])]
        if len(rows):
            to = devices[rows][:, self.problem.unit_of_op]
            if self._steps is not None and (before.evaluated[rows] != UNDECIDED).all():
                seconds[rows] = self._steps(
                    before.evaluated[rows][:, self.problem.unit_of_op], before.seconds[rows], to
                )
            else:
                seconds[rows] = self._runtime(to)
        evaluated[:count][to_evaluate] = devices[to_evaluate]
        version[:count][to_evaluate] = self._num_versions + np.arange(to_evaluate.sum())
        self._num_versions += count
        after = np.concatenate([devices, before.devices[count:]])
        self._before, self._state = before, _State(after, seconds, evaluated, version)
        better = np.flatnonzero(seconds < self.best_seconds)
        self.best_seconds[better], self.best_devices[better] = seconds[better], evaluated[better]
        saved_s = np.minimum(before.seconds, self.failed_s) - np.minimum(seconds, self.failed_s)
        return np.asarray(saved_s[:count] / self.reference_s)

    def keep(self, row: int) -> None:
        """Every placement becomes that of a row, as all rows were alternatives."""
        state, rows = self._state, np.full(self.num_placements, row)
        kept = _State(state.devices[rows], state.seconds[rows], state.evaluated[rows], state.version[rows])
        self._state = self._before = kept

    def take_back(self) -> None:
        """The placements from before the last step, with their seconds; the best ones stay known."""
        self._state = self._before

    def _evaluated(self, assignments: IntArray) -> FloatArray:
        return self.problem.penalised_batch_s(self.problem.evaluator.evaluate_batch(assignments))

    def _single_device_s(self, start_s: float) -> float:
        """Seconds of the best single device, or `start_s` if none can run everything."""
        singles = self.problem.single_device_assignments
        best_s = float(self._runtime(singles).min()) if len(singles) else np.inf
        return best_s if best_s < self.problem.worst_case_s else start_s

    def _refuse(self, devices: IntArray, wrong: int) -> None:
        row, unit = divmod(wrong, devices.shape[1])
        name, mask = self.problem.graph.op_names[self.problem.unit_ops[unit][0]], self.problem.action_mask[unit]
        raise InvalidAction(
            f"action {devices[row, unit]} for op {name!r} is forbidden by the mask {mask.tolist()}; choose a device whose entry is true"
        )


@njit(cache=True, nogil=True)
def _compared(devices: IntArray, evaluated: IntArray, allowed: BoolArray) -> tuple[BoolArray, int]:
    """`[C]` which rows are complete and differ from the evaluated ones, and the flat index of an illegal device, or -1."""
    count, units = devices.shape
    differs = np.zeros(count, dtype=np.bool_)
    for row in range(count):
        complete = True
        for unit in range(units):
            device = devices[row, unit]
            if device == UNDECIDED:
                complete = False
            elif device < 0 or device >= allowed.shape[1] or not allowed[unit, device]:
                return differs, row * units + unit
            differs[row] |= device != evaluated[row, unit]
        differs[row] &= complete
    return differs, -1


def _neighbours(problem: Problem) -> list[tuple[IntArray, IntArray]]:
    """`[U]` for each unit, the units that make its inputs and those that read its outputs."""
    sources, targets = problem.unit_edges
    units = np.arange(1, problem.num_units)
    by_target, by_source = np.argsort(targets, kind="stable"), np.argsort(sources, kind="stable")
    into = np.split(sources[by_target], np.searchsorted(targets[by_target], units))
    out_of = np.split(targets[by_source], np.searchsorted(sources[by_source], units))
    return list(zip(into, out_of, strict=True))
