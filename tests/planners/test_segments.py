"""Segments, and the other planners that evaluate many candidates: none of them twice."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from types import ModuleType

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Evaluation, EvaluationBatch, Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical import heft, heft_portfolio, mtkahypar, segments
from gnnplace.sim.simulator import Simulator


@dataclass
class Recorder:
    """An evaluator that keeps what it was asked."""

    simulator: Simulator
    kind: str = "simulated"
    asked: list[tuple[int, ...]] = field(default_factory=list)

    def evaluate(self, placement: Placement) -> Evaluation:
        self.asked.append(tuple(placement.assignment.tolist()))
        return self.simulator.evaluate(placement)

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        self.asked.extend(map(tuple, assignments.tolist()))
        return self.simulator.evaluate_batch(assignments)


def random_problem(num_ops: int, memory_bytes: int | None = None) -> Problem:
    """On two accelerators and a host, all linked."""
    rng = np.random.default_rng(0)
    tensors = [
        Tensor(f"o{i}", 100, tuple({f"o{j}" for j in rng.integers(i + 1, num_ops, 2)})) for i in range(num_ops - 1)
    ]
    graph = OpGraph.build("random", [Op(f"o{i}", memory_bytes=10) for i in range(num_ops)], tensors)
    devices = tuple(Device(name, kind, memory_bytes) for name, kind in (("g0", "gpu"), ("g1", "gpu"), ("c0", "cpu")))
    links = tuple(Link(a.name, b.name, 1e-3, 1e6) for a, b in itertools.permutations(devices, 2))
    topology = Topology("three", devices, links)
    times = rng.uniform(1.0, 2.0, (num_ops, 3))
    simulator = Simulator(graph, topology, times)
    return Problem(graph, topology, times, simulator, simulator)


@pytest.mark.parametrize("memory_bytes", [None, 40, 430])
@pytest.mark.parametrize("planner", [segments, heft, heft_portfolio, mtkahypar])
def test_no_placement_is_evaluated_twice(planner: ModuleType, memory_bytes: int | None) -> None:
    if planner is mtkahypar:
        pytest.importorskip("mtkahypar", reason="the extra 'partition' is not installed")
    problem = random_problem(6, memory_bytes)
    recorder = Recorder(problem.evaluator)
    solution = planner.plan(replace(problem, evaluator=recorder), Budget(300), 0)
    assert len(recorder.asked) == solution.evaluations
    assert len(set(recorder.asked)) == len(recorder.asked)
