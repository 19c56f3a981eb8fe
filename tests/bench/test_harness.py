"""Options, suites, and cases that are stored as they finish."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gnnplace.bench.harness import BenchOptions, BenchResult, finished_cases, library_versions, matching, run_cases
from gnnplace.bench.suites import run_suite
from gnnplace.errors import GnnplaceError
from gnnplace.report.bench_page import read_bench, write_bench_page
from tests.finished_cases import write_cases

BY_NAME = {"2017-nmt_2": 1, "2018-nmt_2": 2, "2018-nmt_4": 3, "2018-rnnlm": 4}


@dataclass(frozen=True)
class Square:
    """A number to be squared; negative ones cannot be."""

    number: int


def squared(case: Square) -> dict[str, Any]:
    if case.number < 0:
        raise GnnplaceError("negative")
    return {"square": case.number**2}


def must_not_run(case: Square) -> dict[str, Any]:
    raise AssertionError(case)


@pytest.mark.parametrize(
    ("only", "found"), [(["nmt_4", "2018-nmt", "2017"], [1, 2, 3]), (["rnnlm"], [4]), ([], [1, 2, 3, 4])]
)
def test_names_match_parts_once_and_in_order(only: list[str], found: list[int]) -> None:
    assert matching(BY_NAME, only, "row") == found


def test_a_part_that_is_in_no_name_is_refused() -> None:
    with pytest.raises(GnnplaceError, match="no case has 'vgg' in its name, such as '2017-nmt_2' or '2018-rnnlm'"):
        matching(BY_NAME, ["nmt", "vgg"], "case")


VGG, ANEALING, FIVE = BenchOptions(only=("vgg",)), BenchOptions(rows=("anealing",)), BenchOptions(evaluations=5)


@pytest.mark.parametrize(
    ("suite", "options", "message"),
    [
        ("seeds", VGG, "no row has 'vgg' in its name"),
        ("spotlight", VGG, "no row has 'vgg' in its name"),
        ("generalization", VGG, "no case has 'vgg' in its name"),
        ("scale", VGG, "no case has 'vgg' in its name"),
        ("fidelity", VGG, "no model has 'vgg' in its name"),
        ("measured", ANEALING, "there is no row 'anealing'; known are .*annealing"),
        ("generalization", ANEALING, "there is no row 'anealing'; known are .*annealing"),
        ("engine", FIVE, "bench engine: takes no --evaluations; only seeds, spotlight, measured, providers, cores do"),
        ("generalization", FIVE, "bench generalization: takes no --evaluations"),
        ("engine", BenchOptions(extend=Path("whole.json")), "bench engine: takes no --extend"),
        ("fidelity", BenchOptions(jobs=2), "bench fidelity: takes no --jobs"),
        ("sede", BenchOptions(), "no bench suite 'sede'.*seeds"),
    ],
)
def test_unknown_suites_cases_and_rows_and_refused_options_are_errors(
    suite: str, options: BenchOptions, message: str
) -> None:
    with pytest.raises(GnnplaceError, match=message):
        run_suite(suite, options)


def test_finished_cases_are_not_run_again_and_a_cut_off_line_is_dropped(tmp_path: Path) -> None:
    file = write_cases(tmp_path / "cases", {Square(3): {"square": -1}})
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole + '{"case": {"num', encoding="utf-8")
    assert finished_cases(file, Square, library_versions()) == {Square(3): {"square": -1}}
    assert run_cases([Square(3)], must_not_run, BenchOptions(cases_file=file)) == {Square(3): {"square": -1}}
    assert file.read_text(encoding="utf-8") == whole  # the next case begins a line


def test_new_cases_and_cases_of_other_library_versions_run_and_are_stored(tmp_path: Path) -> None:
    file = write_cases(tmp_path / "a", {Square(3): {"square": -1}}, library_versions() | {"numpy": "1.0"})
    lines: list[str] = []
    options = BenchOptions(jobs=2, cases_file=file, on_progress=lines.append)
    found = run_cases([Square(3), Square(4)], squared, options, lambda case, result: f"{case.number}")
    assert found == {Square(3): {"square": 9}, Square(4): {"square": 16}}
    assert finished_cases(file, Square, library_versions()) == found
    assert sorted(lines) == ["3", "4"]


def test_finished_cases_are_stored_when_a_later_case_fails(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "cases"
    with pytest.raises(GnnplaceError, match="negative"):
        run_cases([Square(2), Square(-1)], squared, BenchOptions(cases_file=file))
    assert list(finished_cases(file, Square, library_versions())) == [Square(2)]


def test_a_file_of_other_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text("{}\n", encoding="utf-8")
    with pytest.raises(GnnplaceError, match=r"line 1 is no case of a bench .*delete the file"):
        finished_cases(tmp_path / "cases", Square, library_versions())


def test_a_result_names_its_command_with_all_options() -> None:
    options = BenchOptions(3, 100, 2, ("a b",), ("x", "y"), Path("dir/p.safetensors"), 4, extend=Path("dir/whole.json"))
    document = BenchResult("seeds", options, [{"row": 1}], {}).document()
    assert document["command"] == (
        "gnnplace bench seeds --seed 3 --evaluations 100 --seeds 2 --jobs 4 --rows x,y --policy p.safetensors --only 'a b'"
        " --extend whole.json"
    )
    assert json.loads(json.dumps(document))["rows"] == [{"row": 1}]


def test_a_result_without_a_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text('{"format": "gnnplace.bench/1", "rows": []}', encoding="utf-8")
    with pytest.raises(GnnplaceError, match=r"engine\.json: is no result of `gnnplace bench seeds`"):
        read_bench(tmp_path / "engine.json")
    with pytest.raises(GnnplaceError, match="no page for the suite 'execution', only for seeds"):
        write_bench_page({"suite": "execution", "rows": [], "details": {}}, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
