"""`Session.run_async` and `submit`, beside ONNX Runtime's own."""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.running.session import Session
from tests.parts import save
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("needs_two_cores")

Answer = tuple[list[Any], Any, str]


@pytest.fixture(params=[[0] * 6, [0, 1, 0, 1, 0, 1]], ids=["one device", "two devices"])
def placed(request: pytest.FixtureRequest, small_model: Callable[[str], OnnxModel], tmp_path: Path) -> OnnxModel:
    """The model `branches`, with its parts in `tmp_path`."""
    model = small_model("branches")
    save(model, request.param, tmp_path)
    return model


def plain(model: OnnxModel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2  # with one thread ONNX Runtime refuses asynchronous runs
    options.log_severity_level = 4
    return ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])


def feed(**changes: np.ndarray) -> dict[str, np.ndarray]:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    return {"x": x, "z": x.T.reshape(3, 4) + 1} | changes


def answer(session: Any, names: list[str] | None, feeds: Mapping[str, Any], user_data: Any = None) -> Answer:
    answers: Queue[Answer] = Queue()
    assert session.run_async(names, feeds, lambda *ended: answers.put(ended), user_data) is None
    return answers.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("names", [None, [], ["both"], ["both", "y"]])
def test_run_and_a_callback_get_the_named_outputs_of_a_plain_session(
    placed: OnnxModel, tmp_path: Path, names: list[str] | None
) -> None:
    user_data = {"mine": 1}
    with Session(tmp_path) as session:
        found, wanted = answer(session, names, feed(), user_data), answer(plain(placed), names, feed(), user_data)
        returned = session.run(names, feed())
    assert found[1] is wanted[1] is user_data
    assert found[2] == wanted[2] == ""
    for mine, at_once, theirs in zip(found[0], returned, wanted[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        np.testing.assert_array_equal(at_once, mine)


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (None, feed(z=np.ones((2, 4), np.float32))),
        (None, feed(x=np.ones((3, 4)))),
        (None, feed(q=np.ones((3, 4), np.float32))),
        (["nothing"], feed()),
    ],
    ids=["a part fails", "dtype", "unknown input", "unknown output"],
)
def test_errors_arrive_as_text_as_from_a_plain_session(
    placed: OnnxModel, tmp_path: Path, names: list[str] | None, wrong: dict[str, np.ndarray]
) -> None:
    with Session(tmp_path) as session:
        for either in (session, plain(placed)):
            outputs, user_data, error = answer(either, names, wrong, "mine")
            assert (outputs, user_data) == ([], "mine")
            assert isinstance(error, str)
            assert error
        np.testing.assert_array_equal(answer(session, ["y"], feed())[0][0], session.run(["y"], feed())[0])


def test_a_missing_input_is_raised_at_once_as_by_a_plain_session(placed: OnnxModel, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        for either in (session, plain(placed)):
            with pytest.raises(ValueError, match=r"missing|Required"):
                either.run_async(None, {"x": feed()["x"]}, lambda *_: None, None)


def test_a_callback_that_raises_is_logged_and_affects_no_other_request(
    placed: OnnxModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(outputs: list[Any], user_data: Any, error: str) -> None:
        raise RuntimeError("of the callback")

    with Session(tmp_path) as session, caplog.at_level(logging.ERROR, "concurrent.futures"):
        session.run_async(None, feed(), fail, None)
        assert answer(session, None, feed())[2] == ""
    assert "of the callback" in caplog.text


def test_all_callbacks_run_on_one_other_thread(placed: OnnxModel, tmp_path: Path) -> None:
    threads: Queue[int] = Queue()
    with Session(tmp_path) as session:
        for _ in range(10):
            session.run_async(None, feed(), lambda *_: threads.put(threading.get_ident()), None)
        found = {threads.get(timeout=PATIENCE_S) for _ in range(10)}
    assert len(found) == 1
    assert threading.get_ident() not in found


def test_a_future_has_the_outputs_or_the_error_of_run(placed: OnnxModel, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        futures = [session.submit(["y"], feed(z=feed()["z"] + number)) for number in range(8)]
        assert not futures[-1].cancel()
        for number, future in enumerate(futures):
            wanted = session.run(["y"], feed(z=feed()["z"] + number))[0]
            np.testing.assert_array_equal(future.result(PATIENCE_S)[0], wanted)
        with pytest.raises(MeasurementFailed):
            session.submit(None, feed(z=np.ones((2, 4), np.float32))).result(PATIENCE_S)
        with pytest.raises(InvalidInput, match="'q' is no input"):
            session.submit(None, feed(q=np.ones(1)))
    with pytest.raises(InvalidInput, match="closed"):
        session.submit(None, feed())


def test_outputs_of_many_feeds_arrive_in_order(placed: OnnxModel, tmp_path: Path) -> None:
    feeds = [feed(z=feed()["z"] * number) for number in range(9)]
    with Session(tmp_path, max_in_flight=3) as session:
        assert session.max_in_flight == 3
        found = [outputs[0] for outputs in session.run_many(["y"], feeds)]
        for value, each in zip(found, feeds, strict=True):
            np.testing.assert_array_equal(value, session.run(["y"], each)[0])
        with pytest.raises(InvalidInput, match="'x' is missing"):
            next(session.run_many(None, [{}]))
