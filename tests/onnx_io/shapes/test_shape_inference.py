"""Shapes through computed targets, unknown ops, data-dependent sizes and bodies."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo


def results(model, op: str) -> str:
    """The outputs in the signature of an op."""
    return model.graph.signatures[model.graph.op_index[op]].split("->")[1].split("{")[0]


def test_a_shape_that_the_model_computes_is_followed(read_text) -> None:
    text = """g (float[B, S, 8] x) => (float[B, S, 2, 4] y, float[B, S, 8] z)
        <int64[2] both = {0, 1}, int64[2] heads = {2, -1}, int64 last = {2}>
        { s = Shape(x)  front = Gather(s, both)  target = Concat<axis = 0>(front, heads)  y = Reshape(x, target)
          width = Gather(s, last)  one = Constant<value = int64[1] {0}>()  w = Unsqueeze(width, one)
          t = Concat<axis = 0>(front, w)  z = Expand(x, t) }"""
    model = read_text(text, B=3, S=7)
    assert results(model, "Reshape_1") == "(float32[3,7,2,4])"
    assert results(model, "Expand_1") == "(float32[3,7,8])"
    assert model.warnings == ()


def test_a_declared_shape_counts_after_an_op_that_onnx_does_not_know(read_text) -> None:
    text = """g (float[B, 8] x) => (float[B, 2] y) <float[B, 5] a, int64[?, 3] b>
        { a, b = my.ops.Foo(x)  c = Relu(a)  d = Relu(b)  y = my.ops.Bar(c, d) }"""
    model = read_text('<ir_version: 8, opset_import: ["": 17, "my.ops": 1]>' + text, B=4)
    assert results(model, "Foo_1") == "(float32[4,5],int64[10,3])"  # 32 elements of x over 3
    assert results(model, "Relu_1") == "(float32[4,5])"
    assert results(model, "Bar_1") == "(float32[4,2])"
    assert model.warnings[0].startswith("tensor 'b': the shape depends on the data or on an unknown op")


def test_a_size_that_depends_on_the_data_is_bounded_by_the_largest_input(read_text) -> None:
    text = "g (float[6, 4] x, bool[6] c) => (float[N, 4] y) { a = Compress<axis = 0>(x, c) y = Relu(a) }"
    model = read_text(text)
    assert results(model, "Relu_1") == "(float32[6,4])"
    assert len(model.warnings) == 1


def test_a_window_that_is_larger_than_its_input_has_the_size_of_the_largest_input(read_text) -> None:
    text = """g (float[1, 1, N] x) => (float[1, 1, K] y) <float[1, 1, 5] w = {1, 1, 1, 1, 1}>
        { a = Conv(x, w) y = Relu(a) }"""
    model = read_text(text)
    assert results(model, "Relu_1") == "(float32[1,1,5])"
    assert model.graph.flops.min() >= 0
    assert "or the op cannot take these sizes" in model.warnings[1]
    assert results(read_text(text, N=7), "Relu_1") == "(float32[1,1,3])"


def test_a_loop_stacks_a_row_per_trip_and_feeds_its_body(read_text) -> None:
    text = """g (float[B, 4] x) => (float[B, 4] y, float[5, B, 4] rows)
        { m = Constant<value = int64 {5}>()  on = Constant<value = bool {1}>()  w = Exp(x)
          y, rows = Loop(m, on, x) <body = b (int64 i, bool c, a) => (bool c2, a2, r)
            { c2 = Identity(c)  a2 = Mul(a, w)  r = Relu(a2) }> }"""
    model = read_text(text, B=3)
    assert results(model, "Loop_1") == "(float32[3,4],float32[5,3,4])"
    assert model.graph.flops.tolist() == [12, 5 * (12 + 12)]
    assert model.graph.bytes_accessed[1] == 5 * (3 * 48 + 2 * 48)
    assert model.warnings == ()


@pytest.mark.parametrize("trips", ["n", "huge", ""])
def test_a_loop_with_an_unknown_trip_count_costs_one_trip_with_a_warning(read_text, trips: str) -> None:
    text = f"""g (float[2, 4] x, int64 n, bool on) => (float[2, 4] y, rows) <int64 huge = {{9223372036854775807}}>
        {{ k = Neg(n)
          y, rows = Loop({trips}, on, x) <body = b (int64 i, bool c, a) => (bool c2, a2, r)
            {{ c2 = Identity(c)  a2 = Exp(a)  r = Relu(a2) }}> }}"""
    model = read_text(text)
    assert model.graph.flops.tolist() == [16]
    assert results(model, "Loop_1") == "(float32[2,4],float32[1,2,4])"
    assert model.warnings == ("op 'Loop_1' (Loop): how often the body runs depends on the data; once is taken",)


def test_a_scan_runs_along_its_axes(read_text, run_both) -> None:
    text = """g (float[2] x, float[2, 7, 3] q) => (float[2] y, float[2, 3, 7] z)
        { y, z = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
            body = b (float[2] a, float[2, 3] e) => (float[2] a2, float[2, 3] o) { a2 = Exp(a)  o = Neg(e) }>(x, q) }"""
    model = read_text(text)
    assert results(model, "Scan_1") == "(float32[2],float32[2,3,7])"
    assert model.graph.flops.tolist() == [7 * (2 + 6)]
    out = run_both(model, {"x": np.zeros(2, np.float32), "q": np.zeros((2, 7, 3), np.float32)})
    assert [o.shape for o in out] == [(2,), (2, 3, 7)]


def test_a_scan_of_opset_8_runs_over_batch_and_steps(read_text) -> None:
    text = """g (float[5, 2] x, float[5, 7, 3] q) => (float[5, 2] y, float[5, 7, 3] z)
        { y, z = Scan<num_scan_inputs = 1,
            body = b (float[2] a, float[3] e) => (float[2] a2, float[3] o) { a2 = Exp(a)  o = Neg(e) }>(, x, q) }"""
    model = read_text('<ir_version: 4, opset_import: ["": 8]>\n' + text)
    assert results(model, "Scan_1") == "(float32[5,2],float32[5,7,3])"
    assert model.graph.flops.tolist() == [5 * 7 * (2 + 3)]


def test_a_scan_that_states_too_few_axes_takes_the_first_one(read_text) -> None:
    text = """g (float x, float[7] q, float[7] r) => (float y, float[7] z) { y, z = Scan<num_scan_inputs = 2, scan_input_axes = [0],
        body = b (float a, float e, float f) => (float a2, float o) { a2 = Add(a, f)  o = Neg(e) }>(x, q, r) }"""
    assert results(read_text(text), "Scan_1") == "(float32[],float32[7])"


BRANCHES = """<then_branch = t () => (p) { p = Exp(a) }, else_branch = e () => (q)
    { r = Concat<axis = 0>(a, w)  s = Neg(r)  q = Relu(s) }> }"""


def test_an_if_captures_values_and_costs_its_more_expensive_branch(read_text) -> None:
    text = "g (float[2, 4] x, bool on) => (y) <float[3, 4] w = {1,2,3,4,1,2,3,4,1,2,3,4}> { a = Exp(x) y = If(on) "
    model = read_text(text + BRANCHES)
    graph = model.graph
    assert (graph.op_types, graph.successors.tolist()) == (("Exp", "If"), [1])
    assert results(model, "If_1") == "(float32[5,4])"
    assert graph.flops.tolist() == [8, 20 + 20]
    assert graph.bytes_accessed[1] == (32 + 48 + 80) + 160 + 160
    assert graph.memory_bytes.tolist() == [0, 48]
    assert model.warnings == ("op 'If_1' (If): which branch runs depends on the data; the more expensive one is taken",)


def test_an_if_on_a_constant_costs_the_branch_that_runs(read_text) -> None:
    text = (
        "g (float[2, 4] x) => (y) <bool on = {1}, float[3, 4] w = {1,2,3,4,1,2,3,4,1,2,3,4}> { a = Exp(x) y = If(on) "
    )
    model = read_text(text + BRANCHES)
    assert model.graph.flops.tolist() == [8, 8]
    assert results(model, "If_1") == "(float32[2,4])"
    assert model.warnings == ()


def test_an_if_on_an_empty_constant_is_read(read_text) -> None:
    text = "g (float[2] x) => (float[2] y) <bool[0] on = {}, float[2] a = {1, 2}, float[3, 2] w = {1,2,3,4,5,6}> { y = If(on) "
    assert read_text(text + BRANCHES).graph.op_types == ("If",)


def test_an_input_without_a_shape_is_a_scalar_with_a_warning(read_text) -> None:
    model = read_text("g (x, float[2] z) => (float[2] y) { a = Relu(x) y = Add(a, z) }")
    proto = onnx.load(model.path)
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(proto, model.path)
    model = read_onnx(model.path)
    assert model.graph.tensor_bytes.tolist() == [4, 8]
    assert model.warnings[0] == "input 'x' has no shape; a scalar is taken"


@given(st.lists(st.integers(0, 9), max_size=4))
def test_bytes_of_packed_dtypes_are_rounded_up(shape: list[int]) -> None:
    size = int(np.prod(shape))
    assert TensorInfo(ir.DataType.FLOAT, tuple(shape)).bytes == 4 * size
    assert TensorInfo(ir.DataType.UINT4, tuple(shape)).bytes == -(-size // 2)
    assert TensorInfo(ir.DataType.STRING, tuple(shape)).bytes == 16 * size
    assert TensorInfo(None, tuple(shape)).bytes == 0


def test_small_models_of_many_ops_are_read_in_one_pass(read_text) -> None:
    body = " ".join(f"s{i} = Shape(a{i}) r{i} = Reshape(a{i}, s{i}) a{i + 1} = Relu(r{i})" for i in range(500))
    model = read_text(f"g (float[B, 4] x) => (float[B, 4] y) {{ a0 = Neg(x) {body} y = Exp(a500) }}", B=2)
    assert model.graph.num_ops == 1502
    assert set(model.graph.tensor_bytes.tolist()) == {32, 16}
    assert model.warnings == ()
