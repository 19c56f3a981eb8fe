"""Which assignments there were already, so that no evaluation is spent on one twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.errors import InfeasiblePlacement
from gnnplace.evaluation import Problem, Walk, WalkRequest
from gnnplace.graph.coarsen import Coarsening
from gnnplace.interruption import interrupts_told
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget, Progress

__all__ = ["BudgetExhausted", "Planner", "Search", "Seen", "Solution", "Step"]


class Seen:
    """A set of assignments.

    >>> import numpy as np
    >>> seen = Seen([np.array([0, 1])])
    >>> [row.tolist() for row in seen.fresh([np.array([0, 1]), np.array([1, 0]), np.array([1, 0])])]
    [[1, 0]]
    """

    def __init__(self, assignments: Iterable[IntArray] = ()) -> None:
        self._keys = {assignment.tobytes() for assignment in assignments}

    def add(self, assignment: IntArray) -> bool:
        """True where it was not there before.

        >>> import numpy as np
        >>> seen = Seen()
        >>> seen.add(np.array([0, 1])), seen.add(np.array([0, 1]))
        (True, False)
        """
        before = len(self._keys)
        self._keys.add(assignment.tobytes())
        return len(self._keys) > before

    def fresh(self, assignments: Iterable[IntArray]) -> list[IntArray]:
        """Those that were not there before, each once, in their order; now they are."""
        return [assignment for assignment in assignments if self.add(assignment)]


class BudgetExhausted(Exception):
    """Ends a search from within; `Search` catches it.

    >>> from gnnplace.sim.example import diamond
    >>> search = Search(diamond(), Budget(evaluations=0), "nothing", seed=0)
    >>> search.evaluate(Placement(np.array([0, 0, 0, 0])))
    Traceback (most recent call last):
        ...
    gnnplace.planners.search.BudgetExhausted
    """


@dataclass(frozen=True, eq=False)
class Step:
    """A change that a policy had drawn, and that made the best placement better."""

    evaluations: int
    """So far."""
    kind: str
    before_s: float
    """The best objective before it."""
    after_s: float
    units: IntArray  # [M] that moved
    sources: IntArray  # [M] devices
    targets: IntArray  # [M] devices
    probability: float | None
    """Of the move of one unit that was drawn from the policy's odds over all such moves; None where the policy was not asked."""
    chance: float
    """The same if all moves were alike."""


@dataclass(frozen=True, eq=False)
class Solution:
    """What a planner returns."""

    planner: str
    seed: int
    placement: Placement
    objective_s: float
    """Penalised seconds of the placement as the search saw it; see `Problem.penalised_s`."""
    evaluations: int
    wall_s: float
    history: tuple[tuple[int, float, float], ...]
    """(evaluations so far, seconds so far, best objective) at every improvement."""
    stages: tuple[tuple[str, float], ...] = ()
    """(stage, best objective after it) for planners that work in stages."""
    interrupted: bool = False
    lower_bound_s: float | None = None
    """Simulated seconds that no placement of the problem can beat, from planners that prove one."""
    simulated: int = 0
    """Placements that were simulated on the side, to choose those that were executed; no evaluations of the budget."""
    steps: tuple[Step, ...] = ()
    """Of planners that a policy steers; where evaluations are executions, those of the best search that was simulated before."""


class Planner(Protocol):
    """Anything that returns a placement."""

    def __call__(self, problem: Problem, budget: Budget, seed: int) -> Solution:
        """The best placement found within the budget; the same seed gives the same answer."""


