"""Searches by execution: results of a search, rows, and the page."""

import os
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.api.workload import Workload
from gnnplace.bench import measured
from gnnplace.bench.harness import BenchOptions, write_result
from gnnplace.bench.measured import MODELS, MeasuredCase, case_result, measured_rows, measured_summary
from gnnplace.bench.rivals import RIVALS
from gnnplace.bench.suites import run_suite
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.planners.classical import annealing
from gnnplace.planners.solution import Budget
from gnnplace.report.bench_page import read_bench, write_bench_page
from gnnplace.report.execution_pages import render_measured
from tests.finished_cases import write_cases
from tests.planners.test_gnn_measured import measured as measured_problem
from tests.problems import random_layers, two_chains

MODEL = next(iter(MODELS))
CORES = sorted(os.sched_getaffinity(0))


def search(seconds: float | None, history: list[list[float]], wall_s: float = 120.0) -> dict[str, Any]:
    return {
        "placement": "01", "searched_s": history[-1][2], "history": history, "stages": [], "evaluations": 50,
        "executed": 50, "simulated": 0, "wall_s": wall_s, "executing_s": wall_s / 2, "median_s": seconds, "spread_s": 0.1,
    }  # fmt: skip


def case_of(searches: dict[str, Any], difference: dict[str, float] | None, error: float) -> dict[str, Any]:
    return {
        "reference": "cpu:0", "reference_s": 4.4, "single_s": 4.4, "simulator_error": error, "groups": 2, "ops": 2,
        "differences": {"annealing": difference}, "searches": searches,
    }  # fmt: skip


@pytest.fixture
def results() -> dict[MeasuredCase, dict[str, Any]]:
    """Two planners with two seeds: one is near at once and later, the other with one seed only."""
    first = {
        "gnn": search(2.2, [[1, 6.0, 4.0], [10, 60.0, 2.0]]),
        "annealing": search(4.4, [[1, 6.0, 4.0], [30, 60.0, 3.9]]),
    }
    second = {
        "gnn": search(2.22, [[1, 6.0, 4.0], [20, 90.0, 2.03], [40, 100.0, 2.0]]),
        "annealing": search(2.2, [[1, 6.0, 4.0], [45, 110.0, 1.9]], 240.0),
    }
    faster = {"difference": -0.5, "low": -0.52, "high": -0.48, "pairs": 20}
    equal = {"difference": 0.009, "low": -0.001, "high": 0.02, "pairs": 40}
    return {
        MeasuredCase(MODEL, 50, 0, "gnn,annealing"): case_of(first, faster, 0.02),
        MeasuredCase(MODEL, 50, 1, "gnn,annealing"): case_of(second, equal, -0.2),
    }


def test_a_row_counts_the_evaluations_until_a_search_is_near_the_best_placement(
    results: dict[MeasuredCase, dict[str, Any]],
) -> None:
    gnn, annealing = measured_rows(results)
    # The best is 2.2 s, near is 2.244 s: with seed 1, 2.03 s of the search are 2.03 * 2.22 / 2.0 s, and so not near.
    assert gnn["by_seed"] == [[10, 60.0], [40, 100.0]]
    assert (gnn["never_near"], gnn["evaluations_to_near"], gnn["minutes_to_near"]) == (0, 25.0, pytest.approx(80 / 60))
    assert gnn["measured_s"] == pytest.approx(2.21)
    assert gnn["speed_up"] == pytest.approx((4.4 / 2.2 + 4.4 / 2.22) / 2)
    assert annealing["by_seed"] == [None, [45, 110.0]]
    assert (annealing["never_near"], annealing["evaluations_to_near"]) == (1, 45.0)
    assert annealing["ratio_to_best"] == pytest.approx(1.5)
    assert (annealing["executing_share"], annealing["minutes"]) == (0.5, 3.0)
    summary = measured_summary([gnn, annealing], results)
    assert summary["annealing_never_near"] == "1 of 2"
    assert summary["gnn_mean_ratio_to_best"] == pytest.approx((1 + 2.22 / 2.2) / 2)
    assert summary["gnn_against_annealing"] == "faster in 1, slower in 0 of 2 cases"
    assert summary["simulator_error_above_0.1"] == MODEL
    assert summary["gnn_against_annealing_simulator_wrong"][0] == pytest.approx((0.5 * 1.009) ** 0.5 - 1)
    assert summary["gnn_against_annealing_simulator_wrong"][1:] == [None, None]  # two cases have no interval
    assert summary["gnn_against_annealing_simulator_right"] == [None, None, None]


