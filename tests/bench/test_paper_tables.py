"""The papers' tables: what a line says, what is kept, and what the page shows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.bench.options import BenchOptions
from gnnplace.bench.papers.case import DOES_NOT_FIT, FACTS, Case, case_result
from gnnplace.bench.papers.seeds import CONSTRUCTED, LEARNED, SEARCHED, bench_seeds, planner_rows
from gnnplace.bench.papers.tables import OOM, SEEDS_ROWS, SPOTLIGHT_ROWS, row_of
from gnnplace.bench.result import library_versions, write_result
from gnnplace.bench.resumable import finished_runs, run_resumable
from gnnplace.bench.suites import run_suite
from gnnplace.errors import GnnplaceError, MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import PLANNERS
from gnnplace.planners.search import Search, Solution
from gnnplace.report.bench_page import read_bench, render_bench
from models_zoo.networks.catalog import load_recipe

ROW = row_of("2018-nmt_2-k40x2")


def result(makespan_s: float | None, history: list[list[float]] | None = None) -> dict[str, Any]:
    found = {"makespan_s": makespan_s, "error": None, "wall_s": 2.0, "evaluations": 100, "placement": "01"}
    return found | {"history": history or [[1, 9.0]]} | ({} if makespan_s is not None else {"error": "no memory"})


def results() -> dict[Case, dict[str, Any]]:
    """Of one row: made-up seconds for every planner, `gnn` faster than `coloc-rl` and with fewer evaluations."""
    facts = {
        "ops": 2, "groups": 2, "devices": ["k40:0", "k40:1", "cpu:0"],
        "singles": {
            "single-gpu": {"makespan_s": None, "error": DOES_NOT_FIT, "peak_memory_bytes": 9, "memory_bytes": 6},
            "single-cpu": {"makespan_s": 9.0, "error": None, "peak_memory_bytes": 9, "memory_bytes": 99},
        },
        "lower_bound": {"value_s": 1.0, "name": "critical path"}, "group_stages": [0, 1], "group_types": ["Gemm", "<Relu>"],
    }  # fmt: skip
    found = {Case(ROW.key, FACTS, 0, 100): facts}
    for planner in (*CONSTRUCTED, *SEARCHED):
        for seed in (0,) if planner in CONSTRUCTED else (0, 1, 2):
            found[Case(ROW.key, planner, seed, 100)] = result(5.0 + seed, [[1, 9.0], [60, 5.0 + seed]])
    for seed in range(3):
        found[Case(ROW.key, "gnn", seed, 100)] = result(4.0, [[1, 9.0], [6, 4.5], [50, 4.0]])
    return found


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A file with the made-up cases."""
    path = tmp_path / "seeds.json.cases"
    return store(path, results())


