"""Placed models beside plain sessions: the ways to run them, and their speed-ups."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload
from gnnplace.bench import execution
from gnnplace.bench.harness import BenchOptions
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.spec import load_topology
from gnnplace.errors import GnnplaceError
from gnnplace.measuring.timing import StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from models_zoo.networks.zoo_name import parse_zoo_name


def row(placement: str, ratio: float, plain_s: float = 1.0) -> dict[str, Any]:
    return {"placement": placement, "ratio_to_plain": ratio, "plain_s": plain_s}


def test_speed_ups_are_over_one_core_and_over_the_session_on_two_threads_that_ran_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        row("two threads", 0.55, 2.0), row("two threads, parallel", 0.6), row("one core", 1.02), row("heft", 0.5), row("gnn", 0.8),
    ]  # fmt: skip
    monkeypatch.setattr(execution, "run_cases", lambda cases, *_: {case: {"rows": rows} for case in cases})
    result = execution.bench_execution(BenchOptions(only=("ensemble_mlp:batch=1",)))
    summary = result.summary
    assert summary["speed_up_over_one_core"] == {"ensemble_mlp:batch=1": 2.0}
    assert summary["speed_up_over_two_threads"] == {"ensemble_mlp:batch=1": pytest.approx(1.2)}
    assert (summary["at_least_1.5_over_one_core"], summary["faster_than_two_threads"]) == (1, 1)
    assert summary["one_core_overhead_worst"] == pytest.approx(0.02)
    assert [line["model"] for line in result.rows] == ["ensemble_mlp:batch=1"] * 5


def test_rows_choose_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("two threads", 0.55), row("one core", 1.02), row("gnn", 0.5)]
    monkeypatch.setattr(execution, "run_cases", lambda cases, *_: {case: {"rows": rows} for case in cases})
    chosen = {
        batch: {line["model"] for line in execution.bench_execution(BenchOptions(rows=(batch,))).rows}
        for batch in execution.BATCHES
    }
    assert not any("batch" in parse_zoo_name(name).changes for name in chosen["published"])
    assert {parse_zoo_name(name).changes["batch"] for name in chosen["one"]} == {"1"}
    assert {line["model"] for line in execution.bench_execution(BenchOptions()).rows} == set().union(*chosen.values())
    assert sum(map(len, chosen.values())) == len(set().union(*chosen.values())) == 28
    with pytest.raises(GnnplaceError, match="no batch 'large'; known are quick, one, published"):
        execution.bench_execution(BenchOptions(rows=("large",)))


@pytest.mark.usefixtures("needs_two_cores")
def test_every_way_runs_and_is_compared_with_the_plain_session(
    small_model: Callable[[str], OnnxModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("opset_9")
    before = os.sched_getaffinity(0)
    setup = ProblemSetup.build(Workload.of(model), load_topology(execution.DEVICES), RooflineCost())
    monkeypatch.setattr(execution, "real_setup", lambda *_: setup)
    monkeypatch.setattr(execution, "_RULE", StoppingRule(warmup=1, min_repeats=3, max_repeats=3))
    monkeypatch.setattr(execution, "PLANNERS", ("heft", "annealing"))
    found = execution.execution_result(execution.Execution("some", 0))["rows"]
    ways = [*execution.THREADS, "one core", "heft", "annealing"]
    assert [line["placement"] for line in found] == ways
    assert all(line["ratio_to_plain"] > 0 and line["repeats"] == 3 for line in found)
    assert [line["simulated_s"] is None for line in found] == [True] * 4 + [False] * 3
    assert os.sched_getaffinity(0) == before
