"""Inputs of a placed model are accepted and refused as by ONNX Runtime, on one device and on several."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from gnnplace.errors import InvalidInput
from gnnplace.running.session import Session
from tests.placed_texts import Case, Feed, assert_equal, numbers, place, plain, saved

pytestmark = pytest.mark.usefixtures("needs_two_cores")

FED = """g (float[N, 4] x, float[N, 2] z, int64[2] k, string[M] s, float r = {1}, float16[1] h) => (float[N, 4] y, string[M] t)
    { a = Mul(x, r)  b = Cast<to=1>(k)  c = ReduceSum(b)  d = Add(a, c)  e = ReduceSum(z)  f = Cast<to=1>(h)  i = Add(d, f)
      y = Add(i, e)  t = Identity(s) }"""
GOOD: Feed = {
    "x": numbers(3, 4), "z": numbers(3, 2), "k": np.array([1, 2]), "s": np.array(["a", "b"]), "h": np.ones(1, np.float16),
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"x": numbers(0, 4)},
        {"z": numbers(5, 2)},  # ONNX Runtime lets sizes of one name differ
        {"x": [[1, 2, 3, 4]]},
        {"k": [1, 2]},
        {"k": np.array([1, 2], np.int32)},
        {"x": numbers(3, 4).astype(np.float64)},
        {"x": numbers(3, 4)[::-1]},
        {"x": np.asfortranarray(numbers(3, 4))},
        {"x": numbers(3, 5)},
        {"x": numbers(4)},
        {"x": numbers(1, 3, 4)},
        {"k": np.array([1, 2, 3])},
        {"s": np.array(["a", "bcd"], object)},
        {"s": ["a", "b"]},
        {"s": np.array([1, 2])},
        {"r": np.array(2.0, np.float32)},
        {"r": np.array([2.0], np.float32)},
        {"h": np.ones(1, np.float32)},
        {"x": ort.OrtValue.ortvalue_from_numpy(numbers(3, 4))},
        {"x": ort.OrtValue.ortvalue_from_numpy(numbers(3, 4).astype(np.float64))},
        {"x": None},
        {"x": [[None] * 4]},
        {"x": [["1"] * 4]},
        {"x": [[10**400] * 4]},
        {"r": None},
        {"z": "absent"},
        {"unknown": numbers(1)},
    ],
)
def test_inputs_are_accepted_and_refused_as_by_onnx_runtime(change: Feed, tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", Case(FED, ()).proto)
    feed = {name: value for name, value in {**GOOD, **change}.items() if not isinstance(value, str)}
    try:
        wanted = plain(model.path).run(None, feed)
    except Exception:  # ONNX Runtime's errors have no base class of their own
        wanted = None
    for assignment in ([0] * model.graph.num_ops, [op % 2 for op in range(model.graph.num_ops)]):
        place(model, assignment, tmp_path / "out")
        with Session(tmp_path / "out") as placed:
            if wanted is not None:
                assert_equal(placed.run(None, feed), wanted)
                continue
            with pytest.raises(InvalidInput) as caught:
                placed.run(None, feed)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("assignment", [[0, 0, 0], [0, 1, 0]])
def test_an_optional_input_may_be_left_out_as_in_onnx_runtime(assignment: list[int], tmp_path: Path) -> None:
    text = """g (optional(float[2]) o, float[2] x) => (float[2] y)
        { h = OptionalHasElement(o)  a = Cast<to=1>(h)  y = Add(x, a) }"""
    model = saved(tmp_path / "model.onnx", Case(text, ()).proto)
    place(model, assignment, tmp_path / "out")
    with Session(tmp_path / "out") as session:
        for feed in ({"x": numbers(2)}, {"x": numbers(2), "o": numbers(2)}):
            assert_equal(session.run(None, feed), plain(model.path).run(None, dict(feed)))


@pytest.mark.parametrize("num_devices", [1, 2])
def test_the_byte_order_of_an_array_does_not_matter(num_devices: int, tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", Case("g (float[2] x) => (float[2] y) { a = Neg(x)  y = Exp(a) }", ()).proto)
    place(model, [0, num_devices - 1], tmp_path / "out")
    with Session(tmp_path / "out") as session:
        swapped = session.run(None, {"x": numbers(2).astype(">f4")})
        assert_equal(swapped, session.run(None, {"x": numbers(2)}))


@pytest.mark.parametrize("num_devices", [1, 2])
@pytest.mark.parametrize("feed", [None, [numbers(2)], 5, {1: numbers(2)}])
def test_a_feed_that_is_no_dictionary_of_names_is_refused(num_devices: int, feed: Any, tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", Case("g (float[2] x) => (float[2] y) { a = Neg(x)  y = Exp(a) }", ()).proto)
    place(model, [0, num_devices - 1], tmp_path / "out")
    with Session(tmp_path / "out") as session, pytest.raises(InvalidInput, match=r"inputs are|'x' is missing"):
        session.run(None, feed)


def test_a_scalar_is_accepted_where_onnx_runtime_expects_an_array(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.onnx", Case(FED, ()).proto)
    wanted = plain(model.path).run(None, {**GOOD, "r": np.array(2, np.float32)})
    for assignment in ([0] * model.graph.num_ops, [op % 2 for op in range(model.graph.num_ops)]):
        place(model, assignment, tmp_path / "out")
        with Session(tmp_path / "out") as placed:
            for scalar in (2, 2.0, np.float32(2)):
                assert_equal(placed.run(None, {**GOOD, "r": scalar}), wanted)
