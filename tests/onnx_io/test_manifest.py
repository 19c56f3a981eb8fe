import json
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from gnnplace.errors import InvalidPlacement, UnsupportedModel
from gnnplace.onnx_io.manifest import MANIFEST, read_manifest, write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.part import Part, ValueInfo
from gnnplace.onnx_io.segments import Segment

CHAIN = (Segment(0, (0, 1)), Segment(1, (2,)), Segment(0, (3,)))


@pytest.fixture
def parts(small_model: Callable[[str], OnnxModel], tmp_path: Path) -> Path:
    write_parts(small_model("chain"), CHAIN, ("cpu:0", "cpu:1"), tmp_path / "parts")
    return tmp_path / "parts"


def test_a_written_manifest_is_read_back_equal(small_model: Callable[[str], OnnxModel], tmp_path: Path) -> None:
    written = write_parts(small_model("chain"), CHAIN, ("cpu:0", "cpu:1"), tmp_path / "parts")
    assert read_manifest(tmp_path / "parts") == written
    assert written.inputs == (ValueInfo("x", "tensor(float)", ("N", 4)),)
    assert written.outputs == (ValueInfo("y", "tensor(float)", ("N", 4)),)
    assert written.parts == (
        Part("part-0000.onnx", "cpu:0", tmp_path / "parts" / "part-0000.onnx", ("x",), ("b",)),
        Part("part-0001.onnx", "cpu:1", tmp_path / "parts" / "part-0001.onnx", ("b",), ("c",)),
        Part("part-0002.onnx", "cpu:0", tmp_path / "parts" / "part-0002.onnx", ("c",), ("y",)),
    )
    assert json.loads((tmp_path / "parts" / MANIFEST).read_text())["format"] == "gnnplace.parts/1"


def test_a_new_placement_removes_the_parts_of_an_older_one(
    parts: Path, small_model: Callable[[str], OnnxModel]
) -> None:
    write_parts(small_model("chain"), [Segment(1, (0, 1, 2, 3))], ("cpu:0", "cpu:1"), parts)
    assert sorted(path.name for path in parts.iterdir()) == [MANIFEST, "part-0000.onnx"]
    assert sorted(path.name for path in parts.parent.iterdir()) == ["model.onnx", "parts"]


def test_a_model_that_cannot_be_cut_leaves_older_parts_unchanged(
    parts: Path, small_model: Callable[[str], OnnxModel]
) -> None:
    model = small_model("chain")
    model.model.opset_imports[""] = 27
    before = {path.name: path.read_bytes() for path in parts.iterdir()}
    with pytest.raises(UnsupportedModel, match="opset 27; up to 26"):
        write_parts(model, CHAIN, ("cpu:0", "cpu:1"), parts)
    assert {path.name: path.read_bytes() for path in parts.iterdir()} == before
    assert sorted(path.name for path in parts.parent.iterdir()) == ["model.onnx", "parts"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "gnnplace.parts/2", "\"format\" is 'gnnplace.parts/2'"),
        (["devices"], "cpu:0", "'devices' is 'cpu:0'"),
        (["parts"], {}, "'parts' is {}; expected a list"),
        (["parts", 1, "file"], 3, "'file' is 3"),
        (["parts", 1, "file"], "part-0009.onnx", "'part-0009.onnx' is missing"),
        (["parts", 1, "device"], "cpu:7", "'part-0001.onnx' is on 'cpu:7'; the devices are cpu:0, cpu:1"),
        (["parts", 0, "inputs"], ["c"], "'part-0000.onnx' reads 'c', which no model input or earlier part gives"),
        (["parts", 1, "outputs"], ["b"], "'part-0001.onnx' gives 'b', which is there already"),
        (["parts", 2, "outputs"], ["q"], "no part gives the model output 'y'"),
        (["parts", 2, "outputs"], [1], "'outputs' is \\[1\\]"),
        (["inputs", 0, "shape"], [1.5], "'shape' of 'x' is \\[1.5\\]"),
        (["inputs", 0, "type"], None, "'type' is None"),
    ],
)
def test_a_broken_manifest_is_refused_in_one_line(parts: Path, path: list[Any], value: Any, message: str) -> None:
    document = json.loads((parts / MANIFEST).read_text())
    reduce(getitem, path[:-1], document)[path[-1]] = value
    (parts / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(InvalidPlacement, match=message) as caught:
        read_manifest(parts)
    assert str(parts / MANIFEST) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense"])
def test_a_file_that_is_no_manifest_is_refused(parts: Path, text: str) -> None:
    (parts / MANIFEST).write_text(text)
    with pytest.raises(InvalidPlacement, match=MANIFEST):
        read_manifest(parts)
