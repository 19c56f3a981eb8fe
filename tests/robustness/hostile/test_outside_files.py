"""A model or a placed folder reaches no file outside of its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from gnnplace.errors import InvalidPlacement, MeasurementFailed, UnsupportedModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.running.session import Session

SECRET = np.arange(4, dtype=np.float32)


def model_with_weights_in(location: str, folder: Path, **place: int) -> Path:
    """A model whose weight lies in the file that `location` names."""
    weight = numpy_helper.from_array(SECRET, "w")
    set_external_data(weight, location, **place)
    weight.ClearField("raw_data")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder beside a secret, with links to it."""
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "own.bin").write_bytes(SECRET.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "out").symlink_to(tmp_path)
    (folder / "own_link.bin").symlink_to("own.bin")
    (folder / "circle.bin").symlink_to("circle.bin")
    return folder


@pytest.mark.parametrize("location", ["own.bin", "own_link.bin", "./own.bin"])
def test_weights_beside_the_model_are_read(location: str, folder: Path) -> None:
    assert read_onnx(model_with_weights_in(location, folder)).graph.num_ops == 1


@pytest.mark.parametrize(
    "location",
    [
        "{above}/secret.bin",
        "../secret.bin",
        "sub/../../secret.bin",
        "link.bin",
        "out/secret.bin",
        "circle.bin",
        "/dev/zero",
        "a\0b",
    ],
)
def test_weights_outside_of_the_folder_are_refused(location: str, folder: Path) -> None:
    path = model_with_weights_in(location.format(above=folder.parent), folder)
    with pytest.raises(UnsupportedModel, match=r"is outside of the model's folder; put it beside the model"):
        read_onnx(path)


@pytest.mark.parametrize("location", ["", ".", "absent.bin", "n" * 5000])
def test_weights_that_are_in_no_file_are_refused(location: str, folder: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"model\.onnx: (external data file|tensor 'w')"):
        read_onnx(model_with_weights_in(location, folder))


@pytest.mark.parametrize("place", [{"offset": 8}, {"offset": 2**40}, {"length": 8}, {"length": 2**50}])
def test_weights_beyond_the_end_of_their_file_are_refused(place: dict[str, int], folder: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"is cut off|bytes in its file"):
        read_onnx(model_with_weights_in("own.bin", folder, **place))


def placed_folder(folder: Path, part: str) -> Path:
    """A placed model of one part, which lies in the file that `part` names."""
    info = {"name": "x", "type": "tensor(float)", "shape": [4]}
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    manifest = {
        "format": "gnnplace.parts/1", "devices": ["cpu:0"], "inputs": [info], "outputs": [{**info, "name": "y"}],
        "parts": [{"file": part, "device": "cpu:0", "inputs": ["x"], "outputs": ["y"], "optional_inputs": []}],
    }  # fmt: skip
    (parts / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("part", ["{above}/model.onnx", "../../model/model.onnx", "link.onnx", "a\0b"])
def test_parts_outside_of_the_folder_are_refused(part: str, folder: Path, tmp_path: Path) -> None:
    model = model_with_weights_in("own.bin", folder)
    placed = tmp_path / "placed"
    (placed / "parts").mkdir(parents=True)
    (placed / "parts" / "link.onnx").symlink_to(model)
    with pytest.raises(InvalidPlacement, match="lies outside of the folder; parts are files inside it"):
        Session(placed_folder(placed, part.format(above=model.parent)))


@pytest.mark.parametrize("location", ["../../secret.bin", "{above}/secret.bin", "link.bin"])
def test_the_weights_of_a_part_outside_of_the_folder_are_refused(location: str, folder: Path, tmp_path: Path) -> None:
    placed = tmp_path / "placed"
    (placed / "parts").mkdir(parents=True)
    (placed / "parts" / "link.bin").symlink_to(tmp_path / "secret.bin")
    model = model_with_weights_in(location.format(above=tmp_path), placed / "parts")
    with pytest.raises(MeasurementFailed, match=model.name):
        Session(placed_folder(placed, model.name))


def test_a_tensor_that_claims_more_than_it_has_is_refused(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(SECRET, "w")
    weight.dims[0] = 2**40
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(
        UnsupportedModel, match="tensor 'w' has 16 entries of data; its shape and type ask for 4398046511104"
    ):
        read_onnx(tmp_path / "model.onnx")


def functions_that_call_twice(depth: int, first: str) -> onnx.ModelProto:
    """Each function calls the next one twice; the last calls `first`."""
    functions = [
        helper.make_function(
            "own", f"f{level}", ["a"], ["c"],
            [
                helper.make_node(f"f{level + 1}" if level + 1 < depth else first, [source], [target], domain="own" if level + 1 < depth or first != "Relu" else "")
                for source, target in (("a", "b"), ("b", "c"))
            ],
            [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        )
        for level in range(depth)
    ]  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="own")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


def test_functions_that_call_each_other_or_too_often_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(functions_that_call_twice(3, "Relu"), path)
    assert read_onnx(path).graph.num_ops == 8
    onnx.save(functions_that_call_twice(40, "Relu"), path)
    with pytest.raises(UnsupportedModel, match=r"has 1\.1e\+12 nodes once its functions are inlined"):
        read_onnx(path)
    onnx.save(functions_that_call_twice(3, "f0"), path)
    with pytest.raises(UnsupportedModel, match="calls itself"):
        read_onnx(path)
