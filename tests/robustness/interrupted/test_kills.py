"""Commands are killed at random moments: every file is complete, and the next start gives the same answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gnnplace.bench.harness import BenchOptions
from gnnplace.errors import GnnplaceError
from gnnplace.files import write_text
from tests.robustness.interrupted import suite
from tests.robustness.interrupted.files import broken_files, leftovers
from tests.robustness.interrupted.suite import Kill, Undisturbed, bench_interrupted, kill_result, undisturbed_result


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("command", ["place", "save"])
def test_a_killed_command_leaves_nothing_half_written_and_starts_again(command: str) -> None:
    usual = undisturbed_result(Undisturbed(command))
    early_s = usual["wall_s"] / 3  # a later moment may come after the end when the machine has become faster
    results = [kill_result(Kill(command, seed, early_s, usual["answer"])) for seed in range(3)]
    assert [result["problems"] for result in results] == [[]] * 3
    assert any(result["was_running"] for result in results)


def test_the_suite_counts_kills_and_shows_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "at_s": 1.0, "was_running": True, "ended_s": 0.5, "leftovers": ["placed.tmp"], "restart_s": 2.0, "problems": ["one"],
    }  # fmt: skip

    def outcome(case: Kill | Undisturbed) -> dict[str, Any]:
        return {**found, "was_running": case.seed > 0} if isinstance(case, Kill) else {"wall_s": 3.0, "answer": "a"}

    monkeypatch.setattr(suite, "run_cases", lambda cases, *_, **__: {case: outcome(case) for case in cases})
    result = bench_interrupted(BenchOptions(seeds=3, only=("profile",)))
    assert result.summary == {"kills": 2, "problems": 3, "longest_restart_s": 2.0, "longest_ending_s": 0.5}
    assert [(row["command"], row["with_leftovers"]) for row in result.rows] == [("profile", 3)]


def test_every_kind_of_cut_off_file_is_found(tmp_path: Path) -> None:
    names = [
        "placed/run.json",
        "placed/report.html",
        "costs.json",
        "result.json",
        "cache/measurements.sqlite",
        "run/state.pt",
    ]
    for name in names:
        write_text(tmp_path / name, "<html> {")
    assert sorted(line.split(":")[0] for line in broken_files(tmp_path)) == sorted(names)


def test_temporary_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    for name in (".placed.tmp", "tmp/gnnplace-0.tmp", "whole.json"):
        (tmp_path / name).touch()
    assert leftovers(tmp_path) == [".placed.tmp", "tmp/gnnplace-0.tmp"]


def test_a_command_that_fails_without_a_kill_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "prepare", lambda folder: (folder / "tmp").mkdir())
    with pytest.raises(GnnplaceError, match=r"place fails without being killed: gnnplace: model\.onnx: "):
        undisturbed_result(Undisturbed("place"))
