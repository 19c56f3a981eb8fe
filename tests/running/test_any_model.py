"""Unusual models, cut at the hardest places, have the outputs of one plain session of the file."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import gnnplace
from gnnplace.errors import InvalidPlacement
from gnnplace.onnx_io.manifest import MANIFEST
from gnnplace.placement import Placement
from gnnplace.running.session import PARTS, Session
from tests.placed_texts import HEAD, Case, assert_equal, numbers, place, plain, saved

pytestmark = pytest.mark.usefixtures("needs_two_cores")

X = {"x": numbers(3, 4)}
WEIGHTS_AS_INPUTS = """g (float[3, 4] x, float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] b = {1, -1}) => (float[3, 2] y)
        { a = MatMul(x, w)  c = Add(a, b)  d = Softmax(c)  e = Add(d, b)  y = Neg(e) }"""
CASES = {
    "weights_read_on_both_devices_and_in_a_body": Case(
        """g (float[N, 4] x, bool on) => (float[N, 4] y) <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}>
        { a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)
          d = If (on) <then_branch = t () => (float[N, 4] p) { p = MatMul(c, w) },
                       else_branch = e () => (float[N, 4] q) { q = Identity(w) }>
          y = Add(d, a) }""",
        ({**X, "on": np.array(True)}, {"x": numbers(4, 4), "on": np.array(False)}),
    ),
    "weights_as_inputs_of_an_old_model": Case(f'<ir_version: 3, opset_import: ["": 9]> {WEIGHTS_AS_INPUTS}', (X,)),
    "weights_that_callers_may_replace": Case(
        f'<ir_version: 4, opset_import: ["": 9]> {WEIGHTS_AS_INPUTS}',
        (X, {**X, "b": numbers(2)}, {**X, "w": numbers(4, 2)}),
    ),
    "initialisers_and_inputs_as_outputs": Case(
        """g (float[3, 4] x, float[4] k = {5, 6, 7, 8}) => (float[3, 4] y, float[4] w, float[3, 4] x, float[4] k, float[4] f)
        <float[4] w = {1, 2, 3, 4}, float[4] s = {1, 1, 1, 1}>
        { f = Add(w, s)  a = Add(x, w)  b = Mul(a, k)  c = Sub(b, f)  y = Neg(c) }""",
        (X, {**X, "k": numbers(4)}),
    ),
    "absent_inputs_and_outputs": Case(
        """g (float[5, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[1, 2, 4] y, float[1, 2, 8] z)
        <float limit = {0.5}, float[3] scales = {1, 1, 2}>
        { a = Clip(x, , limit)  , h, c = LSTM<hidden_size=4>(a, w, r)
          , , d = LSTM<hidden_size=4>(a, w, r, , , h, c)  y = Add(h, d)  z = Resize<mode="nearest">(y, , scales) }""",
        ({"x": numbers(5, 2, 3), "w": numbers(1, 16, 3), "r": numbers(1, 16, 4)},),
    ),
    "names_that_several_bodies_use": Case(
        """g (float[N, 4] x, bool on) => (float[N, 4] y)
        { a = Relu(x)  b = Neg(a)
          c = If (on) <then_branch = t () => (float[N, 4] p) { [n] q = Exp(a)  [m] p = Add(q, b) },
                       else_branch = e () => (float[N, 4] p) { [n] q = Neg(b)  [m] p = Mul(q, a) }>
          d = If (on) <then_branch = t () => (float[N, 4] p) { [n] q = Abs(c)  [m] p = Add(q, b) },
                       else_branch = e () => (float[N, 4] p) { [n] q = Neg(c)  [m] p = Mul(q, a) }>
          y = Add(c, d) }""",
        ({**X, "on": np.array(True)}, {**X, "on": np.array(False)}),
    ),
    "captured_three_levels_deep": Case(
        """g (float[2] x, bool on) => (float[2] y) <float[2] w = {3, 4}, int64 trips = {3}, bool go = {1}, float[2] v = {1, 2}>
        { a = Exp(x)  b = Neg(a)  u = Abs(b)
          c = If (on) <
            then_branch = t () => (float[2] p) {
              m = Add(a, b)
              p = Loop (trips, go, m) <body = l (int64 i, bool k, float[2] s) => (bool still, float[2] r) {
                  still = Identity(k)
                  j = Mul(s, m)
                  r = If (on) <then_branch = tt () => (float[2] o) { n = Add(u, w)  o = Sub(n, j) },
                               else_branch = ee () => (float[2] o) { o = Add(b, j) }> }> },
            else_branch = e () => (float[2] q) { q = Mul(u, v) }>
          y = Add(c, a) }""",
        ({"x": numbers(2), "on": np.array(True)}, {"x": numbers(2), "on": np.array(False)}),
    ),
    "operators_of_onnx_runtime": Case(
        """g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) <float[4] b = {1, 2, 3, 4}, float[4] s = {1, 1, 2, 2}>
        { a = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(x, x)  m = com.microsoft.FusedMatMul(a, x)
          c = com.microsoft.BiasGelu(m, b)  d = com.microsoft.QuickGelu<alpha=1.5>(c)
          y, , , z = com.microsoft.SkipLayerNormalization(d, c, s, b) }""",
        (X, {"x": numbers(6, 4)}),
    ),
    "sequences_and_optionals": Case(
        """g (seq(float[2, 2]) q, float[2, 2] x, int64 at) => (seq(float[2, 2]) r, float[2, 2] y, int64 count)
        { a = Relu(x)  s = SequenceInsert(q, a)  t = SequenceInsert(s, x)  r = SequenceErase(t, at)
          count = SequenceLength(r)  o = Optional(a)  has = OptionalHasElement(o)
          e = OptionalGetElement(o)  f = Cast<to=1>(has)  g = SequenceAt(r, at)  h = Mul(e, f)  y = Add(g, h) }""",
        ({"q": [numbers(2, 2)], "x": numbers(2, 2), "at": np.array(0)},),
    ),
    "maps": Case(
        """g (float[N, 3] x) => (seq(map(int64, float)) m)
        { a = Relu(x)  b = Neg(a)  m = ai.onnx.ml.ZipMap<classlabels_int64s=[7, 8, 9]>(b) }""",
        ({"x": numbers(2, 3)},),
    ),
    "maps_across_the_cut": Case(
        """g (map(int64, float) m, float[1, 3] x) => (float[1, 3] y)
        { v = ai.onnx.ml.DictVectorizer<int64_vocabulary=[7, 8, 9]>(m)  n = Neg(v)  y = Add(n, x) }""",
        ({"m": {7: 1.0, 9: 2.5}, "x": numbers(1, 3)},),
    ),
    "maps_in_a_body": Case(
        """g (map(int64, float) m, float[1, 3] x, bool on) => (float[1, 3] y)
        { a = Relu(x)
          d = If (on) <then_branch = t () => (float[1, 3] p) { v = ai.onnx.ml.DictVectorizer<int64_vocabulary=[7, 8, 9]>(m)  p = Add(v, a) },
                       else_branch = e () => (float[1, 3] q) { q = Neg(a) }>
          y = Add(d, x) }""",
        ({"m": {7: 1.0, 9: 2.5}, "x": numbers(1, 3), "on": np.array(True)},),
    ),
    "shapes_that_differ_from_run_to_run": Case(
        """g (float[N, 4] x, float[M, 4] z) => (float[N, M] y, int64[2, K] places, float[L] flat)
        <int64[1] all = {-1}>
        { a = Relu(x)  t = Transpose<perm=[1, 0]>(z)  p = MatMul(a, t)  s = Shape(p)  f = Reshape(p, all)
          g = Exp(f)  y = Reshape(g, s)  places = NonZero(a)  w = Abs(y)  flat = Reshape(w, all) }""",
        tuple({"x": numbers(n, 4), "z": numbers(m, 4)} for n, m in ((3, 2), (1, 7), (5, 1), (0, 2), (3, 2))),
    ),
    "a_stated_shape_that_does_not_hold": Case(
        """g (float[N, 4] x, int64[2] s) => (float[A, B] y) <float[1, 4] a, float[1, 4] b, float[1, 4] c>
        { a = Relu(x)  b = Reshape(a, s)  c = Neg(b)  y = Exp(c) }""",
        ({**X, "s": np.array([2, 6])}, {"x": numbers(1, 4), "s": np.array([4, 1])}),
    ),
    "stated_sizes_of_one_run": Case(
        """g (float[A] x, float[N, 4] z, int64 n, int64[1] k) => (float[B] y, int64[1, 3] places, float[2, 4] stacked, float[3, 4] more, float[L, 4] last)
        <bool go = {1}, int64[1] zero = {0}, int64[1] four = {4}, int64[1, 3] nz, int64[3, 1] t, float[3] chosen>
        { a = Neg(x)  nz = NonZero(a)  t = Transpose(nz)  chosen = GatherND(a, t)  b = Abs(chosen)  y = Neg(b)
          c = Neg(nz)  places = Abs(c)
          s = ReduceSum<keepdims=0>(z, zero)
          u, stacked = Loop(n, go, s) <body = o (int64 i, bool c, float[4] v) => (bool d, float[4] w, float[4] r)
              { d = Identity(c)  w = Add(v, s)  r = Neg(v) }>
          e = Abs(stacked)  shape = Concat<axis=0>(k, four)  more = Expand(u, shape)  f = Neg(more)  last = Concat<axis=0>(e, f) }""",
        tuple(
            {
                "x": np.array([1, 0, 2, 3, 0, 5][:n], np.float32),
                "z": numbers(n, 4),
                "n": np.array(n - 2),
                "k": np.array([n - 1]),
            }
            for n in (4, 6, 3)
        ),
    ),
    "outputs_that_are_inputs_with_other_types": Case(
        "g (float[N, 4] x, float[N, 4] z) => (float[N, 4] y, float[3, 4] x, float[M, K] z) { a = Neg(x)  b = Add(a, z)  y = Exp(b) }",
        tuple({"x": numbers(n, 4), "z": numbers(n, 4)} for n in (3, 1)),
    ),
    "sizes_of_zero": Case(
        """g (float[P, 4] past, float[2, 4] x, float[0, 4] none) => (float[Q, 4] y, float[4] total, float[0, 4] still)
        <int64[1] rows = {0}>
        { a = Concat<axis=0>(past, x)  b = Relu(a)  c = Concat<axis=0>(b, none)  y = Neg(c)
          total = ReduceSum<keepdims=0>(past, rows)  still = Exp(none) }""",
        tuple({"past": numbers(p, 4), "x": numbers(2, 4), "none": numbers(0, 4)} for p in (0, 3)),
    ),
    "no_node_at_all": Case(
        "g (float[N, 4] x) => (float[N, 4] x, float[2] w) <float[2] w = {3, 4}> {}",
        (X,),
    ),
}


def placements(num_ops: int) -> Iterator[list[int]]:
    """All ops on one device, alternating devices in both orders, and random devices."""
    yield [0] * num_ops
    yield [op % 2 for op in range(num_ops)]
    yield [(op + 1) % 2 for op in range(num_ops)]
    yield from np.random.default_rng(1).integers(0, 2, (3, num_ops)).tolist()


@pytest.mark.parametrize("name", CASES)
def test_every_placement_runs_like_one_session_from_its_folder_and_from_its_model_file(
    name: str, tmp_path: Path
) -> None:
    model = saved(tmp_path / "model.onnx", CASES[name].proto)
    session = plain(model.path)
    expected = [session.run(None, dict(feed)) for feed in CASES[name].feeds]
    crossed, alone = 0, tmp_path / "alone" / "placed.onnx"
    alone.parent.mkdir()
    for assignment in placements(model.graph.num_ops):
        crossed += place(model, assignment, tmp_path / "out")
        alone.write_bytes((tmp_path / "out" / "placed.onnx").read_bytes())
        for path in (tmp_path / "out", alone):
            with Session(path) as placed:
                for feed, wanted in zip(CASES[name].feeds, expected, strict=True):
                    assert_equal(placed.run(None, feed), wanted)
        assert list(alone.parent.iterdir()) == [alone]  # no other file remains
    assert crossed or model.graph.num_ops < 2


@pytest.mark.parametrize("name", CASES)
def test_the_manifest_suffices_to_run_the_parts_with_onnx_runtime_alone(name: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", CASES[name].proto)
    place(model, [op % 2 for op in range(model.graph.num_ops)], tmp_path)
    manifest = json.loads((tmp_path / PARTS / MANIFEST).read_text())
    sessions = [plain(tmp_path / PARTS / part["file"]) for part in manifest["parts"]]
    for feed in CASES[name].feeds:
        values = dict(feed)
        for part, session in zip(manifest["parts"], sessions, strict=True):
            names = [*part["inputs"], *(name for name in part["optional_inputs"] if name in values)]
            found = session.run(part["outputs"], {name: values[name] for name in names})
            values.update(zip(part["outputs"], found, strict=True))
        assert_equal(
            [values[output["name"]] for output in manifest["outputs"]], plain(model.path).run(None, dict(feed))
        )
    assert all(re.fullmatch(r"part-\d{4}\.onnx", part["file"]) for part in manifest["parts"])


def test_a_constant_in_a_body_may_be_in_another_file(tmp_path: Path) -> None:
    text = """g (float[2] x, bool on) => (float[2] y)
        { a = Exp(x)  c = If (on) <then_branch = t () => (float[2] p) { k = Constant<value = float[2] {5, 6}>()  p = Add(a, k) },
                                   else_branch = e () => (float[2] q) { q = Neg(a) }>  y = Mul(c, a) }"""
    proto = Case(text, ()).proto
    tensor = proto.graph.node[1].attribute[0].g.node[0].attribute[0].t
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([5, 6], np.float32)))
    onnx.external_data_helper.set_external_data(tensor, "constant.bin", 64, 8)
    (tmp_path / "constant.bin").write_bytes(bytes(64) + tensor.raw_data)
    tensor.ClearField("raw_data")
    model = saved(tmp_path / "model.onnx", proto)
    feed = {"x": numbers(2), "on": np.array(True)}
    place(model, [op % 2 for op in range(model.graph.num_ops)], tmp_path / "out")
    for placed in (tmp_path / "out", tmp_path / "out" / "placed.onnx"):
        with Session(placed) as session:
            assert_equal(session.run(None, feed), plain(model.path).run(None, dict(feed)))


def test_a_model_file_without_a_placement_is_refused(tmp_path: Path) -> None:
    onnx.save(CASES["no_node_at_all"].proto, tmp_path / "model.onnx")
    with pytest.raises(InvalidPlacement, match="carries no usable placement"):
        Session(tmp_path / "model.onnx")


def test_an_op_that_was_added_after_placing_is_named(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", CASES["sizes_of_zero"].proto)
    place(model, [0] * model.graph.num_ops, tmp_path)
    proto = onnx.load(tmp_path / "placed.onnx")
    proto.graph.node.append(onnx.helper.make_node("Neg", ["y"], ["more"], "later"))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("more", 1, None))
    onnx.save(proto, tmp_path / "placed.onnx")
    with pytest.raises(InvalidPlacement, match="'later'"):
        Session(tmp_path / "placed.onnx")


@pytest.mark.parametrize("is_external", [True, False])
def test_weights_of_bodies_are_found_wherever_the_model_is_loaded(is_external: bool, tmp_path: Path) -> None:
    weight = np.eye(60, dtype=np.float32)
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 60] x, int64 n) => (float[2, 60] y)
        { r = Relu(x)
          f = Loop(n, , r) <body = b (int64 i, bool c, float[2, 60] s) => (bool k, float[2, 60] t)
            <float[60, 60] w = {0}> { k = Identity(c)  t = MatMul(s, w) }>
          y = Neg(f) }""".replace("w = {0}", f"w = {{{','.join(map(str, weight.ravel().tolist()))}}}")
    )
    (tensor,) = proto.graph.node[1].attribute[0].g.initializer
    if is_external:
        tensor.CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
        (tmp_path / "w.bin").write_bytes(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, "w.bin", 0, len(tensor.raw_data))
        tensor.ClearField("raw_data")
    model, feed = saved(tmp_path / "m.onnx", proto), {"x": np.ones((2, 60), np.float32), "n": np.array(3)}
    plan = gnnplace.plan_of(model.path, "cpu:0,cpu:1", Placement(np.array([0, 1, 0])))
    out = plan.save(tmp_path / "out")
    for path in (out, out / "placed.onnx"):
        with Session(path) as session:
            assert session.run(None, feed)[0].tolist() == (-np.ones((2, 60))).tolist()
    for path in (model.path, out / "placed.onnx"):
        assert plain(path).run(None, feed)[0].tolist() == (-np.ones((2, 60))).tolist()


def test_a_session_of_a_model_file_keeps_what_later_calls_need(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[N, 4] x) => (float[N, 4] y) {{ a = Neg(x) b = Relu(a) y = MatMul(b, w) }}"
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    place(saved(tmp_path / "m.onnx", proto), [0, 1, 0], tmp_path / "out")
    feed = {"x": -np.ones((2, 4), np.float32)}
    with Session(tmp_path / "out" / "placed.onnx") as session:
        assert session.get_devices() == ["cpu:0", "cpu:1"]
        assert session.get_modelmeta().graph_name == "g"
        assert session.run(None, feed, ort.RunOptions())[0].tolist() == np.ones((2, 4)).tolist()
