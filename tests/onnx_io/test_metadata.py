"""Stages, colocation and state that a model file states reach the op graph."""

from pathlib import Path

import onnx
import pytest

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.model import GROUP_KEY, STAGE_KEY, STATE_KEY
from gnnplace.onnx_io.read import read_onnx

STEP = """
<ir_version: 10, opset_import: ["" : 18]>
step (float[4] x, float[4] w, float[4] m) => (float[4] y, float[4] w_new, float[4] m_new)
{
   [read] v = Identity (w)
   [use] y = Mul (x, v)
   [moment] m_new = Add (m, y)
   [update] w_new = Sub (v, m_new)
}
"""
STATE = '{"w": "w_new", "m": "m_new"}'


def written(path: Path, nodes: dict[str, tuple[str, str]], state: str = STATE) -> Path:
    model = onnx.parser.parse_model(STEP)
    for node in model.graph.node:
        if node.name in nodes:
            key, value = nodes[node.name]
            node.metadata_props.add(key=key, value=value)
    if state:
        model.metadata_props.add(key=STATE_KEY, value=state)
    onnx.save(model, path)
    return path


def test_stages_and_groups_of_nodes_are_those_of_ops(tmp_path: Path) -> None:
    nodes = {"read": (GROUP_KEY, "w"), "update": (GROUP_KEY, "w"), "use": (STAGE_KEY, "3")}
    graph = read_onnx(written(tmp_path / "m.onnx", nodes)).graph
    label = {name: graph.colocation[graph.op_index[name]] for name in graph.op_names}
    assert label["read"] == label["update"] >= 0 > label["use"]
    assert graph.stages[graph.op_index["use"]] == 3
    assert graph.stages[graph.op_index["read"]] == -1


def test_state_is_resident_where_it_is_read_and_its_replacement_takes_no_more(tmp_path: Path) -> None:
    graph = read_onnx(written(tmp_path / "m.onnx", {})).graph
    memory = dict(zip(graph.op_names, graph.memory_bytes.tolist(), strict=True))
    assert memory == {"read": 16, "use": 0, "moment": 16, "update": 0}
    produced = [graph.op_names[op] for op in graph.tensor_producer]
    assert sorted(produced) == ["moment", "read", "use"]  # w_new is no tensor of its own; m_new is, as it is read
    assert read_onnx(written(tmp_path / "m.onnx", {}, state="")).graph.total_weight_bytes == 0


@pytest.mark.parametrize(
    ("nodes", "state", "message"),
    [
        ({"use": (STAGE_KEY, "first")}, STATE, "gnnplace.stage of node 'use' is 'first'"),
        ({}, "{", "no valid JSON"),
        ({}, "[]", "no object"),
        ({}, '{"w": "v"}', "names 'v'"),
        ({}, '{"q": "w_new"}', "names 'q'"),
    ],
)
def test_contradictory_metadata_is_refused(
    nodes: dict[str, tuple[str, str]], state: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=message) as refused:
        read_onnx(written(tmp_path / "m.onnx", nodes, state))
    assert "m.onnx" in str(refused.value)