def store(path: Path, found: dict[Case, dict[str, Any]], versions: dict[str, str] | None = None) -> Path:
    entries = [
        {"case": vars(case), "versions": versions or library_versions(), "result": one} for case, one in found.items()
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def summary_of(found: dict[Case, dict[str, Any]], folder: Path) -> dict[str, Any]:
    kept = store(folder / "changed.cases", found)
    return dict(bench_seeds(BenchOptions(0, 100, 3, (ROW.key,), kept=kept)).summary)


def test_a_line_has_the_median_and_the_range_and_stands_beside_the_published_seconds() -> None:
    lines = {line["planner"]: line for line in planner_rows(ROW, ("expert", "hierarchical"), results())}
    assert lines["single-gpu"]["makespan_s"] is None
    assert lines["single-gpu"]["published_s"] == OOM
    assert lines["single-cpu"]["makespan_s"] == 9.0
    assert lines["expert"]["published_s"] == 2.13
    found = lines["hierarchical"]
    assert (found["lowest_s"], found["makespan_s"], found["highest_s"]) == (5.0, 6.0, 7.0)
    assert found["published_s"] == 0.84
    assert found["to_within_1_percent"] == 60


def test_one_seed_of_three_that_does_not_fit_shows_in_the_range_and_not_in_the_median() -> None:
    found = results()
    found[Case(ROW.key, "placeto", 2, 100)] = result(None)
    (line,) = (line for line in planner_rows(ROW, ("placeto",), found) if line["planner"] == "placeto")
    assert (line["makespan_s"], line["highest_s"], line["feasible"]) == (6.0, None, [True, True, False])


def test_the_summary_says_how_gnn_stands_and_how_many_evaluations_it_saves(stored: Path) -> None:
    document = bench_seeds(BenchOptions(0, 100, 3, (ROW.key,), kept=stored)).document()
    summary = document["summary"]
    assert summary["gnn_best_or_within_1_percent"] == 1
    assert summary["gnn_above_best_worst"] == pytest.approx(4.0 / 5.0 - 1.0)
    assert summary["evaluations_saved_to_coloc_rl_median"] == 60 / 6
    assert summary["one_gpu_too_small"] == 1
    assert document["command"] == f"gnnplace bench seeds --seed 0 --evaluations 100 --seeds 3 --only {ROW.key}"


def test_a_planner_is_run_anew_in_a_table_whose_other_lines_stay(stored: Path, tmp_path: Path) -> None:
    whole, faster = tmp_path / "whole.json", results()
    write_result(bench_seeds(BenchOptions(0, 100, 3, (ROW.key,), kept=stored)), whole)
    told = json.loads(whole.read_text(encoding="utf-8"))
    told["machine"]["cpu"] = told["rows"][0]["cpu"] = "another"
    for line in told["rows"][1:]:
        del line["cpu"]  # as in results that were stored before
    whole.write_text(json.dumps(told), encoding="utf-8")
    for seed in range(3):
        faster[Case(ROW.key, "gnn", seed, 100)] = result(3.0, [[1, 9.0], [12, 3.0]])
    kept = store(
        tmp_path / "faster.cases", {case: one for case, one in faster.items() if case.planner in (FACTS, "gnn")}
    )
    options = BenchOptions(0, 100, 3, (ROW.key,), rows=("gnn",), kept=kept, extend=whole)
    document = run_suite("seeds", options).document()
    assert document["command"] == (
        f"gnnplace bench seeds --seed 0 --evaluations 100 --seeds 3 --rows gnn --only {ROW.key} --extend whole.json"
    )
    before, after = ({line["planner"]: line for line in rows} for rows in (told["rows"], document["rows"]))
    assert list(before) == list(after)
    for planner, line in after.items():
        same = {"cpu"} if planner != "gnn" else {"cpu", "makespan_s", "lowest_s", "highest_s", "to_within_1_percent"}
        assert {key: line[key] for key in line if key not in same} == {
            key: value for key, value in before[planner].items() if key not in same
        }
        assert (line["cpu"] == "another") == (planner in (*CONSTRUCTED, *SEARCHED) and planner != "gnn")
    assert after["gnn"]["makespan_s"] == 3.0
    assert document["summary"]["evaluations_saved_to_coloc_rl_median"] == 60 / 12
    assert document["details"][ROW.key]["histories"].keys() == told["details"][ROW.key]["histories"].keys()


def test_a_table_is_only_extended_by_what_belongs_to_it(stored: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    write_result(bench_seeds(BenchOptions(0, 100, 3, (ROW.key,), kept=stored)), whole)
    plain = BenchOptions(0, 100, 3, (ROW.key,), kept=stored)
    refused = {
        "give both": replace(plain, rows=("gnn",)),
        "no planner 'gnm'": replace(plain, rows=("gnm",), extend=whole),
        "was made with": replace(plain, rows=("gnn",), extend=whole, evaluations=99),
        "has no line for scotch": replace(plain, rows=("gnn",), extend=whole, only=("2017-nmt_2-k80x2",)),
        "is no table": replace(plain, rows=("gnn",), extend=stored),
    }
    stored.write_text("{}", encoding="utf-8")
    for message, options in refused.items():
        with pytest.raises(GnnplaceError, match=message):
            bench_seeds(replace(options, kept=None))
    with pytest.raises(GnnplaceError, match="takes no --extend"):
        run_suite("engine", BenchOptions(extend=whole))


def test_a_case_that_was_kept_is_not_run_again_and_a_cut_off_line_is_dropped(stored: Path) -> None:
    whole = stored.read_text(encoding="utf-8")
    stored.write_text(whole + '{"case": {"row": "x", "pl', encoding="utf-8")
    assert finished_runs(stored, Case, library_versions()) == results()
    assert run_resumable(list(results()), case_result, Case, kept=stored) == results()
    assert stored.read_text(encoding="utf-8") == whole  # what comes next begins a line


def test_cases_of_other_libraries_are_run_again(tmp_path: Path) -> None:
    case = Case("2017-rnnlm_2-k80x2", "heft", 0, 5)
    kept = store(tmp_path / "kept.cases", {case: result(1e-9)}, library_versions() | {"numpy": "1.0"})
    assert run_resumable([case], case_result, Case, kept=kept)[case]["makespan_s"] > 1e-9


def test_what_is_done_is_kept_when_a_later_case_breaks(tmp_path: Path) -> None:
    kept = tmp_path / "new folder" / "kept.cases"
    good, bad = Case("2017-rnnlm_2-k80x2", "heft", 0, 5), Case("no-such-row", "heft", 0, 5)
    with pytest.raises(KeyError):
        run_resumable([good, bad], case_result, Case, kept=kept)
    assert list(finished_runs(kept, Case, library_versions())) == [good]


def test_a_planner_without_its_library_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingDependency, match="scotch"):
        case_result(Case("2017-rnnlm_2-k80x2", "scotch", 0, 5))


def test_an_interrupted_search_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(problem: Problem, budget: Budget, seed: int) -> Solution:
        with Search(problem, budget, "test", seed) as search:
            search.evaluate(Placement(np.zeros(problem.graph.num_ops, dtype=np.int64)))
            raise KeyboardInterrupt
        return search.solution()

    monkeypatch.setattr("gnnplace.bench.papers.case.load_planner", lambda name: interrupted)
    with pytest.raises(KeyboardInterrupt):
        case_result(Case("2017-rnnlm_2-k80x2", "heft", 0, 5))


def test_rows_in_which_a_planner_finds_nothing_that_fits_are_counted_apart(tmp_path: Path) -> None:
    without_coloc_rl, without_gnn, without_any = results(), results(), results()
    for seed in range(3):
        without_coloc_rl[Case(ROW.key, "coloc-rl", seed, 100)] = result(None)
        without_gnn[Case(ROW.key, "gnn", seed, 100)] = result(None)
    for case in without_any:
        if case.planner != FACTS:
            without_any[case] = result(None)
    without_any[Case(ROW.key, FACTS, 0, 100)]["singles"]["single-cpu"]["makespan_s"] = None
    counts = ("gnn_best_or_within_1_percent", "gnn_does_not_fit", "coloc_rl_does_not_fit", "gnn_never_reaches_coloc_rl")
    told = [
        [summary_of(found, tmp_path)[count] for count in counts]
        for found in (without_coloc_rl, without_gnn, without_any)
    ]
    assert told == [[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0, 1]]


def test_a_summary_of_rows_where_nothing_fits_is_still_json(tmp_path: Path) -> None:
    found = {case: one if case.planner == FACTS else result(None) for case, one in results().items()}
    kept = store(tmp_path / "nothing.cases", found)
    write_result(bench_seeds(BenchOptions(0, 100, 3, (ROW.key,), kept=kept)), tmp_path / "nothing.json")
    summary = json.loads((tmp_path / "nothing.json").read_text(encoding="utf-8"))["summary"]
    assert summary["gnn_above_best_worst"] is None


def test_a_file_of_cases_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "seeds.json.cases"
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(GnnplaceError, match=r"line 1 is no case of a bench .*delete the file"):
        finished_runs(path, Case, library_versions())


def test_new_cases_are_run_in_processes_and_kept(tmp_path: Path) -> None:
    case = Case("2017-rnnlm_2-k80x2", "heft", 0, 5)
    kept = tmp_path / "kept"
    found = run_resumable([case], case_result, Case, 1, kept)
    assert found == finished_runs(kept, Case, library_versions())
    assert found[case]["makespan_s"] == case_result(case)["makespan_s"]
    assert len(found[case]["placement"]) == case_result(Case(case.row, FACTS, 0, 5))["groups"]


def test_a_testbed_that_is_made_too_small_holds_the_step_on_no_single_gpu() -> None:
    facts = case_result(Case("small-nmt_2-k40x2", FACTS, 0, 1))
    assert facts["singles"]["single-gpu"]["makespan_s"] is None
    assert facts["singles"]["single-cpu"]["makespan_s"] > 0.0


def test_a_planner_that_fails_has_its_reason_and_no_seconds() -> None:
    found = case_result(Case("2017-rnnlm_2-k80x2", "no-such-planner", 0, 5))
    assert found["makespan_s"] is None
    assert "no-such-planner" in found["error"]


def test_every_row_names_a_recipe_with_a_training_step_and_every_column_a_planner() -> None:
    for row in (*SEEDS_ROWS, *SPOTLIGHT_ROWS):
        name = row.workload.removeprefix("zoo:").removesuffix(":training")
        assert load_recipe(name).trains, row.key
        assert set(row.published) <= {"single-cpu", "single-gpu", *PLANNERS}
    assert set(PLANNERS) >= {*CONSTRUCTED, *SEARCHED}
    assert set(LEARNED) < set(SEARCHED)


def test_a_suite_without_rows_takes_no_options_for_them() -> None:
    with pytest.raises(
        GnnplaceError, match=r"bench engine: takes no --evaluations; only seeds, spotlight, measured, hostile do"
    ):
        run_suite("engine", BenchOptions(evaluations=5))


def test_the_page_shows_ours_beside_published_seconds_and_escapes_names(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "seeds.json"
    write_result(bench_seeds(BenchOptions(0, 100, 3, (ROW.key,), kept=stored)), path)
    page = render_bench(read_bench(path))
    text = page[page.index("<body>") :]
    assert "paper 840 ms" in text
    assert "<b>4 s</b>" in text or "<b>4.00 s</b>" in text
    assert "paper OOM" in text
    assert "<Relu>" not in text


def test_the_result_of_a_bench_without_placements_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    path.write_text('{"format": "gnnplace.bench/1", "rows": []}', encoding="utf-8")
    with pytest.raises(GnnplaceError, match=r"engine\.json: is no result of `gnnplace bench seeds`"):
        read_bench(path)
