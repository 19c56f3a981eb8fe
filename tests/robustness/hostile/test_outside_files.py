"""A model or a placed folder reaches no file outside of its folder."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

from gnnplace.errors import InvalidPlacement, MeasurementFailed, UnsupportedModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.running.session import Session

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
SECRET = np.arange(4, dtype=np.float32)


def model_with(weight: onnx.TensorProto, folder: Path) -> Path:
    """A model that adds the weight `w` to its input."""
    model = onnx.parser.parse_model(f"{HEAD} g (float[4] x) => (float[4] y) {{ y = Add(x, w) }}")
    model.graph.initializer.append(weight)
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def model_with_weights_in(location: str, folder: Path, **place: int) -> Path:
    """A model whose weight lies in the file that `location` names."""
    weight = numpy_helper.from_array(SECRET, "w")
    set_external_data(weight, location, **place)
    weight.ClearField("raw_data")
    return model_with(weight, folder)


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
    ["{above}/secret.bin", "../secret.bin", "sub/../../secret.bin", "link.bin", "out/secret.bin", "circle.bin", "/dev/zero", "a\0b"],
)  # fmt: skip
def test_weights_outside_of_the_folder_are_refused(location: str, folder: Path) -> None:
    path = model_with_weights_in(location.format(above=folder.parent), folder)
    with pytest.raises(UnsupportedModel, match=r"is outside of the model's folder; put it beside the model"):
        read_onnx(path)


@pytest.mark.parametrize("location", ["", ".", "absent.bin", "n" * 5000])
def test_weights_that_are_in_no_file_are_refused(location: str, folder: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"model\.onnx: (external data file .* is (missing|outside)|tensor 'w')"):
        read_onnx(model_with_weights_in(location, folder))


@pytest.mark.parametrize("place", [{"offset": 8}, {"offset": 2**40}, {"length": 8}, {"length": 2**50}])
def test_weights_beyond_the_end_of_their_file_are_refused(place: dict[str, int], folder: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"is cut off|bytes in its file"):
        read_onnx(model_with_weights_in("own.bin", folder, **place))


@pytest.fixture
def placed(tmp_path: Path, folder: Path) -> Path:
    """A placed folder without a manifest, with links to files outside of it."""
    parts = tmp_path / "placed" / "parts"
    parts.mkdir(parents=True)
    (parts / "link.onnx").symlink_to(model_with_weights_in("own.bin", folder))
    (parts / "link.bin").symlink_to(tmp_path / "secret.bin")
    return parts.parent


def with_part(placed: Path, part: str) -> Path:
    """The placed folder with a manifest of one part, which lies in the file that `part` names."""
    info = {"name": "x", "type": "tensor(float)", "shape": [4]}
    manifest = {
        "format": "gnnplace.parts/1", "devices": ["cpu:0"], "inputs": [info], "outputs": [{**info, "name": "y"}],
        "parts": [{"file": part, "device": "cpu:0", "inputs": ["x"], "outputs": ["y"], "optional_inputs": []}],
    }  # fmt: skip
    (placed / "parts" / "manifest.json").write_text(json.dumps(manifest))
    return placed


@pytest.mark.parametrize("part", ["{above}/model/model.onnx", "../../model/model.onnx", "link.onnx", "a\0b"])
def test_parts_outside_of_the_folder_are_refused(part: str, placed: Path) -> None:
    with pytest.raises(InvalidPlacement, match="lies outside of the folder; parts are files inside it"):
        Session(with_part(placed, part.format(above=placed.parent)))


@pytest.mark.parametrize("location", ["../../secret.bin", "{above}/secret.bin", "link.bin"])
def test_the_weights_of_a_part_outside_of_the_folder_are_refused(location: str, placed: Path) -> None:
    model_with_weights_in(location.format(above=placed.parent), placed / "parts")
    with pytest.raises(MeasurementFailed, match=r"model\.onnx"):
        Session(with_part(placed, "model.onnx"))


def test_a_tensor_with_less_data_than_its_shape_is_refused(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(SECRET, "w")
    weight.dims[0] = 2**40
    message = "tensor 'w' has 16 entries of data; its shape and type ask for 4398046511104"
    with pytest.raises(UnsupportedModel, match=message):
        read_onnx(model_with(weight, tmp_path))


def functions_that_call_twice(depth: int, last: str) -> onnx.ModelProto:
    """Each function calls the next one twice, and the last function calls `last` twice."""
    calls = [*(f"own.f{level}" for level in range(1, depth)), last]
    functions = [
        f'<domain: "own", opset_import: ["": 17, "own": 1]> f{level} (a) => (c) {{ b = {call}(a) c = {call}(b) }}'
        for level, call in enumerate(calls)
    ]
    head = HEAD.replace("]>", ', "own": 1]>')
    return onnx.parser.parse_model(f"{head} g (float[4] x) => (float[4] y) {{ y = own.f0(x) }} {' '.join(functions)}")


def test_functions_that_call_each_other_or_too_often_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(functions_that_call_twice(3, "Relu"), path)
    assert read_onnx(path).graph.num_ops == 8
    onnx.save(functions_that_call_twice(40, "Relu"), path)
    with pytest.raises(UnsupportedModel, match=r"has 1\.1e\+12 nodes once its functions are inlined"):
        read_onnx(path)
    onnx.save(functions_that_call_twice(3, "own.f0"), path)
    with pytest.raises(UnsupportedModel, match=r"a local function cannot be inlined .* calls itself"):
        read_onnx(path)
