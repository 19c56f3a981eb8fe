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
    for arguments, rows in (
        (out, 24), (f"{out} --dim N=3", 11), (out / "placed.onnx", 2), (f"{out / 'placed.onnx'} --dim M=5", 6),
    ):  # fmt: skip
        ran = cli.json(f"run {arguments}")
        assert (ran["devices"], ran["outputs"]) == (["cpu:0"], {"y": {"shape": [rows, 4], "dtype": "float32"}})


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


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"shapes": [{"dims": {"N": "many"}}]}'])
def test_a_folder_without_readable_sizes_runs_with_sizes_of_1_and_says_so(
    cli: Cli, model: Path, tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "out"
    cli.json(f"place {model} --devices cpu:0 --planner heft --dim N=16 --dim M=8 --out {out}")
    (out / "run.json").write_text(damage)
    code, answer, errors = cli(f"run {out} --json")
    assert code == 0
    assert json.loads(answer)["outputs"] == {"y": {"shape": [2, 4], "dtype": "float32"}}
    assert errors.splitlines() == [
        f"warning: dimension '{name}' is not given; 1 is taken (set it with --dim {name}=N)" for name in "NM"
    ]


WINDOW = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 1, N] x) => (float[1, 1, K] y) <float[1, 1, 5] w = {1, 1, 1, 1, 1}>
    { a = Relu(x)  y = Conv(a, w) }"""


def test_a_model_that_cannot_run_with_sizes_of_1_is_placed_and_every_failure_names_the_remedy(
    cli: Cli, tmp_path: Path
) -> None:
    model, out = tmp_path / "window.onnx", tmp_path / "out"
    onnx.save(onnx.parser.parse_model(WINDOW), model)
    code, _, errors = cli(f"place {model} --devices cpu:0 --planner heft --out {out} --quiet")
    assert code == 0
    assert "or the op cannot take these sizes" in errors
    code, _, errors = cli(f"run {out} --quiet")
    assert code == 1
    assert "inputs are random, of shapes x [1, 1, 1]; --dim NAME=N or --input X.npz gives others" in errors
    code, _, errors = cli(f"place {model} --devices cpu:0 --measure --force --evaluations 1")
    assert code == 1
    assert "(inputs are random, of size 1 along 'N'; --dim NAME=N or --input X.npz gives others)" in errors
    assert cli.json(f"run {out} --dim N=7")["outputs"] == {"y": {"shape": [1, 1, 3], "dtype": "float32"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--dim N", "--dim 'N': expected NAME=N with a whole number"),
        ("--dim N=1:4", "--dim 'N=1:4': expected NAME=N with a whole number"),
        ("--dim K=4", "no input has a dimension 'K'"),
        ("--dim N=99999999999999999999", "dimension 'N' is given as 99999999999999999999; expected at most"),
        ("--dim N=3 --input x.npz", "--input names a file; leave one of them out"),
    ],
)
def test_wrong_sizes_of_random_inputs_are_refused_in_one_line(
    cli: Cli, model: Path, tmp_path: Path, arguments: str, message: str
) -> None:
    cli.json(f"place {model} --devices cpu:0 --planner heft --out {tmp_path / 'out'}")
    code, out, errors = cli(f"run {tmp_path / 'out'} {arguments}")
    assert (code, out) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1
