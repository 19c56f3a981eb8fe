"""The papers' tables: lines, summaries, stored results that are extended, and the page."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.bench.harness import BenchOptions, write_result
from gnnplace.bench.papers.suites import CONSTRUCTED, LEARNED, SEARCHED, bench_seeds, evaluations_to_reach, planner_rows
from gnnplace.bench.papers.tables import FACTS, OOM, SEEDS_ROWS, SPOTLIGHT_ROWS, Case, case_result, row_of
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.catalog import PLANNERS
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution
from gnnplace.report.bench_page import read_bench, render_bench
from models_zoo.networks.catalog import load_recipe
from tests.finished_cases import write_cases

ROW = row_of("2018-nmt_2-k40x2")
SMALL = "2017-rnnlm_2-k80x2"


def result(makespan_s: float | None, history: list[list[float]] | None = None) -> dict[str, Any]:
    found = {"makespan_s": makespan_s, "error": None, "wall_s": 2.0, "evaluations": 100, "placement": "01"}
    return found | {"history": history or [[1, 9.0]]} | ({} if makespan_s is not None else {"error": "no memory"})


def results() -> dict[Case, dict[str, Any]]:
    """Made-up results of one row: `gnn` is faster than `coloc-rl`, with fewer evaluations."""
    facts = {
        "ops": 2, "groups": 2, "devices": ["k40:0", "k40:1", "cpu:0"],
        "singles": {
            "single-gpu": {"makespan_s": None, "error": "does not fit into memory", "peak_memory_bytes": 9, "memory_bytes": 6},
            "single-cpu": {"makespan_s": 9.0, "error": None, "peak_memory_bytes": 9, "memory_bytes": 99},
        },
        "lower_bound": {"value_s": 1.0, "name": "critical path"}, "group_stages": [0, 1], "group_types": ["Gemm", "<Relu>"],
    }  # fmt: skip
    found = {Case(ROW.key, FACTS, 0, 100): facts}
    for planner in (*CONSTRUCTED, *SEARCHED):
        for seed in (0,) if planner in CONSTRUCTED else (0, 1, 2):
            found[Case(ROW.key, planner, seed, 100)] = result(5.0 + seed, [[1, 9.0], [60, 5.0 + seed]])
    return found | gnn(4.0, [[1, 9.0], [6, 4.5], [50, 4.0]])


def gnn(makespan_s: float | None, history: list[list[float]] | None = None) -> dict[Case, dict[str, Any]]:
    return {Case(ROW.key, "gnn", seed, 100): result(makespan_s, history) for seed in range(3)}


def nothing_fits() -> dict[Case, dict[str, Any]]:
    return {case: one if case.planner == FACTS else result(None) for case, one in results().items()}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A file with the made-up cases."""
    return write_cases(tmp_path / "seeds.json.cases", results())


def options(cases_file: Path | None) -> BenchOptions:
    return BenchOptions(0, 100, 3, (ROW.key,), cases_file=cases_file)


def write_table(cases_file: Path, path: Path) -> dict[str, Any]:
    """Writes the table of a file of cases; its document."""
    write_result(bench_seeds(options(cases_file)), path)
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def test_a_row_has_the_median_and_the_range_beside_the_published_seconds() -> None:
    lines = {line["planner"]: line for line in planner_rows(ROW, ("expert", "hierarchical"), results())}
    assert (lines["single-gpu"]["makespan_s"], lines["single-gpu"]["published_s"]) == (None, OOM)
    assert lines["single-cpu"]["makespan_s"] == 9.0
    assert lines["expert"]["published_s"] == 2.13
    found = lines["hierarchical"]
    assert (found["lowest_s"], found["makespan_s"], found["highest_s"]) == (5.0, 6.0, 7.0)
    assert found["published_s"] == 0.84
    assert found["to_within_1_percent"] == 60
    assert evaluations_to_reach([[1, 9.0], [40, 5.0], [70, 4.0]], 5.0) == 40
    assert evaluations_to_reach([[1, 9.0]], 5.0) is None


def test_one_seed_of_three_that_does_not_fit_shows_in_the_range_and_not_in_the_median() -> None:
    found = results()
    found[Case(ROW.key, "placeto", 2, 100)] = result(None)
    (line,) = (line for line in planner_rows(ROW, ("placeto",), found) if line["planner"] == "placeto")
    assert (line["makespan_s"], line["highest_s"], line["feasible"]) == (6.0, None, [True, True, False])


def test_the_summary_compares_gnn_with_the_best_and_counts_saved_evaluations(stored: Path) -> None:
    summary = bench_seeds(options(stored)).summary
    assert summary["gnn_best_or_within_1_percent"] == 1
    assert summary["gnn_above_best_worst"] == pytest.approx(4.0 / 5.0 - 1.0)
    assert summary["evaluations_saved_to_coloc_rl_median"] == 60 / 6
    assert summary["one_gpu_too_small"] == 1


def without_coloc_rl() -> dict[Case, dict[str, Any]]:
    return results() | {Case(ROW.key, "coloc-rl", seed, 100): result(None) for seed in range(3)}


