"""Training steps of a placed model and the state between them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.onnx_io.model import STATE_KEY, OnnxModel
from gnnplace.running.session import Session
from tests.parts import save

pytestmark = pytest.mark.usefixtures("needs_two_cores")

PAIRS = {"w": "w_new", "m": "m_new", "b": "b_new", "steps": "steps_new", "kept": "kept"}
# Least squares by gradient descent with momentum; w and its momentum, a bias, a counter, and state that nothing changes.
STEP = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 3] x, float[N, 2] t, float[3, 2] w, float[3, 2] m, float[2] b, int64 steps, float[2] kept)
      => (float loss, float[3, 2] w_new, float[3, 2] m_new, float[2] b_new, int64 steps_new, float[2] kept)
    <float rate = {0.05}, float mu = {0.9}, int64 one = {1}>
    { y = MatMul(x, w)  z = Add(y, b)  d = Sub(z, t)  q = Mul(d, d)  loss = ReduceMean<keepdims=0>(q)
      xt = Transpose<perm=[1, 0]>(x)  g = MatMul(xt, d)  r = Mul(m, mu)  m_new = Add(r, g)  u = Mul(m_new, rate)
      w_new = Sub(w, u)  h = ReduceMean<axes=[0], keepdims=0>(d)  v = Mul(h, rate)  b_new = Sub(b, v)
      steps_new = Add(steps, one) }"""


@pytest.fixture
def model(onnx_model: Callable[..., OnnxModel]) -> OnnxModel:
    proto = onnx.parser.parse_model(STEP)
    proto.metadata_props.add(key=STATE_KEY, value=json.dumps(PAIRS))
    return onnx_model(proto)


def first_state() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "w": rng.standard_normal((3, 2)).astype(np.float32),
        "m": np.zeros((3, 2), np.float32),
        "b": np.zeros(2, np.float32),
        "steps": np.array(0),
        "kept": np.array([1, 2], np.float32),
    }


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    return [
        {"x": rng.standard_normal((4, 3)).astype(np.float32), "t": rng.standard_normal((4, 2)).astype(np.float32)}
        for _ in range(5)
    ]


def by_hand(model: OnnxModel) -> tuple[list[float], dict[str, np.ndarray]]:
    """A plain session whose outputs are fed back as arrays."""
    session = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    state, losses = first_state(), []
    for batch in batches():
        found = session.run(["loss", *PAIRS.values()], {**batch, **state})
        losses.append(float(found[0]))
        state = dict(zip(PAIRS, found[1:], strict=True))
    return losses, state


def test_steps_of_any_placement_have_the_losses_and_the_state_of_a_plain_session(
    model: OnnxModel, tmp_path: Path
) -> None:
    losses, wanted = by_hand(model)
    ops, rng = model.graph.num_ops, np.random.default_rng(5)
    for assignment in [[0] * ops, *rng.integers(0, 2, (6, ops)).tolist()]:
        save(model, assignment, tmp_path)
        with Session(tmp_path) as session:
            loop = session.training_loop(first_state())
            assert loop.output_names == ["loss"]
            found = [float(loop.step(batch)[0]) for batch in batches()]
            state = loop.state()
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        assert state["steps"] == 5
        for name, value in wanted.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("assignment", [[0] * 15, [0, 1] * 7 + [0]], ids=["one device", "two devices"])
def test_arrays_of_the_caller_share_no_memory_with_the_state(
    model: OnnxModel, tmp_path: Path, assignment: list[int]
) -> None:
    losses, wanted = by_hand(model)
    save(model, assignment, tmp_path)
    with Session(tmp_path) as session:
        arrays = first_state()
        loop = session.training_loop(arrays)
        for array in arrays.values():
            array[...] = 77
        for batch, loss in zip(batches(), losses, strict=True):
            outputs = loop.step(batch, ["loss", "w_new", "b_new", "kept"])
            assert float(outputs[0]) == pytest.approx(loss, rel=1e-5)
            for array in (*outputs[1:], *loop.state().values()):
                array[...] = 77
        for name, value in loop.state().items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6)


def test_a_step_that_fails_leaves_the_state_unchanged(model: OnnxModel, tmp_path: Path) -> None:
    losses, _ = by_hand(model)
    save(model, [0, 1] * 7 + [0], tmp_path)
    with Session(tmp_path) as session:
        loop = session.training_loop(first_state())
        for batch, loss in zip(batches(), losses, strict=True):
            with pytest.raises(MeasurementFailed, match="failed on"):
                loop.step({**batch, "t": np.ones((3, 2), np.float32)})
            with pytest.raises(InvalidInput, match="'t' is missing"):
                loop.step({"x": batch["x"]})
            assert float(loop.step(batch)[0]) == pytest.approx(loss, rel=1e-5)


def test_pairs_are_an_argument_and_wrong_ones_are_named(onnx_model: Callable[..., OnnxModel], tmp_path: Path) -> None:
    model = onnx_model(STEP)
    losses, _ = by_hand(model)
    save(model, [1, 0] * 7 + [1], tmp_path)
    with Session(tmp_path) as session:
        with pytest.raises(InvalidInput, match=r"metadata has no gnnplace\.state; give pairs"):
            session.training_loop(first_state())
        for pairs, message in (({"q": "loss"}, "'q', which is no input"), ({"w": "q"}, "'q', which is no output")):
            with pytest.raises(InvalidInput, match=message):
                session.training_loop({}, pairs)
        state = first_state()
        with pytest.raises(InvalidInput, match="'m' is missing"):
            session.training_loop({"w": state["w"]}, PAIRS)
        with pytest.raises(InvalidInput, match="'b' is of dtype float64"):
            session.training_loop({**state, "b": np.zeros(2)}, PAIRS)
        only_w = session.training_loop({"w": state.pop("w")}, {"w": "w_new"})
        batch = batches()[0]
        outputs = only_w.step({**batch, **state})
        assert len(outputs) == 5
        assert float(outputs[0]) == pytest.approx(losses[0], rel=1e-5)
