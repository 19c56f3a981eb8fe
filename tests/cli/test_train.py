"""`gnnplace train` on the command line."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from tests.cli.calls import PROGRAM, Cli
from tests.patience import PATIENCE_S


def test_a_policy_is_trained_continued_and_used(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "tiny.safetensors"
    begun = ["train", "--out", str(out), "--updates", "2", "--processes", "1"]
    first = cli.json(*begun, "--minutes", "0")
    assert (first["updates"], first["of_updates"]) == (0, 2)

    assert cli.json(*begun, "--minutes", "0")["updates"] == 0  # the same command resumes the run
    code, printed, errors = cli(f"train --out {out} --resume")
    assert code == 0
    assert f"{out}: 2 of 2 updates" in printed
    assert "update 1:" in errors
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["command"].endswith("--updates 2 --processes 1 --seed 0")
    lines = Path(first["metrics"]).read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [0, 1]

    graph = OpGraph.build("two", [Op("a", flops=1e9), Op("b", flops=1e9)], [Tensor("a", 8, ("b",))])
    write_graph(graph, tmp_path / "two.json")
    answer = cli.json(f"place {tmp_path / 'two.json'} --devices k40x2 --policy {out} --evaluations 30")
    assert answer["feasible"]


def test_an_interrupted_run_saves_and_prints_how_to_resume(tmp_path: Path) -> None:
    out = tmp_path / "run"
    running = subprocess.Popen(
        [*PROGRAM, "train", "--out", str(out), "--updates", "500", "--processes", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert running.stderr is not None
    assert "update 1:" in running.stderr.readline()
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all processes
    printed, errors = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, errors
    assert "of 500 updates" in printed
    assert errors.splitlines()[-1] == f"next: gnnplace train --out {out} --resume"
    assert "Traceback" not in errors
    done = json.loads((out / "policy.json").read_text())["updates"]
    assert 1 <= done == len((out / "metrics.jsonl").read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "is this the folder of a training run?"),
        (["--policy", "absent.safetensors"], "absent.json"),
        (["--updates", "0"], "--updates"),
        (["--processes", "0"], "--processes"),
        (["--measure", "absent.onnx"], "measure and devices belong together"),
        (["--measure", "absent.onnx", "--devices", "cpu:0"], "absent.onnx"),
        (["--measure", "absent.onnx", "--devices", "cpu:0", "--processes", "2"], "leave processes and ray out"),
        (
            ["--ablation", "all"],
            "ablation is 'all'; expected no-device-features, no-message-passing, no-schedule-features, final-reward, or several",
        ),
        (
            ["--ablation", "final-reward", "--policy", "p.safetensors"],
            "ablation 'final-reward' changes the network, which policy 'p.safetensors' has",
        ),
    ],
)
def test_bad_input_gets_one_clear_line(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    code, printed, errors = cli("train", "--out", str(tmp_path / "out"), *arguments)
    assert code == 2
    assert len(errors.splitlines()) == 1, errors
    assert message in errors
    assert not printed
    assert not (tmp_path / "out").exists()