def test_a_placement_that_failed_side_by_side_is_never_near(results: dict[MeasuredCase, dict[str, Any]]) -> None:
    next(reversed(results.values()))["searches"]["gnn"]["median_s"] = None
    gnn = measured_rows(results)[0]
    assert (gnn["by_seed"], gnn["measured_s"]) == ([[10, 60.0], None], 2.2)


def test_finished_cases_are_taken_from_the_file_and_drawn(
    results: dict[MeasuredCase, dict[str, Any]], tmp_path: Path
) -> None:
    kept = tmp_path / "result.json.cases"
    write_cases(kept, results)
    options = BenchOptions(evaluations=50, seeds=2, only=(MODEL,), rows=("annealing",), cases_file=kept)
    found = run_suite("measured", options)
    assert [line["planner"] for line in found.rows] == ["gnn", "annealing"]
    write_result(found, tmp_path / "result.json")
    page = write_bench_page(read_bench(tmp_path / "result.json"), tmp_path / "result.html").read_text(encoding="utf-8")
    assert "<td>25 evaluations, 1.3 min</td>" in page
    assert "<td>45 evaluations, 1.8 min<br><small>never in 1 of 2</small></td>" in page
    assert "<td>-50.0%<br><small>-52.0% to -48.0%</small></td>" in page


def test_hostile_names_are_inert_on_the_page(results: dict[MeasuredCase, dict[str, Any]]) -> None:
    hostile = "<script>alert(1)</script>"
    lines = [{**line, "model": hostile, "planner": hostile} for line in measured_rows(results)]
    cases = [{"model": hostile, "kind": hostile, "budget": 50, "seed": 0, **found} for found in results.values()]
    cases[0]["differences"] = {hostile: None}
    document = {
        "rows": lines, "summary": {hostile: hostile}, "details": {"devices": hostile, "cases": cases},
        "command": hostile, "machine": {"cpu": hostile, "cores": 2, "python": "3"}, "versions": {},
    }  # fmt: skip
    assert hostile not in render_measured(document)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_keeps_both_budgets_and_executes_no_placement_twice(name: str) -> None:
    problem, evaluator = measured_problem(random_layers(1))
    solution = RIVALS[name](problem, Budget(40), 0, 2000)
    assert solution.evaluations == len(evaluator.executed) == len(set(evaluator.executed)) == 40
    assert 1800 <= solution.simulated <= 2000
    best_of_few = annealing.plan(problem, Budget(3), 0).objective_s
    assert solution.objective_s < best_of_few
    assert solution.stages[0][0] == "single"


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_ends_where_every_placement_was_executed(name: str) -> None:
    problem, evaluator = measured_problem(two_chains(length=1), noise=0.0)
    RIVALS[name](problem, Budget(20), 0, 200)
    assert len(evaluator.executed) == len(set(evaluator.executed)) <= 4


@pytest.mark.usefixtures("own_cache")
def test_a_case_runs_all_methods_and_compares_them_in_one_job(
    small_model: Callable[[str], OnnxModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("opset_9")

    def setup(*_: str) -> ProblemSetup:
        topology = topology_of(f"cpu:{CORES[0]},cpu:{CORES[-1]}" if len(CORES) > 1 else f"cpu:{CORES[0]}")
        return ProblemSetup.build(Workload.of(model), topology, RooflineCost())

    rule = StoppingRule(warmup=1, min_repeats=2, max_repeats=2)
    monkeypatch.setattr(measured, "real_setup", setup)
    monkeypatch.setattr(measured, "MEASURE_OPTIONS", MeasureOptions(rule, rule, rule))
    monkeypatch.setattr(measured, "PairRule", partial(PairRule, max_blocks=10))
    found = case_result(MeasuredCase(MODEL, 4, 0, "gnn,annealing,best-of-simulated"))
    assert found["differences"].keys() == {"annealing", "best-of-simulated"}
    assert found["reference_s"] > 0.0
    assert found["single_s"] > 0.0
    for method, one in found["searches"].items():
        assert one["evaluations"] <= 4
        assert one["executed"] >= 1
        assert 0.0 < one["executing_s"] < one["wall_s"]
        assert one["history"][-1][2] == one["searched_s"]
        assert one["median_s"] > 0.0
        assert len(one["placement"]) == found["groups"] == model.graph.num_ops
        assert set(one["placement"]) <= set(string.digits)
        assert (one["simulated"] > 0) == (method != "annealing" and len(CORES) > 1)
