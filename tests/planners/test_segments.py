"""Segments on chains with a known answer; planners with many candidates evaluate none of them twice."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from gnnplace.devices.topology import Device
from gnnplace.evaluation import Problem
from gnnplace.planners.classical import heft, heft_portfolio, mtkahypar, segments
from gnnplace.planners.solution import Budget
from tests.problems import MeasuredLike, chain, connected, devices_of, optimum_s, problem_of, random_reads


def test_segments_cuts_a_chain_where_the_memory_ends_and_nowhere_else() -> None:
    devices = Device("x", memory_bytes=40), Device("y", memory_bytes=30), Device("z", memory_bytes=30)
    problem = problem_of(chain(6, memory_bytes=10), devices, 1.0)
    solution = segments.plan(problem, Budget(500), 0)
    assert solution.objective_s == 7.0  # six seconds of work and one transfer
    assert solution.objective_s == optimum_s(problem)


def test_segments_uses_the_host_again_between_devices() -> None:
    # The host is quick for the first and last op only; the accelerator holds the three between them.
    times = [[9.0, 1.0], [1.0, 9.0], [1.0, 9.0], [1.0, 9.0], [9.0, 1.0]]
    problem = problem_of(chain(5, memory_bytes=10), (Device("gpu", "gpu"), Device("host", "cpu")), times)
    solution = segments.plan(problem, Budget(500), 0)
    assert solution.placement.assignment.tolist() == [1, 0, 0, 0, 1]
    assert solution.objective_s == optimum_s(problem) == 7.0


def test_segments_balances_a_pipeline() -> None:
    problem = problem_of(chain(6), devices_of("dd"), 1.0, "throughput")
    assert segments.plan(problem, Budget(500), 0).objective_s == 3.0


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
    evaluator = MeasuredLike(problem)
    solution = planner.plan(replace(problem, evaluator=evaluator), Budget(300), 0)
    assert len(evaluator.executed) == solution.evaluations
    assert len({row.tobytes() for row in evaluator.executed}) == len(evaluator.executed)
