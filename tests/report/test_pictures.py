"""Every picture of a report becomes a file, and a plan has a trace."""

import json
from pathlib import Path

import pytest

from gnnplace.cli.main import _run as run_command
from gnnplace.files import write_text
from gnnplace.report.pictures import chromium
from gnnplace.run_record import RunRecord


@pytest.mark.skipif(chromium() is None, reason="no Chromium is installed; apt install chromium")
@pytest.mark.parametrize(("picture_format", "begin"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_every_picture_is_written_as_a_file(
    run: RunRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str], picture_format: str, begin: bytes
) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'gnnplace[pictures]'")
    write_text(tmp_path / "run.json", json.dumps(run))
    arguments = ["report", str(tmp_path), "--pictures", str(tmp_path / "figures"), "--format", picture_format]
    assert run_command([*arguments, "--trace", str(tmp_path / "trace.json")]) == 0
    files = sorted((tmp_path / "figures").iterdir())
    assert [path.name for path in files] == [
        f"{name}.{picture_format}" for name in ("graph", "memory", "progress", "schedule")
    ]
    assert all(path.read_bytes().startswith(begin) for path in files)
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "report.html"), str(tmp_path / "trace.json"),
        *(str(tmp_path / "figures" / f"{name}.{picture_format}") for name in ("schedule", "memory", "graph", "progress")),
    ]  # fmt: skip


def test_a_bench_has_no_trace_and_no_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["report", str(tmp_path / "bench.json"), "--trace", str(tmp_path / "trace.json")]) == 2
    assert "only a run has a trace and pictures; give the folder that place wrote" in capsys.readouterr().err


def test_place_writes_a_trace_without_a_folder(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    line = f"place zoo:inception_v3 --devices k40x2 --planner heft --trace {trace} --json"
    assert run_command(line.split()) == 0
    assert sum(event["ph"] == "X" for event in json.loads(trace.read_text())["traceEvents"]) >= 219
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
