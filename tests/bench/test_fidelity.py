"""Simulated against measured seconds: placements of every kind, the table, and a real run on two cores."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload
from gnnplace.bench import fidelity, fidelity_probes
from gnnplace.bench.fidelity import Case, bench_fidelity, fidelity_row, fidelity_summary
from gnnplace.bench.fidelity_probes import COUNT, overlap_s, placements_of_every_kind
from gnnplace.bench.harness import BenchOptions, write_result
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.devices.spec import load_topology
from gnnplace.measuring.timing import StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.planners.solution import Budget
from gnnplace.report import execution_pages as fidelity_page
from gnnplace.report.bench_charts import agreement_chart
from gnnplace.report.bench_page import read_bench, write_bench_page
from gnnplace.schedule import Schedule
from models_zoo.networks.light import write_light_model

CASE = Case("some", "cpu:0,cpu:1", 0)


def row(kind: str, simulated_s: float, without_s: float, measured_s: float | None) -> dict[str, Any]:
    return {
        "kind": kind, "segments": 2, "simulated_s": simulated_s, "overlap_s": simulated_s / 3, "without_segment_costs_s": without_s,
        "features": {"segments": 0.1}, "corrected_s": measured_s,
        "measured_s": measured_s, "plain_session_s": 2.0, "halves": measured_s and [measured_s, 1 / measured_s], "median_s": measured_s, "spread_s": 0.01, "repeats": 9,
        "failure": "" if measured_s else "why",
    }  # fmt: skip


RESULT = {
    "placements": [
        row("single", 1.0, 1.0, 1.0), row("list", 1.8, 1.0, 2.0), row("random", 3.3, 1.5, 3.0), row("random", 1.0, 1.0, None),
    ],
    "slowdown_together": [1.2, 1.4], "ops": 9, "groups": 4, "simulated_single_s": 2.0,
}  # fmt: skip


def test_a_row_has_errors_and_rank_correlations() -> None:
    line = fidelity_row(CASE, RESULT)
    assert (line["placements"], line["failed"]) == (3, 1)
    assert (line["spearman"], line["repeatability"]) == pytest.approx((1.0, -1.0))
    assert (line["median_error"], abs(line["worst_error"]), line["bias"]) == pytest.approx((0.1, 0.1, 0.0))
    assert line["median_error_without_segment_costs"] == pytest.approx(0.5)
    assert line["median_error_random"] == pytest.approx(0.1)
    assert line["slowdown"] == pytest.approx(1.3)
    assert line["median_error_slowed"] == pytest.approx(0.1)  # 1.1, 0.99 and 1.21 times the measured seconds
    assert line["bias_slowed"] == pytest.approx(0.1)
    assert (line["median_error_corrected"], line["spearman_corrected"]) == pytest.approx((0.0, 1.0))


def test_devices_overlap_while_several_compute() -> None:
    def schedule(start_s: list[float], end_s: list[float]) -> Schedule:
        nothing = np.zeros(0)
        return Schedule(np.arange(len(start_s)), np.array(start_s), np.array(end_s), *[nothing] * 5, np.zeros(3))

    assert overlap_s(schedule([0.0, 2.0], [2.0, 3.0])) == 0.0
    assert overlap_s(schedule([0.0, 1.0, 1.0], [4.0, 2.0, 3.0])) == pytest.approx(3.0)


def test_the_summary_counts_the_models_that_reach_the_goals() -> None:
    good, bad = fidelity_row(CASE, RESULT), {**fidelity_row(CASE, RESULT), "spearman": 0.5, "median_error": 0.4}
    summary = fidelity_summary([good, bad])
    assert (summary["models"], summary["spearman_at_least_0.9"], summary["median_error_at_most_0.1"]) == (2, 1, 1)
    assert (summary["spearman_worst"], summary["median_error_worst"]) == (0.5, 0.4)


def test_thirty_placements_cover_every_kind_and_depend_on_the_seed_alone(squeezenet: OnnxModel) -> None:
    setup = ProblemSetup.build(Workload.of(squeezenet), preset("haswellx2"), RooflineCost())
    found = placements_of_every_kind(setup, 0)
    assert len(found) == COUNT == 30
    assert {kind for kind, _ in found} == {"single", "cuts", "list", "random"}
    again = placements_of_every_kind(setup, 0)
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(found, again, strict=True))
    assert len({assignment.tobytes() for _, assignment in found}) >= 20
    devices = setup.topology.num_devices
    assert all(((assignment >= 0) & (assignment < devices)).all() for _, assignment in found)


@pytest.fixture
def squeezenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnnxModel:
    """Eight modules, each with two branches, for which a portfolio tries few schedules."""
    monkeypatch.setattr(fidelity_probes, "Budget", partial(Budget, 100))
    write_light_model("squeezenet", tmp_path / "squeezenet.onnx")
    return read_onnx(tmp_path / "squeezenet.onnx")


@pytest.mark.skipif("len(os.sched_getaffinity(0)) < 2", reason="needs two cores")
def test_a_model_is_simulated_and_executed(
    squeezenet: OnnxModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    setup = ProblemSetup.build(Workload.of(squeezenet), load_topology(f"cpu:{first},cpu:{second}"), RooflineCost())
    monkeypatch.setattr(fidelity, "real_setup", lambda model, devices: setup)
    monkeypatch.setattr(fidelity, "_RULE", StoppingRule(warmup=1, min_repeats=3, max_repeats=3))
    monkeypatch.setattr(fidelity, "placements_of_every_kind", lambda *_: placements_of_every_kind(setup, 0)[1:12:5])
    found = fidelity.fidelity_result(CASE)
    assert [row["kind"] for row in found["placements"]] == ["single", "cuts", "list"]
    for line in found["placements"]:
        assert line["failure"] == ""
        assert 0 < line["without_segment_costs_s"] <= line["simulated_s"]
        assert 0 < line["measured_s"] < 10
        assert 0 < line["plain_session_s"] < 10
        assert 0 < line["corrected_s"] < 10
        assert line["features"]["segments"] > 0
        assert len(line["placement"]) == found["groups"]
    assert found["simulated_single_s"] > 0
    assert all(0.8 < slowdown < 5 for slowdown in found["slowdown_together"])


def test_the_page_has_a_point_for_every_placement_that_ran_and_hostile_names_are_inert(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fidelity, "run_cases", lambda cases, *_: dict.fromkeys(cases, RESULT))
    result = bench_fidelity(BenchOptions(only=("ensemble_mlp",), rows=("gangs",)))
    assert [line["model"] for line in result.rows] == ["ensemble_mlp"]
    assert next(iter(result.details.values()))["placements"] == RESULT["placements"]
    write_result(result, tmp_path / "fidelity.json")
    document = read_bench(tmp_path / "fidelity.json")
    document["details"] = {"<script>alert(1)</script>": document["details"].popitem()[1]}
    page = write_bench_page(document, tmp_path / "page.html").read_text()
    assert "ensemble_mlp" in page
    assert "<script>alert" not in page
    figure = agreement_chart({"model": fidelity_page._points(RESULT)})
    drawn = [len(trace.x) for trace in figure.data if trace.mode == "markers"]
    assert sum(drawn) == 3
    assert {trace.name for trace in figure.data if trace.mode == "markers"} == {"single", "list", "random"}
