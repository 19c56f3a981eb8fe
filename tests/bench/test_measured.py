"""Searches by execution: results of a search, rows, and the page."""

import os
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.api.workload import Workload
from gnnplace.bench import measured
from gnnplace.bench.harness import BenchOptions, write_result
from gnnplace.bench.measured import MODELS, FinalPlacements, SearchCase, measured_rows, measured_summary, search_result
from gnnplace.bench.suites import run_suite
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.report.bench_page import read_bench, write_bench_page
from gnnplace.report.execution_pages import render_measured
from tests.finished_cases import write_cases

MODEL = MODELS[0]
CORES = sorted(os.sched_getaffinity(0))


def result(placement: str, history: list[list[float]], wall_s: float = 120.0) -> dict[str, Any]:
    return {
        "placement": placement, "searched_s": history[-1][2], "history": history, "stages": [], "evaluations": 50,
        "executed": 50, "simulated": 0, "wall_s": wall_s, "executing_s": wall_s / 2, "single_s": 4.0, "groups": 2, "ops": 2,
    }  # fmt: skip


@pytest.fixture
def results() -> dict[SearchCase, dict[str, Any]]:
    """Two planners with two seeds: one is near at once and later, the other with one seed only."""
    return {
        SearchCase(MODEL, "gnn", 0, 50): result("01", [[1, 6.0, 4.0], [10, 60.0, 2.0]]),
        SearchCase(MODEL, "gnn", 1, 50): result("10", [[1, 6.0, 4.0], [20, 90.0, 2.03], [40, 100.0, 2.0]]),
        SearchCase(MODEL, "annealing", 0, 50): result("00", [[1, 6.0, 4.0], [30, 60.0, 3.9]]),
        SearchCase(MODEL, "annealing", 1, 50): result("01", [[1, 6.0, 4.0], [45, 110.0, 1.9]], 240.0),
    }


TOGETHER = {
    "single_s": 4.4,
    "placements": {text: {"median_s": seconds, "spread_s": 0.1} for text, seconds in (("00", 4.4), ("01", 2.2), ("10", 2.22))},
}  # fmt: skip


def test_a_row_counts_the_evaluations_until_a_search_is_near_the_best_placement(
    results: dict[SearchCase, dict[str, Any]],
) -> None:
    gnn, annealing = measured_rows(results, {MODEL: TOGETHER})
    # The best is 2.2 s, near is 2.244 s: with seed 1, 2.03 s of the search are 2.03 * 2.22 / 2.0 s, and so not near.
    assert gnn["by_seed"] == [[10, 60.0], [40, 100.0]]
    assert (gnn["never_near"], gnn["evaluations_to_near"], gnn["minutes_to_near"]) == (0, 25.0, pytest.approx(80 / 60))
    assert gnn["measured_s"] == pytest.approx(2.21)
    assert gnn["speed_up"] == pytest.approx(4.4 / 2.21)
    assert annealing["by_seed"] == [None, [45, 110.0]]
    assert (annealing["never_near"], annealing["evaluations_to_near"]) == (1, 45.0)
    assert annealing["ratio_to_best"] == pytest.approx(1.5)
    assert (annealing["executing_share"], annealing["minutes"]) == (0.5, 3.0)
    summary = measured_summary([gnn, annealing])
    assert summary["annealing_never_near"] == "1 of 2"
    assert summary["gnn_mean_ratio_to_best"] == pytest.approx(2.21 / 2.2)


def test_a_placement_that_failed_side_by_side_is_never_near(results: dict[SearchCase, dict[str, Any]]) -> None:
    together = {**TOGETHER, "placements": {**TOGETHER["placements"], "10": None}}  # type: ignore[dict-item]
    gnn = measured_rows(results, {MODEL: together})[0]
    assert (gnn["by_seed"], gnn["measured_s"]) == ([[10, 60.0], None], 2.2)


def test_finished_searches_are_taken_from_the_file_and_drawn(
    results: dict[SearchCase, dict[str, Any]], tmp_path: Path
) -> None:
    kept = tmp_path / "result.json.cases"
    write_cases(kept, results)
    write_cases(tmp_path / "result.json.cases.together", {FinalPlacements(MODEL, "00,01,10"): TOGETHER})
    options = BenchOptions(evaluations=50, seeds=2, only=(MODEL,), rows=("gnn", "annealing"), cases_file=kept)
    found = run_suite("measured", options)
    assert [line["planner"] for line in found.rows] == ["gnn", "annealing"]
    write_result(found, tmp_path / "result.json")
    page = write_bench_page(read_bench(tmp_path / "result.json"), tmp_path / "result.html").read_text(encoding="utf-8")
    assert "<td>25 evaluations, 1.3 min</td>" in page
    assert "<td>45 evaluations, 1.8 min<br><small>never in 1 of 2</small></td>" in page


def test_hostile_names_are_inert_on_the_page(results: dict[SearchCase, dict[str, Any]]) -> None:
    hostile = "<script>alert(1)</script>"
    lines = [{**line, "model": hostile, "planner": hostile} for line in measured_rows(results, {MODEL: TOGETHER})]
    document = {
        "rows": lines, "summary": {hostile: hostile}, "details": {"devices": hostile, "evaluations": 50},
        "command": hostile, "machine": {"cpu": hostile, "cores": 2, "python": "3"}, "versions": {},
    }  # fmt: skip
    assert hostile not in render_measured(document)


@pytest.mark.parametrize("planner", ["annealing", "gnn"])
def test_a_search_keeps_its_history_and_the_seconds_of_executing(
    planner: str, small_model: Callable[[str], OnnxModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model("opset_9")

    def setup(*_: str) -> ProblemSetup:
        topology = topology_of(f"cpu:{CORES[0]},cpu:{CORES[-1]}" if len(CORES) > 1 else f"cpu:{CORES[0]}")
        return ProblemSetup.build(Workload.of(model), topology, RooflineCost())

    rule = StoppingRule(warmup=1, min_repeats=2, max_repeats=2)
    monkeypatch.setattr(measured, "real_setup", setup)
    monkeypatch.setattr(measured, "MEASURE_OPTIONS", MeasureOptions(rule, rule))
    found = search_result(SearchCase(MODEL, planner, 0, 4))
    assert found["evaluations"] <= 4
    assert found["executed"] >= 1
    assert 0.0 < found["executing_s"] < found["wall_s"]
    assert found["history"][-1][2] == found["searched_s"]
    assert len(found["placement"]) == found["groups"] == model.graph.num_ops
    assert set(found["placement"]) <= set(string.digits)
    assert (found["simulated"] > 0) == (planner == "gnn" and len(CORES) > 1)
