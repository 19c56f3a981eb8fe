"""The search that every planner runs in."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import NamedTuple

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.compiled_code import running_s
from gnnplace.errors import InfeasiblePlacement, MeasurementFailed
from gnnplace.evaluation import Evaluation, PairedEvaluator, Problem
from gnnplace.graph.coarsen import Coarsening
from gnnplace.interruption import noticed_interrupts
from gnnplace.local_search import Walk, WalkRequest
from gnnplace.placement import Placement
from gnnplace.planners.solution import Budget, Change, ExecutedStep, Progress, Solution, Step


class Seen:
    """A set of assignments, so that a planner evaluates none twice.

    >>> import numpy as np
    >>> seen = Seen([np.array([0, 1])])
    >>> seen.add(np.array([0, 1])), seen.add(np.array([1, 1]))
    (False, True)
    >>> [row.tolist() for row in seen.fresh([np.array([0, 1]), np.array([1, 0]), np.array([1, 0])])]
    [[1, 0]]
    """

    def __init__(self, assignments: Iterable[IntArray] = ()) -> None:
        self._keys = {assignment.tobytes() for assignment in assignments}

    def add(self, assignment: IntArray) -> bool:
        """Adds an assignment; true where it is new."""
        before = len(self._keys)
        self._keys.add(assignment.tobytes())
        return len(self._keys) > before

    def fresh(self, assignments: Iterable[IntArray]) -> list[IntArray]:
        """Adds the assignments and returns the new ones, each once, in their order."""
        return [assignment for assignment in assignments if self.add(assignment)]


@contextmanager
def deadline(seconds: float | None) -> Iterator[BoolArray]:
    """An array `[1]` that becomes true after `seconds`, for compiled loops, which cannot read a clock; never where None.

    The loops must release the interpreter lock.

    >>> with deadline(None) as stop:
    ...     stop.tolist()
    [False]
    """
    stop = np.zeros(1, dtype=np.bool_)
    if seconds is None:
        yield stop
        return
    timer = threading.Timer(seconds, stop.fill, (True,))
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


class CompiledPart(NamedTuple):
    """What compiled code evaluated."""

    evaluations: int
    improvements: Sequence[tuple[int, float, IntArray]]
    """Number, from 1, seconds and assignment `[N]` of each evaluation that improved on all before it."""


class BudgetExhausted(Exception):
    """The search has no budget left; the `with` block of `Search` catches it."""


class ShareUsed(BudgetExhausted):
    """A stage has used its share of the budget."""


@dataclass(eq=False)
class Search:
    """One run of a planner: counts evaluations against the budget and keeps the best placement.

    As a context manager it ends quietly on an exhausted budget and on Ctrl-C. After the block, `solution` returns the
    best placement.

    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(evaluations=3), "by hand", seed=0) as search:
    ...     alone = search.evaluate(Placement(np.array([0, 0, 0, 0])))
    ...     search.stage("alone")
    ...     values = search.evaluate_batch(np.array([[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]]))
    >>> alone, values.round(3).tolist(), search.remaining
    (6.0, [4.001, 4.001, inf], 0)
    >>> solution = search.solution()
    >>> solution.placement.assignment.tolist(), round(solution.objective_s, 3), solution.stages
    ([0, 0, 1, 1], 4.001, (('alone', 6.0),))
    """

    problem: Problem
    budget: Budget
    planner: str
    seed: int
    best: Placement | None = None
    best_s: float = np.inf
    evaluations: int = 0
    history: list[tuple[int, float, float]] = field(default_factory=list)
    stages: list[tuple[str, float]] = field(default_factory=list)
    interrupted: bool = False
    lower_bound_s: float | None = None
    simulated: int = 0
    steps: list[Step] = field(default_factory=list)
    executed_steps: list[ExecutedStep] = field(default_factory=list)
    known_s: float = np.inf
    """Best objective of the search that this one is a part of."""
    _begin_s: float = field(default_factory=running_s)
    _open: ExitStack = field(default_factory=ExitStack)
    _interrupt_came: Callable[[], bool] = lambda: False

    @property
    def wall_s(self) -> float:
        """Seconds since the search began, without those in which numba compiles functions."""
        return running_s() - self._begin_s

    @property
    def remaining(self) -> int:
        """Evaluations left; 0 when the time is up."""
        if self.budget.seconds is not None and self.wall_s >= self.budget.seconds:
            return 0
        return 2**31 if self.budget.evaluations is None else max(0, self.budget.evaluations - self.evaluations)

    @property
    def used_share(self) -> float:
        """Share of the budget that is used, in evaluations or in seconds, whichever is larger."""
        evaluations, seconds = self.budget.evaluations, self.budget.seconds
        return max(
            0.0 if evaluations is None else self.evaluations / max(1, evaluations),
            0.0 if seconds is None else self.wall_s / max(1e-9, seconds),
        )

    def evaluate(self, placement: Placement) -> float:
        """Penalised seconds of one placement; one evaluation."""
        return self.problem.penalised_s(self.evaluate_in_full(placement))

    def evaluate_in_full(self, placement: Placement) -> Evaluation:
        """The evaluation of one placement, with its memory."""
        self._claim(1)
        evaluation = self.problem.evaluator.evaluate(placement)
        self._note(placement.assignment, self.problem.penalised_s(evaluation), self.evaluations, placement.priorities)
        self._report()
        return evaluation

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds of `[B, N]` assignments; infinite for those beyond the budget, which are not evaluated."""
        count = self._claim(len(assignments))
        values = np.full(len(assignments), np.inf)
        values[:count] = self.problem.penalised_batch_s(self.problem.evaluator.evaluate_batch(assignments[:count]))
        self._note_batch(values[:count], lambda index: assignments[index])
        self._report()
        return values

    def execute_step(self, kind: str, before: IntArray, before_s: float, after: IntArray) -> float:
        """Seconds of the assignment `after` `[N]`, measured against `before`, whose seconds are known; one evaluation.

        It becomes the best placement only if the interval of the difference shows that it is faster. A change that fails to run
        takes forever.
        """
        assert isinstance(self.problem.evaluator, PairedEvaluator)
        self._claim(1)
        found, value = None, np.inf
        with suppress(MeasurementFailed):
            found = self.problem.evaluator.difference(Placement(after), Placement(before))
            value = before_s * (1.0 + found.difference)
        is_kept = found is not None and found.sign < 0
        if is_kept:
            self._note(after, value, self.evaluations)
        change = Change.between(*self.problem.unit_devices(np.stack([before, after])))
        self.executed_steps.append(ExecutedStep(self.evaluations, kind, change, found, is_kept))
        self._report()
        return value

    def evaluate_to_learn(self, assignments: IntArray, end_share: float = 1.0) -> FloatArray:
        """`[B]` penalised seconds of `[B, N]` assignments, all of them evaluated.

        Raises:
            ShareUsed: the search has used `end_share` of its budget.
            BudgetExhausted: the budget ended within the batch; a learner must not learn from infinite seconds.
        """
        if self.used_share >= end_share:
            raise ShareUsed
        seconds = self.evaluate_batch(assignments)
        if not np.isfinite(seconds).all() and not self.remaining:
            raise BudgetExhausted
        return seconds

    def evaluate_moves(self, assignment: IntArray, units: IntArray, devices: IntArray) -> FloatArray:
        """`[M]` penalised seconds after moving `units[m]` to `devices[m]`, each from `assignment`; `M` evaluations.

        A simulated evaluator computes moves faster than whole placements; a measured one executes each moved placement.
        """
        count = self._claim(len(units))
        values = np.full(len(units), np.inf)
        if not count:
            return values
        units, devices, unit_of_op = units[:count], devices[:count], self.problem.unit_of_op
        moved = unit_of_op == units[:, None]
        if self.problem.evaluator.kind == "simulated":
            # Indices of single ops take less time than masks.
            ops = moved if self.problem.num_units < len(unit_of_op) else np.argsort(unit_of_op)[units]
            batch = self.problem.estimator.evaluate_moves(assignment, ops, devices)
        else:
            batch = self.problem.evaluator.evaluate_batch(np.where(moved, devices[:, None], assignment))
        values[:count] = self.problem.penalised_batch_s(batch)
        self._note_batch(values[:count], lambda index: np.where(moved[index], devices[index], assignment))
        self._report()
        return values

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """Simulated annealing in compiled code, from an assignment that was evaluated; shorter at the budget's end."""
        count = self._claim(request.evaluations)
        walk = self.problem.local_search.walk(replace(request, evaluations=count), rng)
        for evaluation, value in walk.improvements:
            self._note(walk.best, value, self.evaluations - count + evaluation)
        self._report()
        return walk

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        """Independent walks on all cores; shorter at the budget's end."""
        wanted = sum(request.evaluations for request in requests)
        count = self._claim(wanted)
        share = count / max(1, wanted)
        shorter = [replace(request, evaluations=int(share * request.evaluations)) for request in requests]
        self.evaluations -= count - sum(request.evaluations for request in shorter)
        walks = self.problem.local_search.walk_side_by_side(shorter, rng)
        for walk in walks:
            self._note(walk.best, walk.best_s, self.evaluations)
        self._report()
        return walks

    def evaluate_compiled(self, count: int, run: Callable[[int], CompiledPart]) -> None:
        """Lets compiled code evaluate up to `count` placements: `run` receives the number that the budget allows."""
        claimed, first = self._claim(count), self.evaluations
        part = run(claimed)
        self.evaluations -= claimed - part.evaluations
        for number, seconds, assignment in part.improvements:
            self._note(assignment, seconds, first - claimed + number)
        self._report()

    @contextmanager
    def part(self, problem: Problem, end_share: float, coarsening: Coarsening | None = None) -> Iterator[Search]:
        """A search of another form of the problem that shares this budget and passes on its best placement.

        Args:
            problem: The same ops as other units, or groups of them.
            end_share: Share of the budget at which the part ends quietly.
            coarsening: Groups of the part's problem, if it has groups.
        """
        evaluations, seconds = self.budget.evaluations, self.budget.seconds
        budget = replace(
            self.budget,
            evaluations=None if evaluations is None else math.ceil(end_share * evaluations),
            seconds=None if seconds is None else end_share * seconds,
        )
        part = Search(
            problem, budget, self.planner, self.seed, evaluations=self.evaluations, known_s=min(self.best_s, self.known_s),
            _begin_s=self._begin_s,
        )  # fmt: skip
        try:
            yield part
        except BudgetExhausted:
            pass
        finally:
            self._take_over(part, coarsening)

    def stage(self, name: str) -> None:
        """Records the best objective at the end of a stage."""
        self.stages.append((name, self.best_s))

    def solution(self) -> Solution:
        """The best placement, with the record of the search.

        Raises:
            InfeasiblePlacement: the budget ended before the first evaluation.
        """
        if self.best is None:
            raise InfeasiblePlacement(
                f"planner {self.planner!r}: the budget ended before one placement was evaluated; allow more evaluations or seconds"
            )
        return Solution(
            self.planner, self.seed, self.best, self.best_s, self.evaluations, self.wall_s,
            tuple(self.history), tuple(self.stages), self.interrupted, self.lower_bound_s, self.simulated,
            tuple(self.steps), tuple(self.executed_steps),
        )  # fmt: skip

    def __enter__(self) -> Search:
        self._interrupt_came = self._open.enter_context(noticed_interrupts())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._open.close()
        if kind is KeyboardInterrupt or (isinstance(error, Exception) and self._interrupt_came()):
            if self.best is None:
                raise KeyboardInterrupt from None
            self.interrupted = True
            return True
        return isinstance(error, BudgetExhausted)

    def _take_over(self, part: Search, coarsening: Coarsening | None) -> None:
        """Adds the evaluations and improvements of a part to this search."""
        self.evaluations = part.evaluations
        self.history.extend(entry for entry in part.history if entry[2] < self.best_s)
        better = [step for step in part.steps if step.after_s < self.best_s]
        if coarsening is None:
            self.steps.extend(better)
        else:
            first_op = np.unique(part.problem.unit_of_op, return_index=True)[1]
            unit = self.problem.unit_of_op[coarsening.representative[first_op]]
            self.steps.extend(
                replace(step, change=step.change._replace(units=unit[step.change.units])) for step in better
            )
        if part.best is not None and part.best_s < self.best_s:
            self.best = part.best if coarsening is None else part.best.expanded(coarsening.group_of_op)
            self.best_s = part.best_s

    def _claim(self, wanted: int) -> int:
        count = min(wanted, self.remaining)
        if wanted and not count:
            raise BudgetExhausted
        self.evaluations += count
        return count

    def _note_batch(self, values: FloatArray, assignment_of: Callable[[int], IntArray]) -> None:
        """Records every row that improves on all before it, with the number of its evaluation."""
        before = np.minimum.accumulate(np.concatenate([[self.best_s], values]))[:-1]
        improved = np.flatnonzero(values < before).tolist()
        if self.best is None and not improved and values.size:
            improved = [0]
        for index in improved:
            self._note(assignment_of(index), float(values[index]), self.evaluations - len(values) + index + 1)

    def _note(self, assignment: IntArray, value: float, evaluations: int, priorities: FloatArray | None = None) -> None:
        if self.best is None or value < self.best_s:
            self.best, self.best_s = Placement(assignment, priorities), value
            self.history.append((evaluations, self.wall_s, value))

    def _report(self) -> None:
        if self.budget.on_progress is not None:
            best_s = min(self.best_s, self.known_s)
            self.budget.on_progress(Progress(self.planner, self.evaluations, self.wall_s, best_s))
