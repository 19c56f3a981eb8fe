"""Kernels of an optimised model are charged to the ops that they stand for."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.onnx_io.kernels import ops_of_kernels
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from tests.onnx_io.texts import parsed

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}


@pytest.fixture
def convolutions(tmp_path: Path) -> OnnxModel:
    """Conv, BatchNormalization, Relu, MaxPool, Conv, Relu, an Add of both, and a Softmax."""
    text = """convolutions (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y)
        { [conv1] c1 = Conv<pads = [1, 1, 1, 1]>(x, w1)  [norm1] n1 = BatchNormalization(c1, s, b, m, v)
          [relu1] r1 = Relu(n1)  [pool1] p1 = MaxPool<kernel_shape = [1, 1]>(r1)
          [conv2] c2 = Conv<pads = [1, 1, 1, 1]>(p1, w2)  [relu2] r2 = Relu(c2)
          [add] a = Add(p1, r2)  [softmax] y = Softmax<axis = 3>(a) }"""
    kernel, channels = (16, 16, 3, 3), (16,)
    found = weights(w1=kernel, w2=kernel, s=channels, b=channels, m=channels, v=channels)
    onnx.save(parsed(text, **found), tmp_path / "m.onnx")
    return read_onnx(tmp_path / "m.onnx")


def charged(model: OnnxModel, level: str, folder: Path) -> dict[str, str]:
    """Op name by kernel name."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    found = ops_of_kernels(model, folder / "optimised.onnx")
    assert set(found) <= {node.name for node in onnx.load(folder / "optimised.onnx").graph.node}
    return {name: model.graph.op_names[kernel.charged] for name, kernel in found.items()}


def test_without_optimisation_every_op_is_its_own_kernel(convolutions: OnnxModel, tmp_path: Path) -> None:
    names = convolutions.graph.op_names
    assert charged(convolutions, "none", tmp_path) == {name: name for name in names}


@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_ops_fused_into_a_convolution_are_charged_to_it(level: str, convolutions: OnnxModel, tmp_path: Path) -> None:
    ops = set(charged(convolutions, level, tmp_path).values())
    assert {"conv1", "conv2", "softmax"} <= ops
    assert "norm1" not in ops  # folded into conv1 at every level
    if level != "basic":
        assert not ops & {"relu1", "relu2"}


def test_a_kernel_names_all_ops_whose_work_it_does(convolutions: OnnxModel, tmp_path: Path) -> None:
    charged(convolutions, "all", tmp_path)
    kernels = ops_of_kernels(convolutions, tmp_path / "optimised.onnx").values()
    names = convolutions.graph.op_names
    together = [{names[op] for op in kernel.ops} for kernel in kernels if kernel.ops]
    assert {"conv1", "norm1", "relu1"} in together
    assert sorted(name for ops in together for name in ops) == sorted(names)  # each op's work is done once


def test_every_kernel_of_the_fastest_level_is_charged_to_some_op(convolutions: OnnxModel, tmp_path: Path) -> None:
    found = charged(convolutions, "all", tmp_path)
    kernels = {node.name for node in onnx.load(tmp_path / "optimised.onnx").graph.node}
    # A layout change of the model's own input has no op that it comes from.
    assert {name for name in kernels - set(found) if not name.startswith("ReorderInput")} == set()


def test_a_gemm_with_its_reshapes_stands_for_matmul_bias_and_the_weight_before_it(tmp_path: Path) -> None:
    text = """head (float[2, 3, 1024] x) => (float[2, 3, 512] y)
        { [relu] r = Relu(x)  [transpose] wt = Transpose<perm = [1, 0]>(w)  [matmul] m = MatMul(r, wt)
          [bias] y = Add(m, b) }"""
    onnx.save(parsed(text, **weights(w=(512, 1024), b=(512,))), tmp_path / "m.onnx")
    model = read_onnx(tmp_path / "m.onnx")
    names = model.graph.op_names
    found = charged(model, "all", tmp_path)
    kernels = ops_of_kernels(model, tmp_path / "optimised.onnx")
    gemm = next(node for node in onnx.load(tmp_path / "optimised.onnx").graph.node if node.op_type == "Gemm")
    assert found[gemm.name] == "matmul"
    assert {names[op] for op in kernels[gemm.name].together} == {"matmul", "bias"} | ({"transpose"} & set(names))
    assert kernels["relu"].ops == (names.index("relu"),)
