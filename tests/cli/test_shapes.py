"""Sizes of dimensions on the command line, and a placed model file without its folder."""

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.calls import Cli

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x, float[M, 4] z) => (float[K, 4] y)
    { a = Relu(x)  b = Exp(z)  c = Concat<axis=0>(a, b)  y = Neg(c) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def test_a_range_of_sizes_is_optimised_for_and_recorded_and_the_model_file_alone_runs(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--planner", "heft", "--dim", "N=1:16", "--dim", "M=2,8", "--dims-objective", "mean", "--out", str(out)]
    answer = cli.json("place", str(model), "--devices", "cpu:0", *options)
    record = json.loads((out / "run.json").read_text())
    assert record["dims_objective"] == "mean"
    page = (out / "report.html").read_text("utf-8")
    assert "one step (the mean of 6 sizes) takes" in page
    assert "N=16, M=8: " in page
    assert "The mean of them counts" in page
    assert [(s["dims"]["N"], s["dims"]["M"]) for s in record["shapes"]] == [
        (16, 8), (16, 2), (4, 8), (4, 2), (1, 8), (1, 2),
    ]  # fmt: skip
    assert answer["makespan_s"] == pytest.approx(sum(s["makespan_s"] for s in record["shapes"]) / 6)
    ran = cli.json(f"run {out / 'placed.onnx'}")
    assert (ran["devices"], ran["outputs"]) == (["cpu:0"], {"y": {"shape": [2, 4], "dtype": "float32"}})


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        (["N=8:2"], "--dim 'N=8:2': the range is empty"),
        (["N=1:"], "--dim 'N=1:': expected NAME=N with a whole number"),
        (["N=1:2:3"], "--dim 'N=1:2:3': expected NAME=N"),
        (["N=4,"], "--dim 'N=4,': expected NAME=N"),
        (["=4"], "--dim '=4': expected NAME=N"),
        (["K=4:8"], "no input has a dimension 'K'"),
    ],
)
def test_a_wrong_range_is_refused_in_one_line(cli: Cli, model: Path, dims: list[str], message: str) -> None:
    options = [text for dim in dims for text in ("--dim", dim)]
    code, out, errors = cli("place", str(model), "--devices", "cpu:0", "--planner", "heft", *options)
    assert (code, out) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1
