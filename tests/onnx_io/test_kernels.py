"""Kernels of an optimised model are charged to the ops that they stand for."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from gnnplace.onnx_io.kernels import ops_of_kernels
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@pytest.fixture
def convolutions(tmp_path: Path) -> OnnxModel:
    """Conv, BatchNormalization, Relu, MaxPool, Conv, Relu, an Add of both, and a Softmax."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.random(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "s", "b", "m", "v"], ["n1"], "norm1"),
        helper.make_node("Relu", ["n1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[1, 1]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Add", ["p1", "r2"], ["a"], "add"),
        helper.make_node("Softmax", ["a"], ["y"], "softmax", axis=3),
    ]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 8, 8])],
        [weight("w1", 16, 16, 3, 3), weight("w2", 16, 16, 3, 3), *(weight(name, 16) for name in "sbmv")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
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
def test_what_is_fused_into_a_convolution_is_charged_to_it(level: str, convolutions: OnnxModel, tmp_path: Path) -> None:
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
    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(np.random.default_rng(0).random(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Transpose", ["w"], ["wt"], "transpose", perm=[1, 0]),
        helper.make_node("MatMul", ["r", "wt"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b"], ["y"], "bias"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, n]) for name, n in (("x", 1024), ("y", 512))]
    graph = helper.make_graph(nodes, "head", ends[:1], ends[1:], [weight("w", 512, 1024), weight("b", 512)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    model = read_onnx(tmp_path / "m.onnx")
    names = model.graph.op_names
    found = charged(model, "all", tmp_path)
    kernels = ops_of_kernels(model, tmp_path / "optimised.onnx")
    gemm = next(node for node in onnx.load(tmp_path / "optimised.onnx").graph.node if node.op_type == "Gemm")
    assert found[gemm.name] == "matmul"
    assert {names[op] for op in kernels[gemm.name].ops} == {"matmul", "bias"} | ({"transpose"} & set(names))
    assert kernels["relu"].ops == (names.index("relu"),)
