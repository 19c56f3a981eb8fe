"""Constant folding: what is folded computes the same bits, and nothing else is folded."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from gnnplace.onnx_io import folding
from gnnplace.onnx_io.read import read_onnx
from tests.onnx_io.texts import parsed


def head(opset: int) -> str:
    return f'<ir_version: 8, opset_import: ["": {opset}]>\n'


X = {"x": np.array([2, -3], np.float32)}

# Chains of constants, by opset; each ends in `g`, which is joined to the input.
CHAINS = {
    "arithmetic": (17, "a = Add(p, q) b = Sub(a, q) c = Mul(b, p) d = Div(c, q) e = Neg(d) f = Abs(e) g = Sqrt(f)"),
    "rounding": (17, "a = Floor(p) b = Ceil(q) g = Add(a, b)"),
    "signs": (17, "a = Sign(j) b = Max(a, j, k) c = Min(b, k) d = Add(b, c) g = Cast<to = 1>(d)"),
    "comparing": (17, """a = Less(p, q) b = Greater(q, p) c = And(a, b) d = Or(a, c) e = Not(d) f = Xor(e, a)
        g = Where(f, p, q)"""),
    "equal": (17, "a = Equal(p, q) b = LessOrEqual(p, q) c = GreaterOrEqual(p, q) d = And(a, b) g = Where(d, p, q)"),
    "integers": (17, "a = Div(j, k) b = Mod(j, k) c = Add(a, b) d = Mul(c, k) e = Sub(d, j) g = Cast<to = 1>(e)"),
    "reducing": (13, """a = ReduceProd<keepdims = 0>(k) b = ReduceMax<keepdims = 0>(j) c = ReduceSum<keepdims = 0>(j)
        d = Add(a, b) e = Sub(d, c) f = ReduceMin(k) h = Mul(e, f) g = Cast<to = 1>(h)"""),
    "old shapes": (9, """a = Unsqueeze<axes = [0]>(p) b = Concat<axis = 0>(a, a)
        c = Slice<axes = [1], starts = [1], ends = [2]>(b) g = Squeeze<axes = [1]>(c)"""),
    "new shapes": (17, """a = Unsqueeze(p, zero) b = Concat<axis = 0>(a, a) c = Slice(b, one, two, one) d = Squeeze(c, one)
        s = Shape<start = -1>(b) e = Expand(d, s) g = Reshape(e, s)"""),
    "gathering": (17, """a = Gather(p, one) b = Transpose(a) c = Flatten(b) d = Reshape(c, minus)
        e = GatherElements(p, zero) f = GatherND(d, zero) h = Mul(f, e) g = Tile(h, two)"""),
    "ranges": (17, """z = Size(p) s = Constant<value = int64 {0}>() i = Constant<value = int64 {1}>() a = Range(s, z, i)
        b = ConstantOfShape<value = int64[1] {7}>(two) c = Mul(a, b) d = CumSum(c, s) g = Cast<to = 1>(d)"""),
    "splitting": (13, """a, b = Split<axis = 0>(p) c = Concat<axis = 0>(b, a) d = NonZero(c) e = Cast<to = 1>(d)
        f = Squeeze(e, zero) i = Unsqueeze(one, zero) g = ScatterND(f, i, nine)"""),
}  # fmt: skip
CONSTANTS = {
    "p": np.array([2.5, -7.25], np.float32), "q": np.array([-0.3, 4.0], np.float32), "nine": np.array([9], np.float32),
    "j": np.array([-7, 9]), "k": np.array([2, -4]),
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "minus": np.array([-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_constants_is_folded_to_what_the_runtime_computes(name: str, tmp_path: Path, run_both) -> None:
    opset, chain = CHAINS[name]
    proto = onnx.parser.parse_model(head(opset) + f"g (float[2] x) => (float[N] y) {{ {chain} y = Add(x, g) }}")
    proto.graph.initializer.extend(numpy_helper.from_array(value, key) for key, value in CONSTANTS.items())
    onnx.save(proto, tmp_path / "chain.onnx")
    model = read_onnx(tmp_path / "chain.onnx")
    assert model.graph.op_types == ("Add",)
    run_both(model, X)


KEPT = {
    "random and quantising ops": (17, """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, int8[2] q = {3, 4}, float scale = {0.5}>
        { a = RandomNormalLike(w)  b = RandomUniform<shape = [2]>()  c = DequantizeLinear(q, scale)  d = Bernoulli(w)
          y = Sum(x, a, b, c, d) }""", ("RandomNormalLike", "RandomUniform", "DequantizeLinear", "Bernoulli", "Sum")),
    "functions that are not exact": (
        9, "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Exp(w) b = Softmax(a) y = Add(x, b) }",
        ("Exp", "Softmax", "Add")),
    "signs of zeros and of NaN": (
        17, """g (float[2] x) => (float[2] y) <float[2] w = {0, 1}, float[2] v = {-0.0, 2}>
        { a = Max(w, v) b = Min(w, v) c = Sign(w) y = Sum(x, a, b, c) }""",
        ("Max", "Min", "Sign", "Sum")),
    "a range of floats, which runtimes add up": (
        17, """g (float[1] x) => (float[?] y) <float s = {0}, float t = {1}, float d = {0.1}>
        { r = Range(s, t, d) y = Add(x, r) }""",
        ("Range", "Add")),
    "a sum of integers that doubles cannot represent": (
        17, """g (int64 x) => (int64 y) <int64[2] w = {4611686018427387904, 1}> { r = ReduceSum<keepdims = 0>(w) y = Add(x, r) }""",
        ("ReduceSum", "Add")),
    "a squeeze of no axes, which runtimes read as all": (
        17, """g (float[4] x) => (float[4] y) <float[1, 4] w = {1, 2, 3, 4}, int64[0] none = {}>
        { r = Squeeze(w, none) y = Add(x, r) }""",
        ("Squeeze", "Add")),
    "identity and dropout of data": (
        17, "g (float[2] x) => (float[2] y) { a = Identity(x) b = Dropout(a) y = Identity(b) }",
        ("Identity", "Dropout", "Identity")),
    "a malformed node, which the runtime refuses": (
        17, "g (float[2] x) => (float[2] y) <float[2] v = {1, 2}, float[3] w = {1, 2, 3}> { a = Add(v, w) y = Mul(x, a) }",
        ("Add", "Mul")),
    "a constant that is a result": (
        17, "g (float[2] x) => (float[2] y, float[2] c) { c = Constant<value = float[2] {1, 2}>() y = Add(x, c) }",
        ("Constant", "Add")),
    "a fill of two values, and one whose size overflows": (
        17, """g (float[1] x) => (float[?, ?, ?] y) <int64[2] few = {1, 1}, int64[3] huge = {4294967296, 4294967296, 0}>
        { n = ConstantOfShape<value = float[2] {1, 2}>(few) t = ConstantOfShape(huge) y = Sum(x, n, t) }""",
        ("ConstantOfShape", "ConstantOfShape", "Sum")),
    "text": (
        17, "g (int64 i) => (string t) <float[2] w = {1, 2}> { a = Cast<to = 8>(w) t = Gather(a, i) }", ("Cast", "Gather")),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_nodes_that_folding_must_not_change_stay(name: str, read_text) -> None:
    opset, text, op_types = KEPT[name]
    model = read_text(head(opset) + text)
    assert model.graph.op_types == op_types


def test_an_identity_of_a_weight_is_that_weight(read_text, run_both) -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { v = Identity(w) a = Add(x, w) y = Mul(a, v) }"
    model = read_text(text)
    assert model.graph.op_types == ("Add", "Mul")
    assert model.graph.weight_bytes.tolist() == [8]
    run_both(model, X)


def test_an_identity_stays_where_a_body_gives_the_weights_name_to_a_value_of_its_own(read_text, run_both) -> None:
    text = """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, int64 n = {3}, bool go = {1}>
        { i = Identity(w) a = Neg(x)
          y = Loop(n, go, a) <body = b (int64 k, bool c, float[2] w) => (bool d, float[2] o) { d = Identity(c) o = Add(w, i) }> }"""
    model = read_text(text)
    assert model.graph.op_types == ("Identity", "Neg", "Loop")
    run_both(model, X)


def test_the_default_of_an_overridable_input_is_no_constant(read_text, run_both) -> None:
    model = read_text("g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { a = Neg(w) y = Add(x, a) }")
    assert model.graph.op_types == ("Neg", "Add")
    assert run_both(model, {**X, "w": np.array([5, 5], np.float32)})[0].tolist() == [-3, -8]


def test_constants_of_every_kind_become_initialisers(read_text, run_both) -> None:
    text = """g (float[2] x) => (float[2] y, string[2] t) { a = Constant<value_float = 2.0>() b = Constant<value_floats = [1.0, 2.0]>()
        c = Constant<value_ints = [1]>() d = Unsqueeze(x, c) e = Constant<value_int = 0>() f = Constant<value_strings = ["p", "q"]>()
        g = Gather<axis = 1>(d, e) h = Add(g, a) y = Mul(h, b) t = Identity(f) }"""
    model = read_text(text)
    assert "Constant" not in model.graph.op_types
    run_both(model, X)


def test_a_branch_reads_a_value_that_was_folded_outside(read_text, run_both) -> None:
    text = """g (float[2] x, bool on) => (float[2] y) <float[2] w = {1, 2}>
        { v = Neg(w)
          y = If(on) <then_branch = t () => (float[2] p) { p = Add(x, v) }, else_branch = e () => (float[2] q) { q = Mul(x, v) }> }"""
    model = read_text(text)
    assert model.graph.op_types == ("If",)
    assert model.graph.memory_bytes.tolist() == [8]
    assert run_both(model, {**X, "on": np.array(True)})[0].tolist() == [1, -5]


def test_dead_code_is_removed_with_its_weights(read_text) -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { dead = Mul(x, w) deader = Exp(dead) y = Neg(x) }"
    model = read_text(text)
    assert model.graph.op_types == ("Neg",)
    assert not model.model.graph.initializers


@pytest.mark.parametrize(
    ("node", "kept"),
    [
        ("a = Expand(one, shape)", ("Expand", "Add")),
        ("a = Tile(one, shape)", ("Tile", "Add")),
        ("a = Gather(row, rows)", ("Gather", "Add")),
        ("a = GatherND(row, pairs)", ("GatherND", "Add")),
        ("r = Range(zero, many, step) a = Cast<to = 1>(r)", ("Range", "Cast", "Add")),
        ("a = Add(column, row)", ("Add", "Add")),
    ],
)
def test_a_result_that_would_make_the_model_large_is_not_folded(node: str, kept: tuple[str], tmp_path: Path) -> None:
    # The results have up to 4 TiB: evaluating them to see their size is no option.
    constants = {
        "one": np.ones((1, 1), np.float32), "shape": np.array([2**20, 2**20]), "rows": np.zeros(2**20, np.int64), "pairs": np.zeros((2**20, 1), np.int64),
        "zero": np.array(0), "many": np.array(2**40), "step": np.array(1),
        "row": np.ones((1, 2**20), np.float32), "column": np.ones((2**20, 1), np.float32),
    }  # fmt: skip
    text = f"g (float[1] x) => (float[?, ?] y) {{ {node} y = Add(x, a) }}"
    onnx.save(parsed(text, **constants), tmp_path / "large.onnx")
    assert read_onnx(tmp_path / "large.onnx").graph.op_types == kept


def test_nonzero_of_a_scalar_stays_for_the_runtime(tmp_path: Path) -> None:
    text = "g (float[1] x) => (int64[?, ?] y, float[1] z) { n = NonZero(c) y = Identity(n) z = Neg(x) }"
    onnx.save(parsed(text, c=np.array(3.0, np.float32)), tmp_path / "m.onnx")
    assert "NonZero" in read_onnx(tmp_path / "m.onnx").graph.op_types


def test_the_limit_of_a_result_counts_bytes_before_it_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, evaluate = list[int](), folding.evaluate

    def noted(node: ir.Node, opset: int, arrays: list[np.ndarray]) -> object:
        computed.append(arrays[0].itemsize)
        return evaluate(node, opset, arrays)

    monkeypatch.setattr(folding, "evaluate", noted)
    text = "g (float[1] x) => (float[?] y) { a = Expand(one, shape) b = Cast<to = 1>(a) y = Add(x, b) }"
    for dtype in (np.int32, np.int64):  # 2^18 numbers of 8 bytes exceed the limit of 1 MiB
        onnx.save(parsed(text, one=np.ones(1, dtype), shape=np.array([2**18])), tmp_path / "m.onnx")
        read_onnx(tmp_path / "m.onnx")
    assert 4 in computed
    assert 8 not in computed


def test_a_large_weight_that_others_read_too_is_not_stored_twice(tmp_path: Path) -> None:
    for readers, types in (
        ("y = MatMul(x, t)", ("MatMul",)),
        ("a = MatMul(x, w) y = MatMul(a, t)", ("Transpose", "MatMul", "MatMul")),
    ):
        text = f"g (float[1, 600] x) => (float[1, 600] y) {{ t = Transpose(w) {readers} }}"
        onnx.save(parsed(text, w=np.ones((600, 600), np.float32)), tmp_path / "model.onnx")
        assert read_onnx(tmp_path / "model.onnx").graph.op_types == types


def test_fills_are_folded_until_the_model_would_no_longer_fit_a_file(
    read_text, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """g (float[100] x) => (float[100] y) <int64[1] n = {100}>
        { a = ConstantOfShape(n) b = ConstantOfShape<value = float[1] {2}>(n) y = Sum(x, a, b) }"""
    assert read_text(text).graph.op_types == ("Sum",)
    monkeypatch.setattr(folding, "FILL_LIMIT_BYTES", 500)
    assert read_text(text).graph.op_types == ("ConstantOfShape", "Sum")
