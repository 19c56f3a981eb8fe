"""Models that write the same thing in another way are read as ONNX Runtime reads them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.running.session import Session
from tests.parts import save

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def saved(
    path: Path, nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None, domain: str = ""
) -> Path:
    """A model of `nodes` from `x` `[2, 3]` to `y`, with the default operator set under this domain."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    x.type.tensor_type.shape.dim.add(dim_value=2)
    x.type.tensor_type.shape.dim.add(dim_value=3)
    graph = helper.make_graph(nodes, "g", [x], [y])
    opsets = [helper.make_opsetid(domain, 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions or []), path)
    return path


def outputs(model: OnnxModel, folder: Path, assignment: list[int]) -> np.ndarray:
    save(model, assignment, folder)
    with Session(folder) as session:
        return session.run(None, {"x": X})[0]


@pytest.mark.usefixtures("needs_two_cores")
def test_ai_onnx_is_the_default_domain(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["b"])], "b", [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )  # fmt: skip
    constant = helper.make_node("Constant", [], ["c"], domain="ai.onnx", value_ints=[1])
    nodes = [
        constant,
        helper.make_node("Cast", ["c"], ["k"], domain="ai.onnx", to=TensorProto.BOOL),
        helper.make_node("If", ["k"], ["a"], domain="ai.onnx", then_branch=body, else_branch=body),
        helper.make_node("Relu", ["a"], ["y"], domain="ai.onnx"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, domain="ai.onnx")
    expected = ort.InferenceSession(str(path)).run(None, {"x": X})[0]
    model = read_onnx(path)
    assert model.model.opset_imports == {"": 17}
    assert outputs(model, tmp_path / "out", [op % 2 for op in range(model.graph.num_ops)]).tolist() == expected.tolist()


@pytest.mark.usefixtures("needs_two_cores")
def test_a_function_with_the_name_of_a_standard_operator_is_the_operator(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 17)]
    relu = helper.make_function("", "Relu", ["a"], ["b"], [helper.make_node("Abs", ["a"], ["b"])], opsets)
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, [relu])
    expected = ort.InferenceSession(str(path)).run(None, {"x": X})[0]
    assert expected.min() == -5  # not the function
    model = read_onnx(path)
    assert model.graph.op_types == ("Relu", "Neg")
    assert outputs(model, tmp_path / "out", [0, 1]).tolist() == expected.tolist()


def sparse(indices: np.ndarray, dims: list[int]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "v")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), dims)


@pytest.mark.usefixtures("needs_two_cores")
@pytest.mark.parametrize("indices", [np.array([1, 5]), np.array([[0, 1], [1, 2]])])
def test_a_sparse_constant_becomes_dense(indices: np.ndarray, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse(indices, [2, 3])),
        helper.make_node("Add", ["x", "c"], ["a"]),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    model = read_onnx(saved(tmp_path / "m.onnx", nodes))
    dense = np.array([[0, 2, 0], [0, 0, 3]], np.float32)
    assert outputs(model, tmp_path / "out", [0, 1]).tolist() == (-(X + dense)).tolist()


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        (np.array([1, 6]), [2, 3], "the sparse constant 'c' breaks the rules of ONNX .*; export the model again"),
        (np.array([1, 5]), [2**20, 2**20], "the sparse constant 'c' is too large to be made dense"),
    ],
)
def test_a_sparse_constant_that_cannot_be_dense_is_named(
    indices: np.ndarray, dims: list[int], message: str, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse(indices, dims)),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    with pytest.raises(UnsupportedModel, match=message):
        read_onnx(saved(tmp_path / "m.onnx", nodes))


def test_the_default_of_stft_gives_half_of_the_spectrum(read_text, tmp_path: Path) -> None:
    text = """g (float[1, 64, 1] x) => (float[?, ?, ?, ?] y)
        { step = Constant<value = int64 {16}>() n = Constant<value = int64 {32}>() s = STFT(x, step, , n) y = Neg(s) }"""
    model = read_text(text)
    plain = ort.InferenceSession(str(model.path)).run(None, {"x": np.zeros((1, 64, 1), np.float32)})[0]
    (spectrum,) = (node.outputs[0] for node in model.model.graph if node.op_type == "STFT")
    assert list(spectrum.shape) == list(plain.shape) == [1, 3, 17, 2]


def test_an_output_that_is_an_input_or_a_weight_has_its_type(read_text, tmp_path: Path) -> None:
    text = "g (float[N, 3] x) => (float[N, 3] y, float[2, M] x, float[2] w) <float[2] w = {1, 2}> { a = Neg(x)  y = Exp(a) }"
    proto = onnx.load(read_text(text).path)
    proto.graph.output[2].ClearField("type")
    onnx.save(proto, tmp_path / "m.onnx")
    save(read_onnx(tmp_path / "m.onnx"), [0, 0], tmp_path / "out")
    with Session(tmp_path / "out") as session:
        plain = ort.InferenceSession(str(tmp_path / "m.onnx"))
        for found, expected in zip(
            (session.get_inputs(), session.get_outputs()), (plain.get_inputs(), plain.get_outputs()), strict=True
        ):
            assert [(v.name, v.type, list(v.shape)) for v in found] == [(v.name, v.type, v.shape) for v in expected]


def test_a_sequence_has_no_shape(read_text, tmp_path: Path) -> None:
    model = read_text("g (seq(float[N]) q, int64 k) => (float[N] y) { a = SequenceAt(q, k)  y = Abs(a) }")
    save(model, [0, 0], tmp_path / "out")
    with Session(tmp_path / "out") as session:
        shapes = [list(value.shape) for value in session.get_inputs()]
    assert shapes == [value.shape for value in ort.InferenceSession(str(model.path)).get_inputs()] == [[], []]
