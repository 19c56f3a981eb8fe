"""A missing package is one line that names it and how to install it."""

import json
from pathlib import Path

import pytest

from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from tests.cli.without_packages import without
from tests.example_run import example_run

ZOO, PARTITION = "install it with: pip install 'gnnplace[zoo]'", "pip install 'gnnplace[partition]'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ops, tensors = [Op(name, time_s={"k40": 1.0}) for name in "ab"], [Tensor("a", 8, ("b",))]
    write_graph(OpGraph.build("two", ops, tensors), tmp_path / "two.json")
    (tmp_path / "run.json").write_text(json.dumps(example_run()), encoding="utf-8")
    (tmp_path / "placed").mkdir()
    (tmp_path / "placed" / "placement.json").write_text("from before", encoding="utf-8")
    return tmp_path


PLACE = "place two.json --devices k40x2 --out placed --planner"


@pytest.mark.parametrize(
    ("packages", "line", "message"),
    [
        ("ortools", f"{PLACE} optimal", "OR-Tools, which is not installed: pip install 'gnnplace[optimal]'"),
        ("pymetis", f"{PLACE} metis", f"pymetis; {PARTITION}"),
        ("mtkahypar", f"{PLACE} mtkahypar", f"mtkahypar; {PARTITION}"),
        ("transformers", "zoo bert_base --small --out placed/placement.json", f"transformers; {ZOO}"),
        ("diffusers", "zoo unet_diffusion --small --out placed/placement.json", f"diffusers; {ZOO}"),
        ("onnxscript", "zoo ensemble_mlp --small --out placed/model.onnx", f"onnxscript; {ZOO}"),
        ("torch", f"{PLACE} gnn", "No module named 'torch'"),
        ("plotly", f"{PLACE} single", "No module named 'plotly'"),
        ("onnxruntime", "run placed", "No module named 'onnxruntime'"),
        ("playwright", "report . --pictures placed/figures", "pip install 'gnnplace[pictures]'"),
        ("no package", f"{PLACE} scotch", "install Debian's scotch (apt install scotch)"),
    ],
)
def test_one_line_names_the_missing_package_or_program_and_nothing_is_changed(
    folder: Path, packages: str, line: str, message: str
) -> None:
    done = without(packages, *line.split(), folder=folder)
    assert done.returncode == 2, done.stderr
    assert not done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert message in done.stderr
    assert "install " in done.stderr
    assert [path.name for path in (folder / "placed").iterdir()] == ["placement.json"]
    assert (folder / "placed" / "placement.json").read_text(encoding="utf-8") == "from before"


def test_simulated_placing_needs_no_optional_package(folder: Path) -> None:
    optional = "ortools,pymetis,mtkahypar,transformers,diffusers,onnxscript,tensorboard,ray,cuda"
    done = without(optional, *f"{PLACE} gnn --evaluations 20".split(), folder=folder)
    assert done.returncode == 0, done.stderr
