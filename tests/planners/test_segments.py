"""Segments, and the other planners that evaluate many candidates: none of them twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Evaluation, EvaluationBatch, Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical import heft, heft_portfolio, mtkahypar, segments
from gnnplace.sim.simulator import Simulator
from tests.problems import connected, devices_of, problem_of, random_reads


@dataclass
class Recorder:
    """An evaluator that records its calls."""

    simulator: Simulator
    kind: str = "simulated"
    evaluated: list[tuple[int, ...]] = field(default_factory=list)

    def evaluate(self, placement: Placement) -> Evaluation:
        self.evaluated.append(tuple(placement.assignment.tolist()))
        return self.simulator.evaluate(placement)

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        self.evaluated.extend(map(tuple, assignments.tolist()))
        return self.simulator.evaluate_batch(assignments)


def random_problem(num_ops: int, memory_bytes: int | None = None) -> Problem:
    """On two accelerators and a host, all linked."""
    rng = np.random.default_rng(0)
    topology = connected(*devices_of(("gpu", "gpu", "cpu"), memory_bytes), latency_s=1e-3, bandwidth=1e6)
    return problem_of(
        random_reads(rng, num_ops, (100, 101), memory_bytes=10), topology, rng.uniform(1.0, 2.0, (num_ops, 3))
    )


@pytest.mark.parametrize("memory_bytes", [None, 40, 430])
@pytest.mark.parametrize("planner", [segments, heft, heft_portfolio, mtkahypar])
def test_no_placement_is_evaluated_twice(planner: ModuleType, memory_bytes: int | None) -> None:
    if planner is mtkahypar:
        pytest.importorskip("mtkahypar", reason="the extra 'partition' is not installed")
    problem = random_problem(6, memory_bytes)
    recorder = Recorder(problem.evaluator)
    solution = planner.plan(replace(problem, evaluator=recorder), Budget(300), 0)
    assert len(recorder.evaluated) == solution.evaluations
    assert len(set(recorder.evaluated)) == len(recorder.evaluated)
