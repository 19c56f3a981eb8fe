"""Element types that numpy lacks are arrays of `ml_dtypes` in sessions and between devices."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from gnnplace.devices.real_names import parse_real
from gnnplace.errors import InvalidInput
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.onnx_io.element_types import NARROW, numpy_dtype
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.running import pinned_memory, values
from gnnplace.running.pinned_memory import PinnedMemory
from gnnplace.running.session import Session
from gnnplace.running.values import as_numpy, device_memory, from_python
from tests.parts import save

Build = Callable[..., OnnxModel]


def test_narrow_types_are_those_that_onnx_has_and_numpy_lacks() -> None:
    lacking = {dtype.name.lower(): dtype.value for dtype in ir.DataType if dtype.value >= ir.DataType.BFLOAT16.value}
    assert NARROW.items() <= lacking.items()
    assert all(numpy_dtype(element).isbuiltin == 2 for element in NARROW)


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("shape", [(3,), (), (0, 2), (2, 3)])
def test_arrays_of_narrow_types_survive_a_round_trip_through_a_tensor(element: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape).astype(numpy_dtype(element))
    tensor = from_python(array)
    assert (tensor.data_type(), tensor.shape()) == (f"tensor({element})", list(shape))
    back = as_numpy(tensor)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert np.array_equal(back, array)


@pytest.mark.usefixtures("needs_two_cores")
@pytest.mark.parametrize("element", ["bfloat16", "float8e4m3fn", "float"])
def test_a_value_on_a_gpu_is_read_through_the_driver_where_numpy_lacks_its_type(
    element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(6).astype(numpy_dtype(element)).reshape(2, 3)
    tensor = from_python(array)
    read: list[int] = []

    def copied(address: int, num_bytes: int) -> bytes:
        read.append(num_bytes)
        return ctypes.string_at(address, num_bytes)

    monkeypatch.setattr(values, "_is_on_host", lambda value: False)
    monkeypatch.setattr(values, "copied_to_host", copied)
    memory = device_memory(parse_real("cuda:0"))
    assert memory is not None
    for found in (as_numpy(tensor), memory.to_host(tensor)):
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()
    assert read == ([] if element == "float" else [array.nbytes] * 2)


@pytest.mark.parametrize(
    ("element", "limit_bytes", "is_pinned"), [("float", 64, True), ("float", 8, False), ("bfloat16", 64, False)]
)
def test_large_values_are_copied_from_a_gpu_to_page_locked_memory(
    element: str, limit_bytes: int, is_pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(6).astype(numpy_dtype(element)).reshape(2, 3)
    tensor = from_python(array)
    made: dict[int, object] = {}

    def make(num_bytes: int, gpu: int) -> int:
        assert gpu == 1
        buffer = ctypes.create_string_buffer(num_bytes)
        made[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def copied(address: int, num_bytes: int) -> bytes:
        return ctypes.string_at(address, num_bytes)

    monkeypatch.setattr(values, "_is_on_host", lambda value: False)
    monkeypatch.setattr(values, "_PINNED_BYTES", 8)
    monkeypatch.setattr(values, "_pinned", PinnedMemory(limit_bytes))
    monkeypatch.setattr(pinned_memory, "pinned_memory", make)
    monkeypatch.setattr(values, "copied_to_host", copied)
    monkeypatch.setattr(values, "copy_to_host", ctypes.memmove)
    memory = device_memory(parse_real("cuda:1"))
    assert memory is not None
    found = memory.to_host(tensor)
    assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())
    assert (found.ctypes.data in made) is is_pinned


@pytest.mark.parametrize("element", ["bfloat16", "float8e4m3fn", "int4"])
@pytest.mark.parametrize("assignment", [[0, 0, 0], [0, 1, 0], [1, 0, 0]])
def test_narrow_types_are_inputs_and_outputs_of_placed_models(
    element: str, assignment: list[int], onnx_model: Build, tmp_path: Path
) -> None:
    model = onnx_model(f"""<ir_version: 10, opset_import: ["": 21]>
            g ({element}[3] x, float[3] f) => ({element}[3] z, float[3] y)
            {{ a = Cast<to=1>(x)  z = Cast<to={NARROW[element]}>(f)  y = Add(a, f) }}""")
    save(model, assignment, tmp_path)
    x, f = np.array([1, 2, 3]).astype(numpy_dtype(element)), np.array([3, 2, 1], np.float32)
    with PlainSession(model.path, "cpu:0") as plain:
        expected = plain.run({"x": x, "f": f})
    raw = ort.OrtValue(from_python(x))
    with Session(tmp_path) as session:
        for value in (x, raw, [1, 2, 3]):
            z, y = session.run(None, {"x": value, "f": f})
            assert z.dtype == x.dtype
            assert np.float32(z).tolist() == [3, 2, 1]
            assert y.tolist() == [4, 4, 4]
        with pytest.raises(InvalidInput, match=f"'x' is of dtype float32; expected {x.dtype.name}"):
            session.run(None, {"x": f, "f": f})
    assert np.float32(expected[0]).tolist() == [3, 2, 1]


@pytest.mark.usefixtures("needs_two_cores")
def test_narrow_types_are_handed_over_between_devices_unchanged(onnx_model: Build, tmp_path: Path) -> None:
    model = onnx_model("""<ir_version: 10, opset_import: ["": 21]>
            g (float[3] f) => (float[3] y) { a = Cast<to=16>(f)  b = Cast<to=22>(a)  y = Cast<to=1>(b) }""")
    save(model, [0, 1, 0], tmp_path)
    with Session(tmp_path) as session:
        assert session.run(None, {"f": np.array([1, -7, 3], np.float32)})[0].tolist() == [1, -7, 3]


@pytest.mark.usefixtures("needs_two_cores")
def test_float8_beside_strings_is_float8(onnx_model: Build, tmp_path: Path) -> None:
    model = onnx_model("""<ir_version: 10, opset_import: ["": 21]>
            g (string[2] s, float8e4m3fn[2] x) => (float[2] y, float8e4m3fn[2] z)
            { a = Cast<to=17>(s)  z = Identity(x)  y = Cast<to=1>(a) }""")
    feed = {"s": np.array(["1", "2"], object), "x": np.array([3, 4]).astype(ml_dtypes.float8_e4m3fn)}
    for assignment in ([0, 0, 0], [0, 0, 1]):
        save(model, assignment, tmp_path)
        with Session(tmp_path) as session:
            y, z = session.run(None, feed)
        assert y.tolist() == [1, 2]
        assert z.dtype == feed["x"].dtype
        assert np.float32(z).tolist() == [3, 4]


def test_a_model_in_one_piece_accepts_an_input_that_no_op_reads(onnx_model: Build, tmp_path: Path) -> None:
    model = onnx_model("""<ir_version: 8, opset_import: ["": 17]>
            g (float[2] x, float[2] unread) => (float[2] y) { y = Neg(x) }""")
    save(model, [0], tmp_path)
    x = np.ones(2, np.float32)
    with Session(tmp_path) as session:
        assert session.run(None, {"x": x, "unread": x})[0].tolist() == [-1, -1]
