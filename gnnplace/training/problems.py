"""What a training loop is handed: a problem, where its episodes begin, and a source of such problems without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem

__all__ = ["ProblemSource", "TrainingProblem"]


@dataclass(frozen=True, eq=False)
class TrainingProblem:
    """One problem and the starts of a batch of episodes."""

    name: str
    """Of graph and devices, for metrics."""
    problem: Problem
    starts: IntArray  # [B, N]
    start_s: FloatArray  # [B] penalised seconds
    reference_s: float
    """What rewards are divided by, and ratios in metrics are of."""


class ProblemSource(Protocol):
    """Problems by number. It is sent to other processes, so it can be pickled."""

    def __call__(self, number: int) -> TrainingProblem:
        """Problem `number`, the same in every process; all have the same number of starts."""
