"""A model cut at random and run on two devices has the outputs of one session."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.errors import InvalidInput, InvalidPlacement, MeasurementFailed
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.running.session import PARTS, Session
from tests.parts import save

pytestmark = pytest.mark.usefixtures("needs_two_cores")

Models = Callable[[str], OnnxModel]
Inputs = Callable[[OnnxModel], Mapping[str, np.ndarray]]


def plain_run(model: OnnxModel, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    return session.run([value.name for value in model.model.graph.outputs], dict(feed))


def test_random_placements_of_every_small_model_give_the_outputs_of_one_session(
    each_small_model: OnnxModel, random_inputs: Inputs, tmp_path: Path
) -> None:
    model, feed = each_small_model, random_inputs(each_small_model)
    expected = plain_run(model, feed)
    rng = np.random.default_rng(1)
    count = model.graph.num_ops
    for assignment in [[0] * count, [op % 2 for op in range(count)], *rng.integers(0, 2, (4, count)).tolist()]:
        save(model, assignment, tmp_path / "out")
        with Session(tmp_path / "out") as session:
            for _ in range(3):
                for found, wanted in zip(session.run(None, feed), expected, strict=True):
                    np.testing.assert_allclose(found, wanted, rtol=1e-4)
                    assert found.dtype == wanted.dtype


def test_an_overridden_initialiser_reaches_all_parts(small_model: Models, tmp_path: Path) -> None:
    model = small_model("overridable_initialiser")
    feed = {"x": np.ones(2, np.float32), "w": np.array([5, 6], np.float32)}
    save(model, [0, 1, 0], tmp_path)
    with Session(tmp_path) as session:
        y, w = session.run(["y", "w"], feed)
        assert [info.name for info in session.get_inputs()] == ["x"]
        assert [info.name for info in session.get_overridable_initializers()] == ["w"]
    np.testing.assert_allclose(y, plain_run(model, feed)[0], rtol=1e-5)
    assert w.tolist() == [5, 6]


def test_strings_and_sequences_are_handed_over_between_devices(
    onnx_model: Callable[..., OnnxModel], tmp_path: Path
) -> None:
    model = onnx_model("""<ir_version: 8, opset_import: ["": 17]>
        g (string[N] s, float[4, 2] x, int64[1] at) => (string[M] t, float[2, 2] y, float[4, 2] z)
        { u = Gather(s, at)  t = Identity(u)  q = SplitToSequence<axis=0>(x)  k = Abs(at)  r = SequenceInsert(q, x, k)
          e = SequenceAt(r, at)  w = Abs(x)  z = Add(w, e)  i = ConcatFromSequence<axis=0>(q)  v = Neg(i)
          y, rest = Split<axis=0>(v) }""")
    feed = {"s": np.array(["a", "b"], object), "x": np.ones((4, 2), np.float32), "at": np.array([1])}
    names = [node.op_type for node in model.model.graph]
    save(model, [number % 2 for number in range(len(names))], tmp_path)
    with Session(tmp_path) as session:
        t, y, z = session.run(None, feed)
    assert t.tolist() == ["b"]
    assert y.tolist() == [[-1, -1], [-1, -1]]
    assert z.tolist() == [[2, 2]] * 4


def test_session_describes_itself_like_a_plain_session(small_model: Models, tmp_path: Path) -> None:
    model = small_model("branches")
    plain = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    assert save(model, [0, 1, 0, 1, 1, 0], tmp_path) > 2
    with Session(tmp_path) as session:
        for mine, theirs in ((session.get_inputs(), plain.get_inputs()), (session.get_outputs(), plain.get_outputs())):
            assert [(i.name, i.type, list(i.shape)) for i in mine] == [(i.name, i.type, i.shape) for i in theirs]
        assert session.get_providers() == plain.get_providers()
        assert session.get_modelmeta().graph_name == plain.get_modelmeta().graph_name
        assert session.get_devices() == ["cpu:0", "cpu:1"]


def test_devices_of_a_session_are_those_that_run_a_part(small_model: Models, tmp_path: Path) -> None:
    assert save(small_model("branches"), [1] * 6, tmp_path) == 1
    with Session(tmp_path) as session:
        assert session.get_devices() == ["cpu:1"]


@pytest.mark.parametrize("assignment", [[0] * 6, [0, 1, 0, 1, 0, 1]])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": None}, "'z' is missing; given are x"),
        ({"q": np.ones(3)}, "'q' is no input of the model; it has x, z"),
        ({"x": np.ones((3, 4))}, "'x' is of dtype float64; expected float32"),
        ({"x": "text"}, "'x' is 'text'; expected an array of float32"),
        ({"x": {1: 2}}, "'x' is {1: 2}; expected an array of float32"),
        ({"x": [[1, 2, 3, 4], [1]]}, r"'x' is \[\[1, 2, 3, 4\], \[1\]\]; expected an array of float32"),
        ({"x": np.ones(4, np.float32)}, r"'x' has 1 dimensions \[4\]; expected \['N', 4\]"),
        ({"x": np.ones((3, 5), np.float32)}, r"'x' has size 5 in dimension 1; expected \['N', 4\]"),
    ],
)
def test_a_wrong_input_is_named_in_one_line(
    small_model: Models, tmp_path: Path, assignment: list[int],
    change: dict[str, np.ndarray | None], message: str,
) -> None:  # fmt: skip
    save(small_model("branches"), assignment, tmp_path)
    feed = {"x": np.ones((3, 4), np.float32), "z": np.ones((3, 4), np.float32)} | change
    with Session(tmp_path) as session:
        with pytest.raises(InvalidInput, match=message) as caught:
            session.run(None, {name: value for name, value in feed.items() if value is not None})
        assert "\n" not in str(caught.value)


def test_arrays_in_the_other_byte_order_are_read_as_their_numbers(small_model: Models, tmp_path: Path) -> None:
    model, x = small_model("chain"), np.arange(4, dtype=np.float32)[None]
    save(model, [0, 1, 0, 1], tmp_path)
    with Session(tmp_path) as session:
        (found,) = session.run(None, {"x": x.astype(">f4")})
    np.testing.assert_allclose(found, plain_run(model, {"x": x})[0], rtol=1e-5)


def test_a_text_as_outputs_is_refused(small_model: Models, tmp_path: Path) -> None:
    save(small_model("chain"), [0, 1, 0, 1], tmp_path)
    with (
        Session(tmp_path) as session,
        pytest.raises(InvalidInput, match="the outputs are the text 'y'; expected a list"),
    ):
        session.run("y", {"x": np.ones((1, 4), np.float32)})


def test_an_output_that_is_listed_twice_is_returned_twice(onnx_model: Callable[..., OnnxModel], tmp_path: Path) -> None:
    model = onnx_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, float[2] y, float[2] z) { y = Neg(x)  z = Exp(y) }""")
    save(model, [0, 1], tmp_path)
    with Session(tmp_path) as session:
        assert [info.name for info in session.get_outputs()] == ["y", "y", "z"]
        assert [value[0] for value in session.run(None, {"x": np.zeros(2, np.float32)})] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("element", ["float", "bfloat16"])
