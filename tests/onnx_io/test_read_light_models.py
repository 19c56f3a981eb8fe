"""The nine real networks of the onnx package: op counts, FLOPs, weights, and what they compute."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.backend.test import data as onnx_test_data

from gnnplace.onnx_io.read import read_onnx

LIGHT = Path(next(iter(onnx_test_data.__path__))) / "light"

# Ops once the weight fills are folded.
OPS = {
    "bvlc_alexnet": 24, "densenet121": 668, "inception_v1": 143, "inception_v2": 371, "resnet50": 176, "shufflenet": 203,
    "squeezenet": 66, "vgg19": 46, "zfnet512": 22,
}  # fmt: skip

# Published multiply-accumulates (10^9) at 224 x 224 and weights (10^6), of the papers or torchvision.
PUBLISHED = {"resnet50": (4.09, 25.6), "vgg19": (19.6, 143.7), "densenet121": (2.87, 8.0), "squeezenet": (0.35, 1.24)}


@pytest.mark.parametrize("name", OPS)
def test_weight_fills_are_folded_and_only_the_data_is_left_as_input(name: str) -> None:
    model = read_onnx(LIGHT / f"light_{name}.onnx")
    assert model.graph.num_ops == OPS[name]
    assert "ConstantOfShape" not in model.graph.op_types
    assert len(model.model.graph.inputs) == 1
    assert model.warnings == ()
    assert all(value.type is not None for node in model.model.graph for value in node.outputs)


@pytest.mark.parametrize("name", PUBLISHED)
def test_flops_and_weights_agree_with_the_published_numbers(name: str) -> None:
    graph = read_onnx(LIGHT / f"light_{name}.onnx").graph
    macs, weights = PUBLISHED[name]
    assert graph.flops.sum() == pytest.approx(2e9 * macs, rel=0.03)
    assert graph.total_weight_bytes == pytest.approx(4e6 * weights, rel=0.03)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_the_normalised_model_computes_the_same_bits(name: str, tmp_path: Path, run_both) -> None:
    path = tmp_path / "model.onnx"
    proto = onnx.load(LIGHT / f"light_{name}.onnx")
    # All weights of a fill are equal, so that all outputs are, too; a fill per weight at least differs between weights.
    for number, node in enumerate(node for node in proto.graph.node if node.op_type == "ConstantOfShape"):
        value = onnx.numpy_helper.from_array(np.array([0.01 + 0.002 * (number % 7)], np.float32))
        node.attribute[0].t.CopyFrom(value)
    onnx.save(proto, path)
    model = read_onnx(path)
    (data,) = model.model.graph.inputs
    values = np.random.default_rng(1).standard_normal(data.shape.numpy()).astype(np.float32)
    (result,) = run_both(model, {data.name: values})
    assert np.isfinite(result).all()
    assert result.any()


def test_folded_fills_take_no_memory_until_they_are_saved() -> None:
    model = read_onnx(LIGHT / "light_vgg19.onnx")
    largest = max(
        (value.const_value for value in model.model.graph.initializers.values()), key=lambda tensor: tensor.nbytes
    )
    assert largest.nbytes == 25088 * 4096 * 4
    assert set(largest.numpy().strides) == {0}
