"""A light copy computes the same and holds no weights."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from gnnplace.onnx_io.external_data import light_copy
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.split import ModelCutter
from tests.onnx_io.texts import parsed


def product(size: int, folder: Path, external: bool = False) -> OnnxModel:
    proto = parsed(
        f"product (float[1, {size}] x) => (float[1, {size}] y) {{ [m] a = MatMul(x, w)  [p] y = Add(a, one) }}",
        w=np.random.default_rng(0).random((size, size), dtype=np.float32),
        one=np.array(1, np.float32),
    )
    onnx.save(proto, folder / "m.onnx", save_as_external_data=external, location="m.bin")
    return read_onnx(folder / "m.onnx")


def test_large_weights_go_to_a_file_and_the_model_computes_the_same_and_is_not_changed(tmp_path: Path) -> None:
    model = product(600, tmp_path)
    (tmp_path / "copy").mkdir()
    copy, folder = light_copy(model, tmp_path / "copy")
    assert folder == tmp_path / "copy"
    assert isinstance(copy.graph.initializers["w"].const_value, ir.ExternalTensor)
    assert not isinstance(copy.graph.initializers["one"].const_value, ir.ExternalTensor)
    assert not isinstance(model.model.graph.initializers["w"].const_value, ir.ExternalTensor)
    assert [node.name for node in copy.graph] == [node.name for node in model.model.graph]
    cut = ModelCutter(copy).part_in_memory(range(2)).model
    assert len(cut) < 10_000
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    x = {"x": np.ones((1, 600), dtype=np.float32)}
    (got,) = ort.InferenceSession(cut, options, providers=["CPUExecutionProvider"]).run(None, x)
    (wanted,) = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"]).run(None, x)
    assert np.array_equal(got, wanted)


def test_weights_in_a_linked_file_are_copied_along_with_large_ones_in_the_model(tmp_path: Path) -> None:
    model = product(600, tmp_path, external=True)
    model.model.graph.initializers["one"].const_value = ir.tensor(np.ones(600, np.float32).repeat(600), name="one")
    (tmp_path / "copy").mkdir()
    (tmp_path / "second name").hardlink_to(tmp_path / "m.bin")
    copy, folder = light_copy(model, tmp_path / "copy")
    one, weight = (copy.graph.initializers[name].const_value for name in ("one", "w"))
    assert isinstance(weight, ir.ExternalTensor)
    assert folder == Path(weight.path).parent == tmp_path / "copy"
    assert np.array_equal(weight.numpy(), np.random.default_rng(0).random((600, 600), dtype=np.float32))
    assert one.numpy().sum() == 360_000


def test_small_weights_and_weights_that_lie_outside_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    for model in (product(8, tmp_path), product(600, tmp_path / "outside", external=True)):
        copy, folder = light_copy(model, tmp_path / "unused")
        assert copy is model.model
        assert folder == model.path.parent