def test_weights_in_typed_fields_are_shared_by_parts(
    element: str, onnx_model: Callable[..., OnnxModel], tmp_path: Path
) -> None:
    size = 2**16
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1] x) => (float[{size}] y) {{ v = Cast<to = 1>(w)  a = Add(x, v)  b = Neg(a)  u = Cast<to = 1>(w)  y = Add(b, u) }}""")
    kind = onnx.TensorProto.FLOAT if element == "float" else onnx.TensorProto.BFLOAT16
    weight = onnx.helper.make_tensor("w", kind, [size], [3.0] * size)
    assert not weight.HasField("raw_data")
    proto.graph.initializer.append(weight)
    model = onnx_model(proto)
    op = model.graph.op_index
    assignment = [0] * model.graph.num_ops
    assignment[op[model.graph.op_names[-1]]] = 1
    assert len([name for name in model.graph.op_types if name == "Add"]) == 2
    save(model, assignment, tmp_path)
    with Session(tmp_path) as session:
        assert session.run(None, {"x": np.ones(1, np.float32)})[0].tolist() == [-1.0] * size


def test_an_unknown_output_is_named(small_model: Models, tmp_path: Path) -> None:
    save(small_model("chain"), [0, 1, 0, 1], tmp_path)
    with (
        Session(tmp_path) as session,
        pytest.raises(InvalidInput, match="'nothing' is no output of the model; it has y"),
    ):
        session.run(["nothing"], {"x": np.ones((1, 4), np.float32)})


def test_a_part_that_cannot_be_loaded_is_named(small_model: Models, tmp_path: Path) -> None:
    save(small_model("chain"), [0, 1, 0, 1], tmp_path)
    (tmp_path / PARTS / "part-0002.onnx").write_bytes(b"nonsense")
    before = threading.active_count()
    with pytest.raises(MeasurementFailed, match=r"'part-0002.onnx' cannot be loaded on 'cpu:0'"):
        Session(tmp_path)
    assert threading.active_count() == before


@pytest.mark.parametrize(("assignment", "threads"), [([0, 1, 0, 1], 2), ([0, 0, 0, 0], 0)])
def test_several_devices_need_a_thread_each_until_the_session_is_closed(
    small_model: Models, tmp_path: Path, assignment: list[int], threads: int
) -> None:
    save(small_model("chain"), assignment, tmp_path)
    before = threading.active_count()
    session = Session(tmp_path)
    assert threading.active_count() == before + threads
    session.close()
    session.close()
    assert threading.active_count() == before
    with pytest.raises(InvalidInput, match="closed"):
        session.run(None, {"x": np.ones((1, 4), np.float32)})


def test_a_folder_without_a_placed_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlacement, match="cannot be read"):
        Session(tmp_path / "nowhere")
