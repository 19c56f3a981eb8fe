"""Inlined functions, sorted graphs, unique names and captured values."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.folding import captured_values, values_read
from gnnplace.onnx_io.normalise import name_nodes
from gnnplace.onnx_io.read import read_onnx

HEAD = '<ir_version: 8, opset_import: ["": 17, "f": 1]>\n'
X = {"x": np.array([2, -3], np.float32)}


def test_functions_are_inlined_at_every_call_also_from_functions_and_branches(read_text, run_both) -> None:
    text = """g (float[2] x, bool on) => (float[2] y)
        { a = f.scaled<factor = 3.0>(x)
          b = If(on) <then_branch = t () => (float[2] p) { p = f.twice(a) }, else_branch = e () => (float[2] q) { q = Neg(a) }>
          y = f.twice(b) }
        <domain: "f", opset_import: ["": 17, "f": 1]> scaled <factor> (a) => (b)
        { k = Constant<value_float: float = @factor>() c = Mul(a, k) b = f.twice(c) }
        <domain: "f", opset_import: ["": 17]> twice (a) => (b) { b = Add(a, a) }"""
    model = read_text(HEAD + text)
    assert model.graph.op_types == ("Mul", "Add", "If", "Add")
    assert not model.model.functions
    names = [node.name for node in model.model.graph.all_nodes()]
    assert len(set(names)) == len(names)
    assert run_both(model, {**X, "on": np.array(True)})[0].tolist() == [48, -72]


def test_a_function_of_another_opset_is_inlined_where_its_ops_mean_the_same(read_text, run_both) -> None:
    text = """g (float[2] x) => (float[2] y) { y = f.twice(x) }
        <domain: "f", opset_import: ["": 16]> twice (a) => (b) { b = Add(a, a) }"""
    model = read_text(HEAD + text)
    assert model.graph.op_types == ("Add",)
    run_both(model, X)


def test_a_function_whose_opset_has_another_meaning_is_refused_in_one_line(read_text) -> None:
    function = '<domain: "f", opset_import: ["": 12]> twice (a) => (b) { b = ReduceSum<axes = [0]>(a) }'
    with pytest.raises(UnsupportedModel, match="a local function cannot be inlined") as problem:
        read_text(HEAD + "g (float[2] x) => (float[2] y) { y = f.twice(x) }\n" + function)
    assert "\n" not in str(problem.value)


def test_functions_with_bodies_may_be_inlined_twice(read_text, run_both) -> None:
    text = """g (float[2] x, bool on) => (float[2] y) { a = f.pick(x, on) b = Not(on) y = f.pick(a, b) }
        <domain: "f", opset_import: ["": 17]> pick (a, c) => (b)
        { h = Exp(a) b = If(c) <then_branch = t () => (p) { p = Add(h, a) }, else_branch = e () => (q) { q = Mul(h, a) }> }"""
    model = read_text(HEAD + text)
    assert sorted(model.graph.op_types) == ["Exp", "Exp", "If", "If", "Not"]
    run_both(model, {**X, "on": np.array(False)})


def test_what_only_bodies_of_unused_nodes_capture_is_unused(read_text, run_both) -> None:
    text = """g (float[2] x, bool on) => (float[2] y)
        { a = Exp(x)  b = Abs(a)
          d = If(on) <then_branch = t () => (float[2] p)
                { p = If(on) <then_branch = s () => (float[2] u) { u = Neg(b) }, else_branch = r () => (float[2] v) { v = Neg(a) }> },
                      else_branch = e () => (float[2] q) { q = Identity(x) }>
          y = Sin(x) }"""
    model = read_text(text)
    assert model.graph.op_types == ("Sin",)
    run_both(model, {"x": np.array([2, -3], np.float32), "on": np.array(True)})


def test_unnamed_and_equally_named_nodes_get_names_of_their_own_everywhere(tmp_path) -> None:
    text = """g (float[2] x, bool on) => (float[2] y)
        { a = Relu(x)  b = Relu(a)  c = Relu(b)  d = Exp(c)
          y = If(on) <then_branch = t () => (float[2] p) { p = Relu(d) }, else_branch = e () => (float[2] q) { q = Exp(d) }> }"""
    proto = onnx.parser.parse_model(HEAD + text)
    nodes = proto.graph.node
    for node, name in zip(nodes, ["same", "same", "", "same_2"], strict=False):
        node.name = name
    nodes[4].attribute[0].g.node[0].name = "same"
    onnx.save(proto, tmp_path / "names.onnx")
    first, second = (read_onnx(tmp_path / "names.onnx") for _ in range(2))
    assert first.graph.op_names == ("same", "same_3", "Relu_1", "same_2", "If_1")
    assert [node.name for node in first.model.graph.all_nodes()][5:] == ["same_4", "Exp_1"]
    assert second.graph.op_names == first.graph.op_names


def test_naming_many_equal_nodes_is_linear_and_unique() -> None:
    x = ir.val("x", dtype=ir.DataType.FLOAT, shape=[1])
    nodes = [ir.node("Relu", [x], name="n" if i % 2 else "") for i in range(20_000)]
    graph = ir.Graph([x], [], nodes=nodes, opset_imports={"": 17})
    name_nodes(graph)
    assert len({node.name for node in graph}) == 20_000
    assert {nodes[1].name, nodes[3].name, nodes[0].name} == {"n", "n_2", "Relu_1"}


def test_captured_values_are_found_through_bodies_in_bodies_and_as_results() -> None:
    text = """g (float[2] x, bool on) => (float[2] y)
        { a = Relu(x)  b = Exp(x)  c = Neg(x)
          y = If(on) <then_branch = t () => (float[2] p)
            { p = If(on) <then_branch = t2 () => (float[2] r) { s = Add(a, b) r = Mul(s, a) }, else_branch = e2 () => (float[2] c) { }> },
            else_branch = e () => (float[2] q) { q = Exp(b) }> }"""
    proto = onnx.parser.parse_model(HEAD + text)
    node = ir.from_proto(proto).graph[3]
    assert {value.name for value in captured_values(node)} == {"a", "b", "c", "on"}
    assert [value.name for value in values_read(node)] == ["on", *(value.name for value in captured_values(node)[1:])]
