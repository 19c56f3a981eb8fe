"""Who says how long a placement takes while an environment is stepped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.units import single_device_assignments
from gnnplace.evaluation import Problem

__all__ = ["ProblemRuntime", "Runtime", "reference_s"]


class Runtime(Protocol):
    """Penalised seconds of placements and of moves; a planner's version counts every call against its budget."""

    @property
    def lookahead_is_exact(self) -> bool:
        """A move's seconds are those that evaluating the moved placement would give."""

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds of `[B, N]` assignments."""

    def evaluate_moves(self, assignment: IntArray, units: IntArray, devices: IntArray) -> FloatArray:
        """`[M]` penalised seconds after moving `units[m]` to `devices[m]`, each from `assignment`."""


@dataclass(frozen=True, eq=False)
class ProblemRuntime:
    """Asks the problem's own evaluator and estimator, without a budget."""

    problem: Problem

    @property
    def lookahead_is_exact(self) -> bool:
        """Only when evaluator and estimator are the same simulator."""
        return self.problem.evaluator.kind == "simulated"

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds, from the evaluator."""
        return self.problem.penalised_batch_s(self.problem.evaluator.evaluate_batch(assignments))

    def evaluate_moves(self, assignment: IntArray, units: IntArray, devices: IntArray) -> FloatArray:
        """`[M]` penalised seconds, from the estimator."""
        ops = self.problem.unit_of_op[None, :] == units[:, None]
        return self.problem.penalised_batch_s(self.problem.estimator.evaluate_moves(assignment, ops, devices))


def reference_s(problem: Problem, runtime: Runtime, start_s: float) -> float:
    """What rewards are divided by: seconds of the best single device; of the start when no single device can take it all."""
    singles = single_device_assignments(problem)
    if not len(singles):
        return start_s
    best_s = float(runtime.evaluate_batch(singles).min())
    return best_s if best_s < problem.worst_case_s else start_s
