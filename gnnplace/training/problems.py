"""The training task: problems without end, and the search that the policy is trained for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.search_ppo import SearchRuns

__all__ = ["ProblemSource", "TracedSearches", "TrainingProblem", "TrainingTask"]


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """One problem and a start for its searches."""

    name: str
    """Name of graph and devices, for metrics."""
    problem: Problem
    start: IntArray  # [N]
    start_s: float
    """Penalised seconds of the start."""


class ProblemSource(Protocol):
    """Problems by number. It can be pickled, to be sent to other processes."""

    def __call__(self, number: int) -> TrainingProblem:
        """Problem `number`, the same in every process."""


class TracedSearches(Protocol):
    """The search that a policy is trained for. It can be pickled, to be sent to other processes."""

    def __call__(
        self, network: PolicyNetwork, inputs: PolicyInputs, start: TrainingProblem, evaluations: int, seeds: list[int]
    ) -> SearchRuns:
        """One search of `evaluations` evaluations from the start for each seed."""


@dataclass(frozen=True)
class TrainingTask:
    """The problems and the search of a training run."""

    problems: ProblemSource
    searches: TracedSearches