@pytest.mark.parametrize(
    ("found", "counts"),
    [(without_coloc_rl, [1, 0, 1, 0]), (lambda: results() | gnn(None), [0, 1, 0, 1]), (nothing_fits, [0, 1, 0, 1])],
)
def test_rows_in_which_a_planner_finds_nothing_that_fits_are_counted_apart(
    found: Callable[[], dict[Case, dict[str, Any]]], counts: list[int], tmp_path: Path
) -> None:
    names = ("gnn_best_or_within_1_percent", "gnn_does_not_fit", "coloc_rl_does_not_fit", "gnn_never_reaches_coloc_rl")
    summary = write_table(write_cases(tmp_path / "cases", found()), tmp_path / "table.json")["summary"]
    assert [summary[name] for name in names] == counts
    assert (summary["gnn_above_best_worst"] is None) == (counts[0] == 0)


def test_extending_a_table_runs_only_the_named_planners(stored: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    document = write_table(stored, whole)
    document["machine"]["cpu"] = document["rows"][0]["cpu"] = "another"
    for line in document["rows"][1:]:
        del line["cpu"]  # as in results that were stored before lines had it
    whole.write_text(json.dumps(document), encoding="utf-8")
    faster = {case: one for case, one in results().items() if case.planner == FACTS} | gnn(3.0, [[1, 9.0], [12, 3.0]])
    kept = write_cases(tmp_path / "faster.cases", faster)
    extended = bench_seeds(replace(options(kept), rows=("gnn",), extend=whole)).document()
    before, after = ({line["planner"]: line for line in one["rows"]} for one in (document, extended))
    assert list(before) == list(after)
    for planner, line in after.items():
        new = {"cpu"} if planner != "gnn" else {"cpu", "makespan_s", "lowest_s", "highest_s", "to_within_1_percent"}
        assert [line[key] for key in line if key not in new] == [before[planner][key] for key in line if key not in new]
        assert (line["cpu"] == "another") == (planner in (*CONSTRUCTED, *SEARCHED) and planner != "gnn")
    assert after["gnn"]["makespan_s"] == 3.0
    assert extended["summary"]["evaluations_saved_to_coloc_rl_median"] == 60 / 12
    assert extended["details"][ROW.key]["histories"].keys() == document["details"][ROW.key]["histories"].keys()


def test_a_table_cannot_extend_a_result_of_other_options(stored: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    write_table(stored, whole)
    plain = options(None)
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    refused = {
        "give both": replace(plain, rows=("gnn",)),
        "no planner 'gnm'": replace(plain, rows=("gnm",), extend=whole),
        "was made with": replace(plain, rows=("gnn",), extend=whole, evaluations=99),
        "has no line for scotch": replace(plain, rows=("gnn",), extend=whole, only=(SMALL,)),
        "is no table": replace(plain, rows=("gnn",), extend=tmp_path / "other.json"),
    }
    for message, wrong in refused.items():
        with pytest.raises(GnnplaceError, match=message):
            bench_seeds(wrong)


def test_a_case_has_seconds_of_the_whole_graph_and_a_placement_of_the_groups() -> None:
    found = case_result(Case(SMALL, "heft", 0, 5))
    assert 0.0 < found["makespan_s"] == case_result(Case(SMALL, "heft", 1, 5))["makespan_s"]
    assert len(found["placement"]) == case_result(Case(SMALL, FACTS, 0, 5))["groups"]


def test_a_planner_without_its_library_is_not_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingDependency, match="scotch"):
        case_result(Case(SMALL, "scotch", 0, 5))


def test_an_interrupted_search_is_not_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(problem: Problem, budget: Budget, seed: int) -> Solution:
        with Search(problem, budget, "test", seed) as search:
            search.evaluate(Placement(np.zeros(problem.graph.num_ops, dtype=np.int64)))
            raise KeyboardInterrupt
        return search.solution()

    monkeypatch.setattr("gnnplace.bench.papers.tables.load_planner", lambda name: interrupted)
    with pytest.raises(KeyboardInterrupt):
        case_result(Case(SMALL, "heft", 0, 5))


def test_a_planner_that_fails_has_its_reason_and_no_seconds() -> None:
    found = case_result(Case(SMALL, "no-such-planner", 0, 5))
    assert found["makespan_s"] is None
    assert "no-such-planner" in found["error"]


def test_no_single_gpu_of_a_small_testbed_holds_the_step() -> None:
    singles = case_result(Case("small-nmt_2-k40x2", FACTS, 0, 1))["singles"]
    assert singles["single-gpu"]["makespan_s"] is None
    assert singles["single-cpu"]["makespan_s"] > 0.0


def test_every_row_names_a_recipe_with_a_training_step_and_every_column_a_planner() -> None:
    for row in (*SEEDS_ROWS, *SPOTLIGHT_ROWS):
        name = row.workload.removeprefix("zoo:").removesuffix(":training")
        assert load_recipe(name).trains, row.key
        assert set(row.published) <= {"single-cpu", "single-gpu", *PLANNERS}
    assert set(PLANNERS) >= {*CONSTRUCTED, *SEARCHED}
    assert set(LEARNED) < set(SEARCHED)


def test_the_page_shows_our_seconds_beside_the_published_ones_and_escapes_names(stored: Path, tmp_path: Path) -> None:
    write_table(stored, tmp_path / "seeds.json")
    page = render_bench(read_bench(tmp_path / "seeds.json"))
    text = page[page.index("<body>") :]
    assert "paper 840 ms" in text
    assert "<b>4 s</b>" in text or "<b>4.00 s</b>" in text
    assert "paper OOM" in text
    assert "<Relu>" not in text
