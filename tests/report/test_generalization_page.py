"""The page of the generalization bench shows its numbers, where the improver loses, and lets no name act."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gnnplace.errors import GnnplaceError
from gnnplace.files import write_text
from gnnplace.report.bench_charts import budgets_chart, ratios_chart
from gnnplace.report.bench_page import read_bench, write_bench_page
from gnnplace.report.generalization_page import render_generalization


def line(row: str, mean: float | None, worst: float | None, infeasible: int = 0) -> dict[str, Any]:
    return {
        "row": row, "runs": 2, "mean_ratio": mean, "worst_ratio": worst, "worst_at": None if mean is None else "first",
        "within_2_percent": 0.5, "infeasible": infeasible, "evaluations": 200, "wall_s": 1.5,
    }  # fmt: skip


def case(types: list[str], results: dict[str, list[float | None]]) -> dict[str, Any]:
    return {
        "family": "moe", "devices": "k40x2", "groups": 50, "ops": 718, "best_known_s": 0.02, "unseen_types": types,
        "lower_bound": {"value_s": 0.01, "name": "critical path"}, "unlike_training": ["3 devices"],
        "results": {
            row: [{"seed": seed, "ratio": ratio} for seed, ratio in enumerate(ratios)] for row, ratios in results.items()
        },
    }  # fmt: skip


@pytest.fixture
def document() -> dict[str, Any]:
    """Two cases: the improver is best on the first one, and on the second it loses by half, once without a fit."""
    rows = [line("annealing@200", 1.05, 1.1), line("gnn@200", 1.2, 1.5, infeasible=1)]
    comparison = {
        "row": "gnn@200", "other": "annealing@200", "pairs": 4, "mean_ratio": 1.125, "worst_ratio": 1.5,
        "worst_at": "second", "better": 0.25, "equal": 0.5, "worse": 0.25, "beatable": 0.75,
        "mean_ratio_by_seed": [1.0, 1.25],
    }  # fmt: skip
    return {
        "format": "gnnplace.bench/1", "suite": "generalization", "command": "gnnplace bench generalization --seed 0",
        "machine": {"cpu": "some", "cores": 2, "python": "3.11"}, "versions": {"gnnplace": "0.1.0"},
        "rows": rows,
        "summary": {"search_to_annealing@200": comparison, "some": {"share": 0.125}, "cases": 2},
        "details": {
            "cases": {
                "first": case(["TopK"], {"annealing@200": [1.1, 1.1], "gnn@200": [1.0, 1.02]}),
                "second": case([], {"annealing@200": [1.0, 1.0], "gnn@200": [1.5, None]}),
            },
            "unseen": {"3 devices": {"cases": ["first", "second"], "rows": rows}},
            "left_out": ["gnn-10s is left out: it needs a trained policy; give --policy"],
        },
    }  # fmt: skip


def body(page: str) -> str:
    return page[page.index("<body>") :]


def test_the_page_has_the_table_the_comparisons_and_what_was_left_out(document: dict[str, Any]) -> None:
    text = body(render_generalization(document))
    assert "<td>annealing@200</td><td>2</td><td>1.050</td><td>1.100</td>" in text
    assert "<td>gnn@200 / annealing@200</td><td>1.125</td><td>1.000, 1.250</td><td>1.500</td>" in text
    assert "<td>25 %</td><td>50 %</td><td>25 %</td><td>75 %</td><td>4</td>" in text
    assert "share: 0.125" in text
    assert "gnn-10s is left out: it needs a trained policy; give --policy." in text
    assert "3 devices (2 cases)" in text
    assert "1 of 2 do not fit" in text


def test_a_case_shows_the_mean_over_seeds_the_best_in_bold_and_no_mean_where_a_seed_does_not_fit(
    document: dict[str, Any],
) -> None:
    text = body(render_generalization(document))
    assert "<td>1.100</td><td><b>1.010</b></td>" in text
    assert "<td><b>1.000</b></td><td>–</td>" in text
    assert "moe; 3 devices; op types TopK" in text


def test_where_the_improver_loses_names_the_best_row(document: dict[str, Any]) -> None:
    document["details"]["cases"]["second"]["results"]["gnn@200"][1]["ratio"] = 1.7
    text = body(render_generalization(document))
    assert "<td>gnn@200</td><td>second</td><td>1.600</td><td>annealing@200</td>" in text


def test_every_run_that_fits_is_a_point() -> None:
    figure = ratios_chart({"heft": [("a, seed 0", 2.0)], "gnn@200": [("a, seed 0", 1.0), ("<b>, seed 1", 1.5)]})
    assert [list(box.x) for box in figure.data] == [[2.0], [1.0, 1.5]]
    assert figure.data[1].text[1] == "&lt;b&gt;, seed 1"


def test_the_lines_go_through_mean_ratios_in_order_of_evaluations() -> None:
    (trace,) = budgets_chart({"annealing": [(5000, 1.1), (200, 1.3)]}).data
    assert (list(trace.x), list(trace.y)) == ([200, 5000], [1.3, 1.1])


def test_names_act_nowhere_on_the_page(document: dict[str, Any]) -> None:
    hostile = "<script>alert(1)</script>"
    scripts = render_generalization(copy.deepcopy(document)).count("<script")
    details = document["details"]
    details["cases"][hostile] = details["cases"].pop("first")
    details["cases"][hostile]["unseen_types"] = details["cases"][hostile]["unlike_training"] = [hostile]
    details["cases"][hostile]["family"] = details["left_out"][0] = hostile
    details["unseen"][hostile] = details["unseen"].pop("3 devices")
    document["rows"][0]["row"] = document["rows"][1]["worst_at"] = hostile
    page = render_generalization(document)
    assert hostile not in page
    assert page.count("<script") == scripts


def test_the_page_is_written_for_a_result_of_this_suite_and_a_bench_without_any_rows(
    document: dict[str, Any], tmp_path: Path
) -> None:
    document["rows"], document["summary"] = [], {"cases": 2}
    for one in document["details"]["cases"].values():
        one["results"] = {}
    write_text(tmp_path / "result.json", json.dumps(document))
    page = write_bench_page(read_bench(tmp_path / "result.json"), tmp_path / "result.html").read_text(encoding="utf-8")
    assert "The bench ran none of the rows to compare." in page
    assert "Graphs and devices that no training has seen" in page


def test_a_result_without_the_values_of_its_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"format": "gnnplace.bench/1", "suite": "fidelity", "details": {}, "rows": [{}]}')
    with pytest.raises(GnnplaceError, match=r"lacks a value that its page shows \(KeyError"):
        write_bench_page(read_bench(tmp_path / "r.json"), tmp_path / "r.html")
