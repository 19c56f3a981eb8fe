"""What counts for throughput is executed as it will run: many requests, pipelined."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import gnnplace
from gnnplace.api import evaluate, measuring
from gnnplace.api import problem_setup as setting
from gnnplace.api.options import PlaceOptions
from gnnplace.measuring import busy
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.measuring.worker_process import Answer, Job, Task, WorkerProcess
from gnnplace.placement import Placement

CORES = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
QUICK = StoppingRule(warmup=1, min_repeats=3, max_repeats=3)
CHAIN = "(float[8] x) => (float[8] y) { a = Relu(x)  b = Exp(a)  c = Neg(b)  d = Abs(c)  y = Sqrt(d) }"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Job]:
    """The placed models that measuring processes were asked to run."""
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.0))
    monkeypatch.setattr(measuring, "MEASURE_OPTIONS", MeasureOptions(search=QUICK, final=QUICK))
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


def test_the_search_and_the_comparison_pipeline_when_throughput_counts(jobs: list[Job], tmp_path: Path) -> None:
    devices, asked = f"cpu:{CORES[0]},cpu:{CORES[1]}", []
    for objective in ("throughput", "latency"):
        options = PlaceOptions(planner="greedy", evaluations=3, measure=True, objective=objective)
        plan = gnnplace.place(model(tmp_path), devices, options)
        assert plan.measured is not None
        assert plan.measured["median_s"] > 0
        asked.append({job.requests for job in jobs})
        jobs.clear()
    assert asked == [{1, measuring.REQUESTS}, {1}]  # what segments cost is learned from single requests


def test_an_evaluation_has_the_seconds_of_a_step_alone_and_of_pipelined_ones(jobs: list[Job], tmp_path: Path) -> None:
    placement = Placement(np.array([0, 0, 0, 1, 1]))
    devices = f"cpu:{CORES[0]},cpu:{CORES[1]}"
    found = evaluate(model(tmp_path), devices, placement, PlaceOptions(measure=True))
    assert found["evaluator"] == "measured"
    assert 0 < found["throughput_s"] != found["makespan_s"] > 0
    assert {1, measuring.REQUESTS} == {job.requests for job in jobs}


def test_a_measured_search_decides_on_groups_however_large_the_model_is(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting, "LARGE", 2)
    plan = gnnplace.place(
        model(tmp_path), f"cpu:{CORES[0]},cpu:{CORES[1]}", PlaceOptions("gnn", evaluations=3, measure=True)
    )
    assert jobs
    assert plan.setup.for_planner("gnn") is plan.setup
