"""Names from files are text: never a path, never a tag, never more than one line of a terminal."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from gnnplace.api import place
from gnnplace.api.options import PlaceOptions
from gnnplace.cli.main import _run as run_command
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import GnnplaceError, InvalidPlacement, shown
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import load_placement
from gnnplace.running.session import Session

NAMES = (
    "../../x", "/etc/passwd", "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "a\0b", "n" * 10_000, "a\nb", "\x1b[2J", "${title}", "%s",
    "</script><script>alert(2)</script>",
)  # fmt: skip


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def check_page(path: Path) -> None:
    """No name is a tag."""
    page = path.read_text()
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def model_of(names: Sequence[str], first: str, path: Path) -> Path:
    """A chain of ops whose nodes, values and graph have these names."""
    values = [first, *names]
    nodes = [helper.make_node("Relu", [a], [b], name=b) for a, b in itertools.pairwise(values)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [names[-1], 4]) for name in (first, names[-1])]
    graph = helper.make_graph(nodes, names[-1], ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def test_names_of_a_model_are_no_paths_and_no_tags(tmp_path: Path) -> None:
    usable = tuple(name for name in NAMES if "\0" not in name)
    path = model_of(usable, "in", tmp_path / "in" / "<script>alert(0)<_script>.onnx")
    plan = place(path, "k40x2", PlaceOptions(planner="round-robin"))
    out = plan.save(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}
    assert {name for name in files_below(out) if "parts/" not in name} == {
        "parts", "placed.onnx", "placement.json", "report.html", "run.json",
    }  # fmt: skip
    assert all(Path(name).name in {"manifest.json", "shared.bin"} or Path(name).match("part-*.onnx") for name in files_below(out / "parts"))  # fmt: skip
    check_page(out / "report.html")
    assert json.loads((out / "placement.json").read_text())["assignment"].keys() == set(usable)
    assert onnx.load(out / "placed.onnx").graph.node[0].name == "../../x"


def test_names_of_ops_and_devices_are_no_paths_and_no_tags(tmp_path: Path) -> None:
    graph = OpGraph.build(
        NAMES[2],
        [Op(name, name, {"k": 1.0}, group=name) for name in NAMES],
        [Tensor(a, 1, (b,)) for a, b in itertools.pairwise(NAMES)],
    )
    devices = tuple(Device(name, "k") for name in NAMES)
    links = tuple(Link(a, b, 0.0, 1e9, NAMES[3]) for a in NAMES for b in NAMES if a != b)
    plan = place(graph, Topology(NAMES[2], devices, links), PlaceOptions(planner="round-robin"))
    out = plan.save(tmp_path / "out")
    assert files_below(tmp_path) == {"out", "out/placement.json", "out/report.html", "out/run.json"}
    check_page(out / "report.html")
    assert load_placement(out / "placement.json", graph, plan.setup.topology).assignment.tolist() == (
        plan.placement.assignment.tolist()
    )


def test_inputs_of_a_placed_model_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model_of(["/y", "file"], "../x", tmp_path / "m.onnx")
    out = place(path, "cpu:0", PlaceOptions(planner="single")).save(tmp_path / "out")
    with Session(out) as session:
        assert [info.name for info in session.get_inputs()] == ["../x"]
    assert run_command(["run", str(out), "--output", str(tmp_path / "y.npz")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "out", "y.npz"}


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_one_line_that_a_terminal_can_show(name: str) -> None:
    for text in (str(GnnplaceError(f"op {name}: broken")), str(InvalidPlacement(f"op {name!r}: broken"))):
        assert text.isprintable()
        assert len(text) <= 2100
        assert text.startswith("op ")
        assert text.endswith(": broken")
    assert len(shown([name] * 1000)) < 2000
