"""Commands are killed while they write: every file is complete, and the next start gives the same answer."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gnnplace.api import place
from gnnplace.bench.harness import BenchOptions, BenchResult
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json, write_text
from tests.robustness.__main__ import main
from tests.robustness.interrupted import suite
from tests.robustness.interrupted.commands import CACHE, COMMANDS, MODEL, Command, prepare, running
from tests.robustness.interrupted.files import broken_files, digest, leftovers
from tests.robustness.interrupted.suite import Kill, Undisturbed, bench_interrupted, kill_result, undisturbed_result


@contextmanager
def running_until_it_writes(command: Command, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The running program once its first output, temporary or not, is there."""
    with running(command, folder) as process:
        while process.poll() is None and not list(folder.glob("*placed*")):
            time.sleep(0.002)
        yield process


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize(("command", "planner"), [("place", "annealing"), ("save", "heft")])
def test_a_command_killed_while_it_writes_leaves_whole_files_and_gives_its_answer_at_the_next_start(
    command: str, planner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / CACHE))
    place(MODEL, "cpu:0,cpu:1", planner=planner).save("placed")
    monkeypatch.setattr(suite, "running", running_until_it_writes)
    result = kill_result(Kill(command, 0, 0.3, digest(tmp_path, COMMANDS[command].same)))
    assert result["problems"] == []
    assert result["was_running"]


def test_the_suite_counts_kills_and_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "at_s": 1.0, "was_running": True, "ended_s": 0.5, "leftovers": ["placed.tmp"], "restart_s": 2.0, "problems": ["one"],
    }  # fmt: skip

    def outcome(case: Kill | Undisturbed) -> dict[str, Any]:
        return {**found, "was_running": case.seed > 0} if isinstance(case, Kill) else {"wall_s": 3.0, "answer": "a"}

    monkeypatch.setattr(suite, "run_cases", lambda cases, *_, **__: {case: outcome(case) for case in cases})
    result = bench_interrupted(BenchOptions(seeds=3, only=("profile",)))
    assert result.summary == {"kills": 2, "problems": 3, "longest_restart_s": 2.0, "longest_ending_s": 0.5}
    assert [(row["command"], row["with_leftovers"]) for row in result.rows] == [("profile", 3)]


def test_the_check_finds_every_kind_of_cut_off_file(tmp_path: Path) -> None:
    places = ("placed/run.json", "placed/report.html", "cache/measurements.sqlite", "run/state.pt")
    names = [*places, "costs.json", "result.json"]
    for name in names:
        write_text(tmp_path / name, "<html> {")
    assert sorted(line.split(":")[0] for line in broken_files(tmp_path)) == sorted(names)


def test_the_check_finds_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    for name in (".placed.tmp", "tmp/gnnplace-0.tmp", "whole.json"):
        (tmp_path / name).touch()
    assert leftovers(tmp_path) == [".placed.tmp", "tmp/gnnplace-0.tmp"]


def test_a_command_that_fails_without_a_kill_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "prepare", lambda folder: (folder / "tmp").mkdir())
    with pytest.raises(GnnplaceError, match=r"place fails without being killed: gnnplace: model\.onnx: "):
        undisturbed_result(Undisturbed("place"))


def test_a_stored_result_names_the_command_that_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "bench_interrupted", lambda options: BenchResult("interrupted", options, [], {}))
    monkeypatch.setattr(sys, "argv", ["", "interrupted", "--seeds", "3", "--out", str(tmp_path / "result.json")])
    main()
    found = read_json(tmp_path / "result.json", GnnplaceError)
    assert found["command"] == "python -m tests.robustness interrupted --seed 0 --seeds 3"
