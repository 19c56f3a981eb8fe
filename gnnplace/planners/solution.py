"""The limits of a search, its progress, and the solution that a planner returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.difference import Difference
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement


@dataclass(frozen=True)
class Progress:
    """The state of a search while it runs.

    >>> from gnnplace.planners.classical.baselines import plan_single
    >>> from gnnplace.sim.example import diamond
    >>> seen: list[Progress] = []
    >>> _ = plan_single(diamond(), Budget(evaluations=10, on_progress=seen.append), seed=0)
    >>> seen[-1].planner, seen[-1].evaluations, seen[-1].best_s
    ('single', 1, 6.0)
    """

    planner: str
    evaluations: int
    wall_s: float
    best_s: float


@dataclass(frozen=True)
class Budget:
    """Limits of a search; None means no limit of that kind."""

    evaluations: int | None = 2000
    seconds: float | None = None
    """Seconds of compilation do not count; see `PlaceOptions`."""
    on_progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    """Callback after every batch of evaluations."""

    @property
    def is_unlimited(self) -> bool:
        """True where neither evaluations nor seconds end the search."""
        return self.evaluations is None and self.seconds is None

    def bounded(self, evaluations: int) -> Budget:
        """This budget, or one of `evaluations` if it is unlimited; for planners that would search forever.

        >>> [Budget(limit).bounded(5).evaluations for limit in (None, 7)]
        [5, 7]
        """
        return replace(self, evaluations=max(1, evaluations)) if self.is_unlimited else self


class Change(NamedTuple):
    """The units that differ between two placements.

    >>> Change.between(np.array([0, 0, 1]), np.array([0, 1, 0]))
    Change(units=array([1, 2]), sources=array([0, 1]), targets=array([1, 0]))
    """

    units: IntArray  # [M]
    sources: IntArray  # [M] devices
    targets: IntArray  # [M] devices

    @classmethod
    def between(cls, before: IntArray, after: IntArray) -> Self:
        """The change from `before` to `after`, both devices `[U]` of units."""
        units = np.flatnonzero(before != after)
        return cls(units, before[units], after[units])


@dataclass(frozen=True, eq=False)
class Step:
    """A move proposed by a policy that improved the best placement."""

    evaluations: int
    """Evaluations of the search so far."""
    kind: str
    before_s: float
    """Best objective before the move."""
    after_s: float
    change: Change
    probability: float | None
    """Probability of the move under the policy's distribution over all single-unit moves; None for other moves."""
    chance: float
    """Probability of the move under a uniform distribution."""


@dataclass(frozen=True, eq=False)
class ExecutedStep:
    """One step on devices: a placement and its change were executed in turns, and their difference was measured."""

    evaluations: int
    """Evaluations of the search so far."""
    kind: str
    """Source of the change."""
    change: Change
    difference: Difference | None
    """Relative difference of the seconds, after over before; None where the change failed to run."""
    is_kept: bool


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer of a planner.

    >>> from gnnplace.planners.classical.baselines import plan_single
    >>> from gnnplace.sim.example import diamond
    >>> solution = plan_single(diamond(), Budget(evaluations=10), seed=0)
    >>> solution.placement.assignment.tolist(), solution.objective_s, solution.evaluations
    ([0, 0, 0, 0], 6.0, 1)
    """

    planner: str
    seed: int
    placement: Placement
    objective_s: float
    """Penalised seconds of the placement in the search; see `Problem.penalised_s`."""
    evaluations: int
    wall_s: float
    history: tuple[tuple[int, float, float], ...]
    """(evaluations so far, seconds so far, best objective) at every improvement."""
    stages: tuple[tuple[str, float], ...] = ()
    """(stage, best objective after it), for planners that work in stages."""
    interrupted: bool = False
    lower_bound_s: float | None = None
    """Proven lower bound on the simulated seconds of every placement, from planners that prove one."""
    simulated: int = 0
    """Placements simulated to choose those that were executed; they do not count as evaluations."""
    steps: tuple[Step, ...] = ()
    """Improvements by a policy's moves; with a measured evaluator, those of the best search that ran in the simulator."""
    executed_steps: tuple[ExecutedStep, ...] = ()


class Planner(Protocol):
    """A placement algorithm."""

    def __call__(self, problem: Problem, budget: Budget, seed: int) -> Solution:
        """The best placement found within the budget; the same seed gives the same answer."""
