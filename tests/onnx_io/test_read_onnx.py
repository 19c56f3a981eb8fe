"""`read_onnx`: ops, tensors, weights and dimensions, and the messages about files that are no models."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from gnnplace.errors import UnsupportedModel
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.read import read_onnx
from tests.onnx_io.texts import HEAD, parsed

CHAIN = """<ir_version: 8, opset_import: ["": 17]>
    g (float[B, 4] x) => (float[B, 4] y) { a = Relu(x)  b = Exp(a)  y = Add(a, b) }"""


def edges(graph: OpGraph) -> set[tuple[str, str]]:
    return {(graph.op_names[a], graph.op_names[b]) for a, b in zip(*graph.edges, strict=True)}


def only_line(path: Path, problem: pytest.ExceptionInfo[UnsupportedModel]) -> str:
    """The message, which is one line that names the file."""
    text = str(problem.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


def write(path: Path, text: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(text)
    onnx.save(proto, path)
    return proto


def test_ops_follow_nodes_and_tensors_have_the_bytes_of_the_chosen_dimension(read_text) -> None:
    model = read_text(CHAIN, B=3)
    graph = model.graph
    assert graph.op_names == ("Relu_1", "Exp_1", "Add_1") == tuple(node.name for node in model.model.graph)
    assert graph.op_types == ("Relu", "Exp", "Add")
    assert edges(graph) == {("Relu_1", "Exp_1"), ("Relu_1", "Add_1"), ("Exp_1", "Add_1")}
    assert graph.tensor_bytes.tolist() == [48, 48, 48]
    assert graph.consumers_of(2).tolist() == []  # the model's output stays
    assert graph.flops.tolist() == [12, 12, 12]
    assert graph.bytes_accessed.tolist() == [96, 96, 144]
    assert graph.name == "model"
    assert model.dims == {"B": 3}
    assert model.warnings == ()
    assert model.sha256 == hashlib.sha256(model.path.read_bytes()).hexdigest()


def test_a_dimension_without_a_size_is_1_and_the_warning_names_the_option(read_text) -> None:
    model = read_text(CHAIN)
    assert model.dims == {"B": 1}
    assert model.graph.tensor_bytes.tolist() == [16, 16, 16]
    assert model.warnings == ("dimension 'B' is not given; 1 is taken (set it with --dim B=N)",)


def test_the_model_keeps_its_symbolic_dimensions(read_text, run_both) -> None:
    model = read_text(CHAIN, B=3)
    assert str(model.model.graph.inputs[0].shape) == "[B,4]"
    assert [str(node.outputs[0].shape) for node in model.model.graph] == ["[B,4]"] * 3
    assert run_both(model, {"x": np.ones((5, 4), np.float32)})[0].shape == (5, 4)


def test_an_unknown_dimension_is_refused_with_the_name_that_was_meant(read_text) -> None:
    with pytest.raises(UnsupportedModel, match=r"no input has a dimension 'bach'; did you mean 'batch'\?"):
        read_text(CHAIN.replace("B", "batch"), bach=2)
    with pytest.raises(UnsupportedModel, match="no input has a dimension 'B'; all of them are fixed"):
        read_text(CHAIN.replace("B", "2"), B=2)
    with pytest.raises(UnsupportedModel, match="dimension 'B' is given as -1; expected at least 0"):
        read_text(CHAIN, B=-1)


def test_an_axis_without_a_name_can_be_set_by_input_and_position(tmp_path: Path) -> None:
    proto = parsed("g (float[?, 1, 2] x) => (float[?, ?, 2] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    onnx.save(proto, tmp_path / "model.onnx")
    model = read_onnx(tmp_path / "model.onnx", {"x.0": 5})
    assert model.dims == {"x.0": 5, "x.1": 1}
    assert model.graph.tensor_bytes.tolist() == [5 * 1 * 2 * 4]


def test_a_dimension_that_is_a_sum_of_others_follows_from_them(read_text) -> None:
    text = CHAIN.replace("float[B, 4] x)", 'float[B, 4] x, float[P] past, float["P + B"] mask)')
    model = read_text(text, B=3, P=2)
    assert model.dims == {"B": 3, "P": 2, "P + B": 5}
    assert model.warnings == ()


def test_a_dimension_whose_name_only_looks_like_an_expression_is_a_name(read_text) -> None:
    model = read_text(CHAIN.replace("[B,", '["seq-len",'), **{"seq-len": 6})
    assert model.dims == {"seq-len": 6}


def test_a_weight_is_resident_with_its_op_and_a_shared_one_once_per_device(read_text) -> None:
    text = """g (float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {1, 2, 3, 4}, float[2] bias = {5, 6}>
        { a = MatMul(x, w)  b = Add(a, bias)  y = MatMul(b, w) }"""
    model = read_text(text)
    graph = model.graph
    assert graph.memory_bytes.tolist() == [0, 8, 0]
    assert graph.weight_bytes.tolist() == [16]
    assert graph.weights_of(0).tolist() == [0, 2]
    assert graph.total_weight_bytes == 24
    assert graph.bytes_accessed.tolist() == [8 + 16 + 8, 8 + 8 + 8, 8 + 16 + 8]


def test_a_weight_that_one_op_reads_twice_is_no_shared_weight(read_text) -> None:
    graph = read_text("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Sum(x, w, w) }").graph
    assert (graph.memory_bytes.tolist(), len(graph.weight_bytes)) == ([8], 0)


def test_an_overridable_initialiser_stays_an_input_with_its_default(read_text, run_both) -> None:
    model = read_text("g (float[2] x, float[2] w = {3, 4}) => (float[2] y) { y = Add(x, w) }")
    assert [value.name for value in model.model.graph.inputs] == ["x", "w"]
    assert model.graph.total_weight_bytes == 0
    (default,) = run_both(model, {"x": np.array([1, 1], np.float32)})
    (overridden,) = run_both(model, {"x": np.array([1, 1], np.float32), "w": np.array([7, 7], np.float32)})
    assert (default.tolist(), overridden.tolist()) == ([4, 5], [8, 8])


def test_initialisers_that_old_models_list_as_inputs_are_constants(tmp_path: Path, run_both) -> None:
    proto = parsed("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", w=np.array([3, 4], np.float32))
    proto.ir_version, proto.opset_import[0].version = 3, 9
    onnx.save(proto, tmp_path / "old.onnx")
    model = read_onnx(tmp_path / "old.onnx")
    assert [value.name for value in model.model.graph.inputs] == ["x"]
    assert model.model.ir_version == 4
    assert model.graph.memory_bytes.tolist() == [8]
    assert run_both(model, {"x": np.array([1, 1], np.float32)})[0].tolist() == [4, 5]


def test_outputs_that_no_node_produces_stay(read_text, run_both) -> None:
    text = "g (float[2] x) => (float[2] y, float[2] w, float[2] x) <float[2] w = {1, 2}> { y = Add(x, w) }"
    model = read_text(text)
    assert (model.graph.num_ops, model.graph.num_tensors) == (1, 1)
    assert [out.tolist() for out in run_both(model, {"x": np.zeros(2, np.float32)})] == [[1, 2], [1, 2], [0, 0]]


def test_a_model_without_nodes_is_an_empty_graph(read_text) -> None:
    model = read_text("g (float[2] x) => (float[2] x) { }")
    assert (model.graph.num_ops, model.graph.num_tensors, model.warnings) == (0, 0, ())


@pytest.mark.parametrize("version", [2**40, -1])
def test_an_operator_set_of_an_impossible_version_is_refused(version: int, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(CHAIN)
    proto.opset_import[0].version = version
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=f"operator set '' has the version {version}"):
        read_onnx(tmp_path / "m.onnx")


DIMS = ("N", "N + 9**9**9**9", "(" * 150 + "N" + ")" * 150, "1/0", "N % 0", "n" * 5000, "9" * 5000)


@pytest.mark.parametrize("dim", DIMS)
def test_a_dimension_whose_evaluation_would_not_end_is_a_name(dim: str, tmp_path: Path) -> None:
    proto = parsed("g (float[N] x) => (float[2] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim.add().dim_param = dim
    onnx.save(proto, tmp_path / "m.onnx")
    assert read_onnx(tmp_path / "m.onnx").graph.num_ops == 1


def test_nodes_may_be_stored_in_any_order(read_text, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(CHAIN)
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    onnx.save(proto, tmp_path / "reversed.onnx")
    assert read_onnx(tmp_path / "reversed.onnx").graph.op_types == ("Relu", "Exp", "Add")


def test_newer_versions_than_runtimes_take_are_read(tmp_path: Path) -> None:
    proto = write(tmp_path / "new.onnx", CHAIN.replace("8, opset", "14, opset").replace("17", "28"))
    assert (proto.ir_version, proto.opset_import[0].version) == (14, 28)
    assert read_onnx(tmp_path / "new.onnx").graph.op_types == ("Relu", "Exp", "Add")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"this is a text file\nwith two lines\n", "is no ONNX model"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00", "is no ONNX model"),
        (b'{"format": "gnnplace.graph/1"}', "is no ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "holds no graph"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull brings the model"),
        (b"<!DOCTYPE HTML>\n<html><body>not found</body></html>", "is a web page"),
        (b"\x18\0\0\0ORTM\0\0\0\0\x0c\0\x10\0", "give the .onnx file that it was made from"),
        (b"PK\x03\x04\0\0\x08\x08\0\0\0\0archive/data.pkl", "as PyTorch saves models"),
        (b'\x18\0\0\0\0\0\0\0{"__metadata__":{}}', "is a file of weights"),
        (b"\x1c\0\0\0TFL3\x14\0\x20\0", "is a model of TensorFlow Lite"),
        (b"\x89HDF\r\n\x1a\n\0\0\0\0", "as Keras saves models"),
        (
            onnx.parser.parse_model(CHAIN).SerializeToString().replace(b"Relu", b"R\xfflu"),
            "is no text in UTF-8|is no ONNX model",
        ),
    ],
)
def test_a_file_that_is_no_model_is_named_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "no.onnx"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModel, match=message) as problem:
        read_onnx(path)
    only_line(path, problem)


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"cannot be read \(No such file") as problem:
        read_onnx(tmp_path / "none.onnx")
    only_line(tmp_path / "none.onnx", problem)
    with pytest.raises(UnsupportedModel, match="is a directory"):
        read_onnx(str(tmp_path))


def test_a_model_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "whole.onnx"
    write(path, CHAIN)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UnsupportedModel) as problem:
            read_onnx(path)
        only_line(path, problem)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a = Relu(z)  y = Exp(a)", r"a node of type Relu reads 'z', which nothing writes"),
        ("y = Relu(x)  y = Exp(x)", r"value 'y' is written twice, once by a node of type Exp"),
        ("a = Relu(x)", r"output 'y' is written by no node"),
        ("a = Add(x, b)  b = Relu(a)  y = Exp(b)", "the model's graph has a cycle"),
        (
            "c = Constant<value = bool {1}>() y = If(c) <then_branch = t () => (float[2] p) { p = Relu(q) }, "
            "else_branch = e () => (float[2] r) { r = Exp(x) }>",
            "reads 'q', which nothing writes",
        ),
        (
            "c = Constant<value = bool {1}>() y = If(c) <then_branch = t () => (float[2] x) { }, "
            "else_branch = e () => (float[2] r) { r = Exp(x) }>",
            "output 'x' of a body is a value of an outer graph, which ONNX does not allow",
        ),
    ],
)
def test_cycles_and_values_that_are_not_written_exactly_once_are_refused(
    tmp_path: Path, body: str, message: str
) -> None:
    path = tmp_path / "model.onnx"
    write(path, HEAD + f"g (float[2] x) => (float[2] y) {{ {body} }}")
    with pytest.raises(UnsupportedModel, match=message) as problem:
        read_onnx(path)
    only_line(path, problem)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("y = Concat(x)", "a node of type Concat lacks its attribute 'axis'"),
        ("y = Softmax<axis = 1.5>(x)", "attribute 'axis' of a node of type Softmax is of type FLOAT; expected INT"),
        ("y = If(c)", "a node of type If lacks its attribute '(then|else)_branch'"),
    ],
)
def test_attributes_that_contradict_the_operator_are_named(read_text, node: str, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        read_text(f"g (float[2] x, bool c) => (float[2] y) {{ {node} }}")


def external_model(folder: Path) -> Path:
    """`y = (x w) * two`, with a weight of 4 KiB and a number in a file of their own; `two` also gives `y` its rows."""
    folder.mkdir()
    text = """g (float[B, 32] x) => (float[B, R, 32] y)
        { a = MatMul(x, w)  one = Constant<value = int64[1] {1}>()  t = Mul(two, one)
          axis = Constant<value = int64[1] {1}>()  b = Unsqueeze(a, axis)
          repeats = Concat<axis = 0>(one, t, one)  y = Tile(b, repeats) }"""
    proto = parsed(text, w=np.random.default_rng(0).random((32, 32), np.float32), two=np.array([2]))
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder / "model.onnx"


def test_external_data_stays_where_it_is(tmp_path: Path, run_both, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external_model(tmp_path / "model")
    monkeypatch.chdir(path.parent)
    model = read_onnx("model.onnx", {"B": 2})  # a relative path: the weights must be found from elsewhere too
    monkeypatch.chdir(tmp_path)
    weight = model.model.graph.initializers["w"].const_value
    assert isinstance(weight, ir.ExternalTensor)
    assert weight.raw is None  # not mapped, so not loaded
    assert Path(weight.path) == path.parent / "weights.bin"
    assert model.graph.op_types == ("MatMul", "Unsqueeze", "Tile")
    assert model.graph.memory_bytes.tolist() == [4096, 8, 24]
    assert model.graph.tensor_bytes.tolist() == [256, 256, 512]  # the few bytes that give a shape were looked at
    (result,) = run_both(read_onnx(path), {"x": np.ones((3, 32), np.float32)})
    assert result.shape == (3, 2, 32)


def test_external_data_with_a_second_name_is_read_the_same(tmp_path: Path) -> None:
    path = external_model(tmp_path / "model")
    before = read_onnx(path)
    (tmp_path / "link.bin").hardlink_to(path.parent / "weights.bin")
    assert read_onnx(path).graph.signatures == before.graph.signatures


def test_a_constant_of_a_branch_in_a_file_with_a_second_name_is_read(tmp_path: Path, run_both) -> None:
    text = """g (float[2] x, bool on) => (float[2] y) { y = If(on) <
        then_branch = t () => (float[2] p) { c = Constant<value = float[2] {0, 0}>() p = Add(x, c) },
        else_branch = e () => (float[2] q) { q = Neg(x) }> }"""
    proto = parsed(text)
    constant = proto.graph.node[0].attribute[0].g.node[0].attribute[0].t
    constant.CopyFrom(numpy_helper.from_array(np.array([3, 4], np.float32)))
    onnx.save(
        proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0,
        convert_attribute=True,
    )  # fmt: skip
    (tmp_path / "link.bin").hardlink_to(tmp_path / "weights.bin")
    model = read_onnx(tmp_path / "model.onnx")
    branch = model.model.graph.node(0).attributes["then_branch"].as_graph()
    assert branch.node(0).attributes["value"].as_tensor().numpy().tolist() == [3, 4]


def test_a_sparse_initialiser_is_refused(tmp_path: Path) -> None:
    proto = parsed("g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(np.array([1], np.float32), "w")
    indices = numpy_helper.from_array(np.array([0], np.int64), "i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    onnx.save(proto, tmp_path / "sparse.onnx")
    with pytest.raises(UnsupportedModel, match="initialiser 'w' is sparse"):
        read_onnx(tmp_path / "sparse.onnx")


def test_strings_take_16_bytes_and_packed_integers_half_a_byte(read_text) -> None:
    graph = read_text(
        '<ir_version: 10, opset_import: ["": 21]>\n'
        "g (string[3] s, float[5] x) => (string[3] t, int4[5] q) <float[1] scale = {2}> "
        "{ t = Identity(s)  q = QuantizeLinear<output_dtype = 22>(x, scale) }"
    ).graph
    assert graph.tensor_bytes.tolist() == [48, 3]
    assert graph.dtypes == ("string", "float32")


def test_a_sequence_has_0_bytes_and_a_warning(read_text) -> None:
    text = "g (float[4, 2] x) => (seq(float[2, 2]) s) { k = Constant<value = int64 {2}>() s = SplitToSequence(x, k) }"
    model = read_text(text)
    assert model.graph.tensor_bytes.tolist() == [0]
    assert model.warnings == (
        "op 'SplitToSequence_1' (SplitToSequence): the size of a sequence, optional or map is not known; 0 bytes are taken",
    )


def test_unknown_operators_get_a_default_cost_and_one_warning_names_their_types(read_text) -> None:
    model = read_text(
        '<ir_version: 8, opset_import: ["": 17, "my.ops": 1]>\n'
        "g (float[2, 3] x, float[3] z) => (y) { a = my.ops.Foo(x, z)  b = my.ops.Foo(a, z)  y = my.ops.Bar(b) }"
    )
    assert model.graph.op_types == ("my.ops::Foo", "my.ops::Foo", "my.ops::Bar")
    assert model.graph.flops.tolist() == [6, 6, 6]
    assert model.graph.bytes_accessed.tolist() == [24 + 12 + 24, 24 + 12 + 24, 24 + 24]
    assert model.warnings == (
        "tensor 'a' and 2 more: the shape depends on the data or on an unknown op, or the op cannot take these sizes; "
        "the size of the largest input of the op is taken",
        "no cost is known for my.ops::Bar, my.ops::Foo; 1 FLOP per output element and all bytes moved are taken",
    )


def test_the_dtype_of_an_op_is_the_one_that_it_computes_in(read_text) -> None:
    text = """g (bool[4] c, float16[4] h, int64[2] i, uint8[4, 4] q, float[4] f, bfloat16[4] b)
          => (float16[4] y, float[2] g, int32[4, 4] m, int8[4] n, bfloat16[4] o)
        { y = Where(c, h, h)  g = Gather(f, i)  m = MatMulInteger(q, q)  n = Cast<to = 3>(f)  o = Relu(b) }"""
    graph = read_text(text).graph
    assert graph.dtypes == ("float16", "float32", "uint8", "float32", "bfloat16")
