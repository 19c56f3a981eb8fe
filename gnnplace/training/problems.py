"""What a training loop is handed: a problem, where its searches begin, a source of such problems without end, and the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.search_ppo import SearchRuns

__all__ = ["ProblemSource", "Searches", "TrainingProblem", "TrainingTask"]


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """One problem and a start for searches."""

    name: str
    """Of graph and devices, for metrics."""
    problem: Problem
    start: IntArray  # [N]
    start_s: float
    """Penalised seconds of the start."""


class ProblemSource(Protocol):
    """Problems by number. It is sent to other processes, so it can be pickled."""

    def __call__(self, number: int) -> TrainingProblem:
        """Problem `number`, the same in every process."""


class Searches(Protocol):
    """The search that a policy is trained for. It is sent to other processes, so it can be pickled."""

    def __call__(
        self,
        network: PolicyNetwork,
        inputs: PolicyInputs,
        exercise: TrainingProblem,
        evaluations: int,
        seeds: list[int],
    ) -> SearchRuns:
        """One search from the start for each seed, each with so many evaluations."""


@dataclass(frozen=True)
class TrainingTask:
    """What a policy is trained on and for."""

    problems: ProblemSource
    searches: Searches
