"""Ctrl-C while a command runs, as real signals."""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import onnx
import pytest

from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from models_zoo.networks.light import write_light_model
from tests.patience import PATIENCE_S

PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from contextlib import contextmanager
from gnnplace.cli import main, place
from gnnplace.measuring.timing import StoppingRule
from tests.quick_measuring import measure_quickly

@contextmanager
def progress(evaluations, seconds):
    yield lambda state: print("searching", state.evaluations, file=sys.stderr, flush=True)

measure_quickly(StoppingRule(warmup=1, min_repeats=6, max_repeats=6))
place.search_progress = progress
main.main()
"""
"""The command, which also prints each state of its search."""


def running(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_until_searching(process: subprocess.Popen[str], times: int = 1) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        times -= line.startswith("searching")
        if not times:
            return
    raise AssertionError("it ended before it searched")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Layers of four ops, each of which reads all of the layer before."""
    names = [[f"{layer}.{op}" for op in range(4)] for layer in range(60)]
    ops = [Op(name, time_s={"k40": 1e-3 * (1 + index % 7)}) for row in names for index, name in enumerate(row)]
    tensors = [Tensor(name, 2**20, tuple(after)) for row, after in pairwise(names) for name in row]
    write_graph(OpGraph.build("layers", ops, tensors), tmp_path / "graph.json")
    return tmp_path / "graph.json"


@pytest.mark.parametrize(("planner", "to_all"), [("annealing", False), ("genetic", True), ("gnn", False)])
def test_an_interrupted_place_returns_the_best_placement_so_far(
    graph: Path, tmp_path: Path, planner: str, to_all: bool
) -> None:
    out = tmp_path / "placed"
    process = running(
        "place", str(graph), "--devices", "k40x4", "--planner", planner, "--seconds", "600", "--json", "--out", str(out)
    )
    wait_until_searching(process, times=3)
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    answer = json.loads(printed)
    assert answer["feasible"]
    assert answer["makespan_s"] <= answer["compared"]["single"]
    assert f"of '{planner}': this is the best so far" in errors
    assert json.loads((out / "run.json").read_text())["summary"]["evaluations"] == answer["evaluations"]


def test_an_interrupted_measured_place_returns_the_best_so_far_without_measuring_it_again(tmp_path: Path) -> None:
    model, out = tmp_path / "model.onnx", tmp_path / "placed"
    write_light_model("squeezenet", model)
    devices = "cpu:0,cpu:1" if len(os.sched_getaffinity(0)) > 1 else "cpu:0"
    process = running(
        "place", str(model), "--devices", devices, "--measure", "--planner", "round-robin" if devices == "cpu:0" else "greedy",
        "--seconds", "600", "--json", "--out", str(out),
    )  # fmt: skip
    wait_until_searching(process)
    os.killpg(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    answer = json.loads(printed)
    assert answer["measured"]["median_s"] > 0
    assert "this is the best so far" in errors
    assert errors.count("not confirmed by a side-by-side measurement") == 1
    measured = json.loads((out / "run.json").read_text())["measured"]
    assert measured["confirmed"] is False
    # it and the plain sessions; nothing else was measured side by side
    assert [run["label"].split(" on ")[0] for run in measured["runs"]][1:] == ["one session"] * len(
        measured["runs"][1:]
    )
    assert onnx.load(out / "placed.onnx").graph.node


def test_an_interrupt_before_the_first_placement_is_reported(graph: Path, tmp_path: Path) -> None:
    stopped = "import gnnplace.api, os, signal\n" + PROGRAM.replace(
        "main.main()",
        "home = sys.modules['gnnplace.api.pipeline']\n"
        "home.load_workload = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n"
        "main.main()",
    )
    done = subprocess.run(
        [sys.executable, "-c", stopped, "place", str(graph), "--devices", "k40x2", "--out", str(tmp_path / "placed")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "gnnplace: interrupted before there was an answer\n"
    assert not (tmp_path / "placed").exists()
