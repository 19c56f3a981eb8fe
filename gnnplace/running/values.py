"""Values between ONNX Runtime, numpy and the memory of GPUs, including element types that numpy lacks."""

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as native

from gnnplace.devices.cuda_driver import copied_to_host, copy_to_host
from gnnplace.devices.real_names import RealDevice
from gnnplace.onnx_io.element_types import NARROW, from_raw, is_narrow, numpy_dtype, to_raw
from gnnplace.running.pinned_memory import PinnedMemory

Value = Any
"""A tensor as ONNX Runtime's native OrtValue; strings, sequences and optionals as the Python objects of `run`."""
Feed = Mapping[str, Any]
"""Values by the names of inputs."""
OutputNames = Sequence[str] | None
"""Names of wanted outputs; None: all."""
Options: TypeAlias = ort.RunOptions | None
HOST = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
_PINNED_BYTES = 2**18
"""Smaller copies gain little from page-locked memory."""
_pinned = PinnedMemory()
_NARROW = frozenset(NARROW.values())
_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
COPIED_TYPES = frozenset(f"tensor({name})" for name in ("float", "double", "float16", "bool", *_INTEGERS))
"""ONNX Runtime's names of the types that `DeviceMemory` copies; ONNX Runtime copies other types while a part runs."""


def as_numpy(value: Value) -> Any:
    """A value as `onnxruntime.InferenceSession.run` would return it; without a copy when it is on the host.

    A value of a type that numpy lacks is copied into an array of `ml_dtypes`.
    """
    if not isinstance(value, native.OrtValue):
        return value
    if value.element_type() not in _NARROW:
        return value.numpy()
    return from_raw(value.element_type(), value.shape(), _raw(value))


def num_bytes(value: Value) -> float:
    """Bytes of a tensor, wherever it is; infinite for values of other kinds."""
    if isinstance(value, native.OrtValue):
        return int(value.tensor_size_in_bytes()) if value.is_tensor() else math.inf
    return value.nbytes if isinstance(value, np.ndarray) and value.dtype.kind not in "OUS" else math.inf


def from_python(value: Any) -> Value:
    """An array, list or scalar as a tensor; it shares the array's memory where numpy has the type."""
    if isinstance(value, ort.OrtValue):
        return value._get_c_value()
    array = np.asarray(value)
    if not is_narrow(array.dtype):
        return native.OrtValue.ortvalue_from_numpy(array, HOST)
    element_type, raw = to_raw(array)
    tensor = native.OrtValue.ortvalue_from_shape_and_onnx_type(array.shape, element_type, HOST)
    ctypes.memmove(tensor.data_ptr(), raw, len(raw))
    return tensor


def only_tensors(session: ort.InferenceSession) -> bool:
    """All inputs and outputs of the session are tensors of numbers."""
    return all(arg.type.startswith("tensor(") and arg.type != "tensor(string)" for arg in _arguments(session))


def run_tensors(
    session: ort.InferenceSession,
    output_names: Sequence[str],
    values: Mapping[str, Value],
    homes: Sequence[Any],
    run_options: ort.RunOptions,
) -> list[Value]:
    """The outputs of a session whose inputs and outputs are all tensors, each in the memory that `homes` names.

    `run_with_ort_values` of ONNX Runtime's Python class spends some 50 us per call on wrapping its results. The native
    call used here takes 7 to 10 us with all conversions.
    """
    feeds, fetches = native.OrtValueVector(), native.OrtValueVector()
    for value in values.values():
        feeds.push_back(value if isinstance(value, native.OrtValue) else from_python(value))
    session.run_with_ortvaluevector(run_options, list(values), feeds, output_names, fetches, homes)
    # By index: iterating over the vector costs 50 us.
    return [fetches[index] for index in range(len(output_names))]


def python_run(session: ort.InferenceSession) -> Callable[..., list[Any]]:
    """The session's own `run`, extended to arrays of `ml_dtypes` where an input or output has a type that numpy lacks."""
    if not any(_narrow_element(arg.type) for arg in _arguments(session)):
        return session.run  # type: ignore[no-any-return]
    all_outputs = [arg.name for arg in session.get_outputs()]
    narrow = {arg.name: element for arg in session.get_outputs() if (element := _narrow_element(arg.type))}
    by_value = only_tensors(session)

    def run(output_names: OutputNames, input_feed: Feed, run_options: Options = None) -> list[Any]:
        names = list(output_names or all_outputs)
        if by_value:
            found = run_tensors(session, names, input_feed, [HOST] * len(names), run_options or ort.RunOptions())
            return [as_numpy(value) for value in found]
        # Beside strings and sequences ONNX Runtime returns float8 as bytes, and none of the other narrow types.
        feed = {name: ort.OrtValue(from_python(v)) if _is_narrow(v) else v for name, v in input_feed.items()}
        arrays = dict(zip(names, session.run(names, feed, run_options), strict=True))
        return [arrays[name].view(numpy_dtype(narrow[name])) if name in narrow else arrays[name] for name in names]

    return run


def _arguments(session: ort.InferenceSession) -> list[ort.NodeArg]:
    return [*session.get_inputs(), *session.get_overridable_initializers(), *session.get_outputs()]


def _narrow_element(type_name: str) -> str | None:
    element = _element(type_name)
    return element if element in NARROW else None


def _element(type_name: str) -> str:
    """The element type in ONNX Runtime's name of a tensor type."""
    return type_name.removeprefix("tensor(").removesuffix(")")


def _is_narrow(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_narrow(value.dtype)


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one GPU."""

    place: Any
    """ONNX Runtime's name of the memory."""

    def to_host(self, value: Value) -> Value:
        """The value in the host's memory, where all other devices can read it; large tensors in page-locked memory."""
        if _is_on_host(value):
            return value
        pinned = _pinned_copy(value, self.place.device_id()) if num_bytes(value) >= _PINNED_BYTES else None
        return as_numpy(value) if pinned is None else pinned

    def from_host(self, value: Value) -> Value:
        """The value in this memory; returned unchanged where it is here already or is no tensor of `COPIED_TYPES`."""
        if isinstance(value, native.OrtValue):
            if not _is_on_host(value) or value.data_type() not in COPIED_TYPES:
                return value
            value = value.numpy()
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS" or is_narrow(value.dtype):
            return value
        return native.OrtValue.ortvalue_from_numpy(value, self.place)


def device_memory(device: RealDevice) -> DeviceMemory | None:
    """The device's own memory; None for devices that compute in the host's memory, where nothing has to be copied."""
    return None if device.gpu is None else DeviceMemory(ort.OrtDevice.make("cuda", device.gpu)._get_c_device())


def _pinned_copy(value: native.OrtValue, gpu: int) -> Any:
    """The tensor in page-locked memory; None where there is none left, or numpy lacks the type."""
    if value.data_type() not in COPIED_TYPES:
        return None
    with suppress(RuntimeError):
        array = _pinned.array(numpy_dtype(_element(value.data_type())), tuple(value.shape()), gpu)
        if array is not None:
            copy_to_host(ctypes.c_void_p(array.ctypes.data), value.data_ptr(), array.nbytes)
        return array
    return None


def _raw(value: native.OrtValue) -> bytes:
    """The bytes of a tensor, on the host or a GPU."""
    read = ctypes.string_at if _is_on_host(value) else copied_to_host
    return read(value.data_ptr(), value.tensor_size_in_bytes())


def _is_on_host(value: Value) -> bool:
    return not isinstance(value, native.OrtValue) or value.device_name().lower() == "cpu"
