"""Two processes at the same time share one cache and one store."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import onnx
import pytest

from gnnplace.onnx_io.read import read_onnx
from tests.patience import PATIENCE_S

TINY = """<ir_version: 8, opset_import: ["": 17]>
g (float[64, 64] x) => (float[64, 64] y) { a = MatMul(x, x)  b = Relu(a)  c = MatMul(a, b)  y = Add(b, c) }"""
PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from gnnplace.cli.main import main
from gnnplace.measuring.timing import StoppingRule
from tests.quick_measuring import measure_quickly
measure_quickly(StoppingRule(warmup=1, min_repeats=6, max_repeats=6))
main()
"""


def both(folder: Path, *lines: str) -> list[str]:
    """Output of two commands that start together and both succeed."""
    environment = {**os.environ, "GNNPLACE_CACHE": str(folder / "cache")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *line.split(), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment,
        )
        for line in lines
    ]  # fmt: skip
    printed = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], [errors for _, errors in printed]
    return [output for output, _ in printed]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TINY), tmp_path / "tiny.onnx")
    onnx.save(onnx.parser.parse_model(TINY.replace("Relu", "Exp")), tmp_path / "other.onnx")
    return tmp_path


def test_two_measured_searches_and_their_profiles_share_a_store(folder: Path) -> None:
    devices = "cpu:0,cpu:1" if len(os.sched_getaffinity(0)) > 1 else "cpu:0"
    place = f"--devices {devices} --measure --planner greedy --evaluations 4 --out"
    printed = both(folder, *(f"place {name}.onnx {place} placed-{name}" for name in ("tiny", "other")))
    assert all(json.loads(line)["feasible"] for line in printed)
    with closing(sqlite3.connect(folder / "cache" / "measurements.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT COUNT(*) FROM machine").fetchone() == (1,)
        for table in ("op", "placement_run"):
            assert connection.execute(f"SELECT COUNT(DISTINCT model) FROM {table}").fetchone() == (2,)


def test_two_that_need_the_same_export_build_it_once_and_read_it_whole(folder: Path) -> None:
    lines = [f"place zoo:ensemble_mlp:small --devices cpu:0 --planner single --out placed-{n}" for n in range(2)]
    for answer in map(json.loads, both(folder, *lines)):
        assert answer["feasible"]
    (model,) = (folder / "cache" / "zoo").glob("*.onnx")
    assert (
        read_onnx(model).graph.num_ops == json.loads((folder / "placed-0" / "run.json").read_text())["summary"]["ops"]
    )
    assert not list((folder / "cache" / "zoo").glob(".*"))
