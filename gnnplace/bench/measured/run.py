"""One search whose evaluations are executions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.arrays import IntArray
from gnnplace.bench.measured.cases import DEVICES, Run
from gnnplace.bench.real_setting import grouped_model, real_setting
from gnnplace.evaluation import Evaluation, EvaluationBatch, Evaluator, EvaluatorKind
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.report.bench_format import device_letters

__all__ = ["TimedEvaluator", "run_result"]


@dataclass(eq=False)
class TimedEvaluator:
    """An evaluator that knows how long it has worked."""

    inner: Evaluator
    busy_s: float = 0.0

    @property
    def kind(self) -> EvaluatorKind:
        """That of the inner one."""
        return self.inner.kind

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement."""
        with self._timed():
            return self.inner.evaluate(placement)

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments."""
        with self._timed():
            return self.inner.evaluate_batch(assignments)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin_s = time.perf_counter()
        yield
        self.busy_s += time.perf_counter() - begin_s


def run_result(run: Run) -> dict[str, Any]:
    """What the search found and when; seconds of placements are single measurements, those of the search are its own alone.

    Raises:
        KeyboardInterrupt: the search was interrupted; half a search is no result.
    """
    setting = real_setting(run.model, DEVICES)
    with MeasuredEvaluator(grouped_model(setting), setting.topology, setting.group_simulator, MEASURE_OPTIONS) as inner:
        evaluator = TimedEvaluator(inner)
        solution = load_planner(run.planner)(setting.problem(evaluator), Budget(run.evaluations), run.seed)
        single = inner.single
    if solution.interrupted:
        raise KeyboardInterrupt
    return {
        "placement": device_letters(solution.placement.assignment.tolist()),
        "searched_s": solution.objective_s if np.isfinite(solution.objective_s) else None,
        "history": [row for row in solution.history if np.isfinite(row[2])],
        "stages": [[name, best_s if np.isfinite(best_s) else None] for name, best_s in solution.stages],
        "evaluations": solution.evaluations,
        "executed": inner.measurements,
        "simulated": solution.simulated,
        "wall_s": solution.wall_s,
        "executing_s": evaluator.busy_s,
        "single_s": None if single is None else single.makespan_s,
        "groups": setting.coarsening.graph.num_ops,
        "ops": setting.workload.graph.num_ops,
    }