@dataclass(eq=False)
class Search:
    """One planner's use of its budget; as a context it ends quietly on an exhausted budget and on Ctrl-C.

    After the block, `solution` gives the best placement seen.

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

    A part of it, over groups and for half of the budget, then two walks with what is left:

    >>> from gnnplace.evaluation import Proposals
    >>> from gnnplace.graph.coarsen import coarsen
    >>> problem, steps = diamond(), Proposals(0.8, 0.5, 3.0)
    >>> groups = coarsen(problem.graph, max_groups=1, max_fraction=1.0)
    >>> with Search(problem, Budget(evaluations=10), "by hand", seed=0) as search:
    ...     with search.part(problem.over_groups(groups), 0.5, groups) as part:
    ...         alone = part.evaluate(Placement(np.array([1])))
    ...     request = WalkRequest(search.best.assignment, 4, 0.0, 0.0, steps)
    ...     walks = search.walk_side_by_side([request, request], np.random.default_rng(0))
    >>> alone, search.evaluations, search.best_s <= alone
    (6.0, 9, True)
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
    known_s: float = np.inf
    """The best of the search that this one is a part of."""
    _begin_s: float = field(default_factory=time.perf_counter)
    _open: ExitStack = field(default_factory=ExitStack)
    _interrupt_came: Callable[[], bool] = bool

    @property
    def wall_s(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._begin_s

    @property
    def remaining(self) -> int:
        """Evaluations that may still be made; 0 when the time is up."""
        if self.budget.seconds is not None and self.wall_s >= self.budget.seconds:
            return 0
        return 2**31 if self.budget.evaluations is None else max(0, self.budget.evaluations - self.evaluations)

    def evaluate(self, placement: Placement) -> float:
        """Penalised seconds of one placement; one evaluation."""
        self._claim(1)
        value = self.problem.penalised_s(self.problem.evaluator.evaluate(placement))
        self._note(placement.assignment, value, self.evaluations, placement.priorities)
        self._report()
        return value

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds of `[B, N]` assignments; those beyond the budget are not run and give infinity."""
        count = self._claim(len(assignments))
        values = np.full(len(assignments), np.inf)
        values[:count] = self.problem.penalised_batch_s(self.problem.evaluator.evaluate_batch(assignments[:count]))
        self._note_batch(values[:count], lambda index: assignments[index])
        self._report()
        return values

    def evaluate_moves(self, assignment: IntArray, units: IntArray, devices: IntArray) -> FloatArray:
        """`[M]` penalised seconds after moving `units[m]` to `devices[m]`, each from `assignment`.

        With a simulated evaluator every move is an evaluation, cheaper than a full one; with a measured one the moves
        are executed like any other placement.

        >>> from gnnplace.sim.example import diamond
        >>> search = Search(diamond(), Budget(), "by hand", seed=0)
        >>> search.evaluate_moves(np.array([0, 0, 0, 0]), np.array([1, 3]), np.array([1, 1])).round(3).tolist()
        [4.002, 6.001]
        """
        count = self._claim(len(units))
        values = np.full(len(units), np.inf)
        if not count:
            return values
        if self.problem.evaluator.kind == "simulated":
            ops = (
                self.problem.unit_of_op[None, :] == units[:count, None]
                if self._grouped
                else self._only_ops[units[:count]]
            )
            batch = self.problem.estimator.evaluate_moves(assignment, ops, devices[:count])
        else:
            batch = self.problem.evaluator.evaluate_batch(self._moved(assignment, units[:count], devices[:count]))
        values[:count] = self.problem.penalised_batch_s(batch)
        self._note_batch(values[:count], lambda index: self._moved(assignment, units[[index]], devices[[index]])[0])
        self._report()
        return values

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """A piece of simulated annealing in the simulator, from an assignment that was evaluated; shorter at the budget's end.

        >>> from gnnplace.evaluation import Proposals
        >>> from gnnplace.sim.example import diamond
        >>> search = Search(diamond(), Budget(evaluations=20), "by hand", seed=0)
        >>> downhill = WalkRequest(np.array([0, 0, 0, 0]), 100, 0.0, 0.0, Proposals(0.8, 0.5, 3.0))
        >>> walk = search.walk(downhill, np.random.default_rng(0))
        >>> walk.evaluations, round(walk.best_s, 3)
        (20, 4.001)
        """
        count = self._claim(request.evaluations)
        walk = self.problem.local_search.walk(replace(request, evaluations=count), rng)
        for evaluation, value in walk.improvements:
            self._note(walk.best, value, self.evaluations - count + evaluation)
        self._report()
        return walk

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        """Walks that know nothing of each other, on as many threads as there are cores; shorter at the budget's end."""
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

    @contextmanager
    def part(self, problem: Problem, end_share: float, coarsening: Coarsening | None = None) -> Iterator[Search]:
        """A search of the same problem in another form, up to a share of this budget; its best is this search's too.

        Args:
            problem: the same ops in other units, or groups of them.
            end_share: of the budget, where the part ends quietly.
            coarsening: what the groups are made of, where there are some.
        """
        budget = self.budget
        part = Search(
            problem,
            replace(
                budget,
                evaluations=None if budget.evaluations is None else math.ceil(end_share * budget.evaluations),
                seconds=None if budget.seconds is None else end_share * budget.seconds,
            ),
            self.planner, self.seed, evaluations=self.evaluations, known_s=min(self.best_s, self.known_s), _begin_s=self._begin_s,
        )  # fmt: skip
        try:
            yield part
        except BudgetExhausted:
            pass
        finally:
            self._take_over(part, coarsening)

    def stage(self, name: str) -> None:
        """Notes the best so far under the name of the stage that has ended."""
        self.stages.append((name, self.best_s))

    def solution(self) -> Solution:
        """The best placement seen.

        Raises:
            InfeasiblePlacement: not even one evaluation was made.
        """
        if self.best is None:
            raise InfeasiblePlacement(
                f"planner {self.planner!r}: the budget ended before one placement was evaluated; allow more evaluations or seconds"
            )
        return Solution(
            self.planner, self.seed, self.best, self.best_s, self.evaluations, self.wall_s,
            tuple(self.history), tuple(self.stages), self.interrupted, self.lower_bound_s, self.simulated,
            tuple(self.steps),
        )  # fmt: skip

    def __enter__(self) -> Search:
        self._interrupt_came = self._open.enter_context(interrupts_told())
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
        return kind is BudgetExhausted

    def _take_over(self, part: Search, coarsening: Coarsening | None) -> None:
        """What a part has counted and found."""
        self.evaluations = part.evaluations
        self.history.extend(entry for entry in part.history if entry[2] < self.best_s)
        better = [step for step in part.steps if step.after_s < self.best_s]
        if coarsening is None:
            self.steps.extend(better)
        else:
            first_op = np.unique(part.problem.unit_of_op, return_index=True)[1]
            unit = self.problem.unit_of_op[coarsening.representative[first_op]]
            self.steps.extend(replace(step, units=unit[step.units]) for step in better)
        if part.best is not None and part.best_s < self.best_s:
            self.best, self.best_s = part.best, part.best_s
            if coarsening is not None:
                priorities = part.best.priorities
                self.best = Placement(
                    coarsening.expand(part.best.assignment),
                    None if priorities is None else coarsening.expand(priorities),
                )

    @property
    def _grouped(self) -> bool:
        return self.problem.num_units < self.problem.graph.num_ops

    @property
    def _only_ops(self) -> IntArray:
        """`[U]` the op of each unit, when every unit is one op."""
        return np.argsort(self.problem.unit_of_op)

    def _moved(self, assignment: IntArray, units: IntArray, devices: IntArray) -> IntArray:
        return np.where(self.problem.unit_of_op[None, :] == units[:, None], devices[:, None], assignment[None, :])

    def _claim(self, wanted: int) -> int:
        count = min(wanted, self.remaining)
        if wanted and not count:
            raise BudgetExhausted
        self.evaluations += count
        return count

    def _note_batch(self, values: FloatArray, assignment_of: Callable[[int], IntArray]) -> None:
        """Notes every row that beats all before it, under the count of evaluations that it was made at."""
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
            self.budget.on_progress(
                Progress(self.planner, self.evaluations, self.wall_s, min(self.best_s, self.known_s))
            )
