"""The light models keep their structure and compute something that depends on their input."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.backend.test import data as onnx_test_data

from gnnplace.errors import UnsupportedModel
from models_zoo.networks.light import main, write_light_model
from models_zoo.networks.shipped import LIGHT_MODELS

SMALL = ("squeezenet", "shufflenet")
CONSTANT = "ConstantOfShape"


def shipped(name: str) -> onnx.ModelProto:
    return onnx.load(Path(next(iter(onnx_test_data.__path__))) / "light" / f"light_{name}.onnx")


def output(path: Path, seed: int) -> np.ndarray:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (data,) = session.get_inputs()
    values = np.random.default_rng(seed).standard_normal(data.shape).astype(np.float32)
    return session.run(None, {data.name: values})[0].ravel()


def nodes(model: onnx.ModelProto) -> list[bytes]:
    return [node.SerializeToString() for node in model.graph.node if node.op_type != CONSTANT]


@pytest.fixture(scope="module", params=SMALL)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("light") / f"{request.param}.onnx"
    write_light_model(request.param, path, seed=3)
    return request.param, path


def test_the_list_names_every_light_model_that_onnx_ships() -> None:
    folder = Path(next(iter(onnx_test_data.__path__))) / "light"
    assert sorted(LIGHT_MODELS) == sorted(file.stem.removeprefix("light_") for file in folder.glob("light_*.onnx"))


def test_all_nodes_but_the_fills_are_kept_in_order_and_unchanged(model: tuple[str, Path]) -> None:
    name, path = model
    written = onnx.load(path)
    assert nodes(written) == nodes(shipped(name))
    assert CONSTANT not in {node.op_type for node in written.graph.node}


def test_only_data_is_an_input_and_shapes_stay(model: tuple[str, Path]) -> None:
    name, path = model
    written, original = onnx.load(path), shipped(name)
    constants = {tensor.name for tensor in original.graph.initializer}
    data = [value for value in original.graph.input if value.name not in constants]
    assert written.ir_version >= 4
    assert len(data) == 1
    assert list(written.graph.input) == data
    assert list(written.graph.output) == list(original.graph.output)


def test_probabilities_are_neither_uniform_nor_one_hot_and_follow_the_input(model: tuple[str, Path]) -> None:
    one, other = output(model[1], seed=0), output(model[1], seed=1)
    assert np.isfinite(one).all()
    assert one.sum() == pytest.approx(1.0, rel=1e-4)
    assert 2.0 / one.size < one.max() < 0.5
    assert np.abs(one - other).max() > 1e-3 * one.max()


def test_the_seed_alone_decides_the_file(model: tuple[str, Path], tmp_path: Path) -> None:
    name, path = model
    write_light_model(name, tmp_path / "same.onnx", seed=3)
    write_light_model(name, tmp_path / "other.onnx", seed=4)
    assert (tmp_path / "same.onnx").read_bytes() == path.read_bytes()
    assert (tmp_path / "other.onnx").read_bytes() != path.read_bytes()


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"'resnet51' is unknown; choose one of .*resnet50"):
        write_light_model("resnet51", tmp_path / "x.onnx")


def test_the_command_writes_the_file_that_the_function_writes(model: tuple[str, Path], tmp_path: Path) -> None:
    name, path = model
    assert main([name, "--out", str(tmp_path / "new" / "x.onnx"), "--seed", "3"]) == 0
    assert (tmp_path / "new" / "x.onnx").read_bytes() == path.read_bytes()


def test_an_unwritable_path_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["squeezenet", "--out", str(tmp_path / "file" / "x.onnx")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
