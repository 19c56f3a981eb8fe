"""Measurements of throughput execute pipelined requests."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest

import gnnplace
from gnnplace.api import measuring, problem_setup
from gnnplace.api.plan import Plan
from gnnplace.errors import GnnplaceError
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Answer, Job, Task, WorkerProcess
from gnnplace.placement import Placement

CORES = sorted(os.sched_getaffinity(0))
DEVICES = ",".join(f"cpu:{core}" for core in CORES[:2])
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
CHAIN = "(float[8] x) => (float[8] y) { a = Relu(x)  b = Exp(a)  c = Neg(b)  d = Abs(c)  y = Sqrt(d) }"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, measure_quickly: Callable[[StoppingRule], None]) -> list[Job]:
    """The jobs of measuring processes."""
    measure_quickly(StoppingRule(warmup=1, min_repeats=3, max_repeats=3))
    started: list[Job] = []
    run = WorkerProcess.run

    def noted(worker: WorkerProcess, job: Task) -> Answer:
        if isinstance(job, Job):
            started.append(job)
        return run(worker, job)

    monkeypatch.setattr(WorkerProcess, "run", noted)
    return started


def model(folder: Path) -> Path:
    path = folder / "chain.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {CHAIN}'), path)
    return path


def test_with_throughput_as_the_objective_search_and_comparison_run_pipelined(jobs: list[Job], tmp_path: Path) -> None:
    requests = []
    for objective in ("throughput", "latency"):
        plan = gnnplace.place(
            model(tmp_path), DEVICES, planner="greedy", evaluations=3, measure=True, objective=objective
        )
        assert plan.measured is not None
        assert plan.measured["median_s"] > 0
        requests.append({job.requests for job in jobs})
        jobs.clear()
    assert requests == [{1, measuring.REQUESTS}, {1}]  # the costs of segments come from single requests


def test_recalled_placements_are_executed_again_and_biased_ratios_are_dropped_with_one_warning(
    jobs: list[Job], costs_of_first_run: None, tmp_path: Path
) -> None:
    # Its first placements are random and do not depend on measured seconds.
    def placed() -> tuple[Plan, int]:
        jobs.clear()
        plan = gnnplace.place(model(tmp_path), DEVICES, planner="genetic", evaluations=3, measure=True)
        dropped = sum("had a biased reference" in warning for warning in plan.warnings)
        return plan, dropped

    assert placed()[1] == 0
    file = tmp_path / "cache" / "measurements.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO placement VALUES (1, 'm', 'p', 0.73, 0.01, 4, 1e-3, 0.0)")
    plan, dropped = placed()
    assert plan.measured is not None
    assert dropped == 1
    assert (plan.measured["search"]["recalled"] > 0, plan.measured["search"]["executed"]) == (True, 0)
    assert max(len(job.candidates) for job in jobs) >= 3  # the finalists beside plain sessions
    assert placed()[1] == 0


def test_an_evaluation_measures_a_step_alone_and_pipelined_steps(jobs: list[Job], tmp_path: Path) -> None:
    placement = Placement(np.array([0, 0, 0, 1, 1]))
    alone = Placement(np.zeros(5, dtype=np.int64))
    found = gnnplace.evaluate(model(tmp_path), DEVICES, placement, measure=True, against=alone)
    low, high = found["difference_interval"]
    assert 0 < low < found["difference"] < high  # four hand-overs take longer than five ops of eight numbers
    assert found["pairs"] >= 20
    assert found["seconds"] > 0
    with pytest.raises(GnnplaceError, match="measure is needed"):
        gnnplace.evaluate(model(tmp_path), DEVICES, placement, against=alone)
    assert found["evaluator"] == "measured"
    assert 0 < found["throughput_s"] != found["makespan_s"] > 0
    assert {1, measuring.REQUESTS} == {job.requests for job in jobs}
    assert max(len(job.candidates) for job in jobs if job.requests > 1) == 2  # no plain sessions are measured again


def test_a_measured_search_decides_on_groups_even_of_large_models(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_setup, "MAX_GROUPS", 2)
    plan = gnnplace.place(model(tmp_path), DEVICES, evaluations=3, measure=True)
    assert jobs
    assert plan.setup.for_planner("gnn") is plan.setup
