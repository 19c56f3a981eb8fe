"""`gnnplace zoo` and `zoo:NAME` on the command line."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.graph.json_format import read_graph
from models_zoo.networks.shipped import manifest, read_structure
from tests.cli.calls import Cli

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # the exporter's own


def test_the_list_has_every_row_with_its_sizes(cli: Cli) -> None:
    rows = cli.json("zoo")["recipes"]
    assert [row["key"] for row in rows] == [row.key for row in manifest()]
    assert {"name", "family", "ops", "edges", "parameters", "flops", "split"} <= set(rows[0])
    code, table, _ = cli("zoo")
    assert code == 0
    for row in manifest():
        assert row.key in table


def test_a_name_alone_describes_the_recipe(cli: Cli) -> None:
    facts = cli.json("zoo nmt_2 --training")
    assert (facts["name"], facts["training"], facts["settings"]["layers"]) == ("nmt_2", True, 2)


def test_a_built_model_runs_on_the_inputs_beside_it(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "model.onnx"
    document = cli.json(f"zoo rnnlm_2 --small --set layers=3 --out {out}")
    assert document["model"] == "zoo:rnnlm_2:small:layers=3"
    assert [Path(file).name for file in document["files"]] == ["model.onnx", "model.onnx.data", "model.onnx.inputs.npz"]
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "model.onnx.data", "model.onnx.inputs.npz"}
    onnx.checker.check_model(out, full_check=True)
    session = ort.InferenceSession(out, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, dict(np.load(tmp_path / "model.onnx.inputs.npz")))
    assert np.isfinite(logits).all()


def test_the_op_graph_of_a_row_is_written_without_an_export(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "graph.json.gz"
    cli.json(f"zoo nmt_2 --training --out {out}")
    assert read_graph(out).op_names == read_structure("nmt_2:training").op_names


def test_a_zoo_name_is_placed_from_its_shipped_graph(tmp_path: Path, cli: Cli) -> None:
    plan = cli.json(f"place zoo:nmt_2:training --devices k40x2 --planner expert --out {tmp_path / 'out'}")
    assert plan["feasible"]
    assert plan["ops"] == next(row.ops for row in manifest() if row.key == "nmt_2:training")
    assert not (tmp_path / "cache").exists()


def test_a_zoo_name_on_real_devices_becomes_a_model_that_runs(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "out"
    cli.json(f"place zoo:rnnlm_2:small --devices cpu:0,cpu:1 --planner expert --out {out}")
    (inputs,) = (tmp_path / "cache" / "zoo").glob("*.inputs.npz")
    cli.json(f"run {out} --input {inputs} --output {tmp_path / 'y.npz'}")
    assert np.isfinite(np.load(tmp_path / "y.npz")["logits"]).all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("zoo rnnlm_2 --out m.txt", "ends in .onnx, .json or .json.gz"),
        ("zoo layered_200 --out m.onnx", "has no ONNX"),
        ("zoo --training", "name a recipe"),
        ("zoo light_squeezenet --training --out m.onnx", "one variant"),
        ("place zoo:rnnlm_2:trainning --devices k40x2", "'trainning' is not understood"),
        ("place zoo:nmt_2 --devices k40x2 --dim batch=3", "no symbolic dimensions"),
        ("place zoo:layered_200 --devices cpu:0 --measure", "has no ONNX"),
    ],
)
def test_bad_zoo_input_gets_one_clear_line_and_leaves_nothing(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = cli(line)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
