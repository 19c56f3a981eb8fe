"""CONTRIBUTING.md is correct: its planner, device, op cost and zoo entry work as printed."""

import ast
import doctest
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import onnx_ir as ir
import pytest

from gnnplace.devices import presets
from gnnplace.onnx_io.op_costs import elementwise, node_cost
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo
from gnnplace.planners import catalog
from tests.cli.calls import Cli

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
if not GUIDE.exists():
    pytest.skip("the guide stays in the repository", allow_module_level=True)
TEXT = GUIDE.read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))


def line_of(name: str) -> str:
    """The line in backticks that registers a name."""
    (line,) = re.findall(rf'`("{name}": [^`]+),`', TEXT)
    return str(line)


def module_of(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file of a block, as if it lay there."""
    name = path.removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(BLOCKS[path], path, "exec"), module.__dict__)
    return module


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))


def test_the_planner_is_one_file_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = module_of("gnnplace/planners/classical/coin.py", monkeypatch)
    tests = doctest.DocTestFinder().find(module, globs=vars(module).copy())
    assert sum(doctest.DocTestRunner().run(test).attempted for test in tests) == 2
    entry = eval(f"{{{line_of('coin')}}}", vars(catalog))
    monkeypatch.setattr(catalog, "PLANNERS", {**catalog.PLANNERS, **entry})
    line = "place zoo:layered_200 --devices k40x2 --planner coin --evaluations 30"
    answer = Cli(capsys).json(*line.split())
    assert answer["planner"] == "coin"
    assert answer["evaluations"] == 30
    assert answer["feasible"]


def test_the_device_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    added = eval(f"{{{BLOCKS['gnnplace/devices/presets.py']}}}", vars(presets))
    monkeypatch.setattr(presets, "GPUS", {**presets.GPUS, **added})
    answer = Cli(capsys).json("devices", "l4x2")
    assert [device["name"] for device in answer["devices"]] == ["l4:0", "l4:1", "cpu:0"]
    assert answer["devices"][0]["peak_flops_per_s"]["float16"] == 121e12
    assert Cli(capsys).json(*["place", "zoo:layered_200", "--devices", "l4x2", "--planner", "heft"])["feasible"]


def test_the_op_cost_is_a_rule_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse(BLOCKS["gnnplace/onnx_io/op_costs/elementwise.py"])
    exec(compile(tree, "elementwise.py", "exec"), found := dict(vars(elementwise)))
    added = eval(f"{{{line_of('SquaredRelu')}}}", found)
    monkeypatch.setattr(node_cost, "_FLOPS", {**node_cost._FLOPS, **added})
    node = ir.node("SquaredRelu", inputs=[x := ir.Value(name="x")])
    node.outputs[0].name = "y"
    tensors = {value: TensorInfo(ir.DataType.FLOAT, (3, 4)) for value in (x, node.outputs[0])}
    assert node_cost.has_known_cost(node)
    assert node_cost.node_cost(node, 21, tensors) == node_cost.NodeCost(flops=24.0, bytes=96.0)


@pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="exports need the extra zoo")
def test_the_zoo_entry_is_one_file_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    zoo = importlib.import_module("models_zoo.networks.catalog")
    module_of("models_zoo/networks/branched/towers.py", monkeypatch)
    monkeypatch.setattr(zoo, "FAMILIES", {**zoo.FAMILIES, **eval(f"{{{line_of('towers')}}}", vars(zoo))})
    model = tmp_path / "towers.onnx"
    written = Cli(capsys).json("zoo", "towers", "--small", "--out", str(model))
    assert written["model"] == "zoo:towers:small"
    assert Cli(capsys).json("place", str(model), "--devices", "k40x2", "--planner", "heft")["feasible"]
