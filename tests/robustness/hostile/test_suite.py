"""Crashes, hangs and stray files are findings, and the suite reads every other input."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gnnplace.bench.harness import BenchOptions
from gnnplace.errors import GnnplaceError
from tests.robustness.hostile import suite
from tests.robustness.hostile.inputs import ACCEPTED, REFUSED, Case, outcome_of
from tests.robustness.hostile.room import Room, packed, unpacked
from tests.robustness.hostile.stand_in import Acts, broken, stand_in
from tests.robustness.hostile.suite import bench_hostile

Read = Callable[[Path, Path], object]
HANG = partial(time.sleep, 600.0)


def refuses(*_: Path) -> None:
    raise GnnplaceError("a name\nthat holds a line")


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        (refuses, REFUSED),
        (lambda _, out: (out / "report.html").write_text("x"), ACCEPTED),
        (lambda *_: Path("stray").write_text("x"), "file work/stray"),
        (lambda folder, _: (folder / "a").write_text("other"), "file input/a"),
        (lambda *_: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_stray_files_and_undocumented_errors_are_findings(read: Read, verdict: str, room: Room) -> None:
    assert outcome_of(read, {"a": b"1"}, room).startswith(verdict)


def test_packed_files_are_unpacked_unchanged() -> None:
    files = {"model.onnx": b"\0\n\xff", "parts/a.json": b"{}"}
    assert unpacked(packed(files)) == files
    assert unpacked(b"\xff\n") == {}


def results(
    acts: Acts, once: bool, findings: Path | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, dict[str, int]]:
    """Accepted inputs and findings of four inputs."""
    monkeypatch.setattr(suite, "reader", partial(stand_in, acts=acts, once=once))
    monkeypatch.setattr(suite, "MOST_S", 1.0)
    found = suite.watched(Case("model", "chance", 0, 0, 4), findings)
    return found[ACCEPTED], found["findings"]


def test_a_crash_and_a_hang_are_findings_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results({1: partial(os._exit, 9), 2: HANG}, False, tmp_path / "findings", monkeypatch)
    assert found == (2, {"the process ended with exit code 9": 1, "took over 1 s": 1})
    assert sorted(path.read_text() for path in (tmp_path / "findings").glob("*/a")) == ["1", "2"]


def test_an_input_that_takes_too_long_only_once_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results({1: HANG}, True, None, monkeypatch) == (4, {})


def test_a_process_that_cannot_begin_ends_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "reader", broken)
    with pytest.raises(GnnplaceError, match=r"'model' can be read: .* exit code 1: no model"):
        suite.watched(Case("model", "chance", 0, 0, 4))


def test_the_suite_counts_every_input_and_resumes_finished_cases(tmp_path: Path) -> None:
    lines: list[str] = []
    options = BenchOptions(
        0, evaluations=30, only=("costs",), cases_file=tmp_path / "r.json.cases", on_progress=lines.append
    )
    result = bench_hostile(options)
    (row,) = result.rows
    assert (row["inputs"], row[ACCEPTED] + row[REFUSED], row["findings"]) == (30, 30, {})
    assert result.summary["inputs"] == 30
    assert 0 < row["worst_s"] < 10
    assert row["peak_bytes"] < 2 * 2**30
    assert bench_hostile(options).rows == result.rows
    assert len(lines) == 1


def test_an_unknown_source_of_inputs_is_refused() -> None:
    with pytest.raises(GnnplaceError, match="known are chance, guided"):
        bench_hostile(BenchOptions(rows=("luck",)))
