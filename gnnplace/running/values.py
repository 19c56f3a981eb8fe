"""ONNX Runtime's values from and to Python's, with the element types that numpy lacks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as native

from gnnplace.onnx_io.value_types import NARROW, from_raw, is_narrow, numpy_dtype, to_raw

__all__ = ["HOST", "Value", "as_numpy", "from_python", "only_tensors", "python_run", "run_tensors"]


Value = Any
"""A tensor as ONNX Runtime's native OrtValue; strings, sequences and optionals as the Python objects of `run`."""
HOST = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
_NARROW = frozenset(NARROW.values())


def as_numpy(value: Value) -> Any:
    """A value as `onnxruntime.InferenceSession.run` would return it; without a copy when it is on the host.

    Of types that numpy lacks, which have to be on the host, it is a copy as an array of `ml_dtypes`.
    """
    if not isinstance(value, native.OrtValue):
        return value
    if value.element_type() not in _NARROW:
        return value.numpy()
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return from_raw(value.element_type(), value.shape(), raw)


def from_python(value: Any) -> Value:
    """An array, or what becomes one, as a tensor; it shares the array's memory where numpy has the type."""
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
    """Whether it takes and gives nothing but tensors of numbers, the values that ONNX Runtime makes from Python's."""
    return all(arg.type.startswith("tensor(") and arg.type != "tensor(string)" for arg in _borders(session))


def run_tensors(
    session: ort.InferenceSession,
    output_names: Sequence[str],
    values: Mapping[str, Value],
    homes: Sequence[Any],
    run_options: ort.RunOptions,
) -> list[Value]:
    """The outputs of a session that takes and gives only tensors, each in the memory of its `homes`.

    `run_with_ort_values` of ONNX Runtime's Python class spends some 50 us per call on wrapping its results, so the call
    below it is used: with all conversions it takes 7 to 10 us.
    """
    feeds, fetches = native.OrtValueVector(), native.OrtValueVector()
    for value in values.values():
        feeds.push_back(value if isinstance(value, native.OrtValue) else from_python(value))
    session.run_with_ortvaluevector(run_options, list(values), feeds, output_names, fetches, homes)
    # By index: iterating over the vector costs 50 us.
    return [fetches[index] for index in range(len(output_names))]


def python_run(session: ort.InferenceSession) -> Callable[..., list[Any]]:
    """The session's own `run`; where it takes or gives types that numpy lacks, the same with arrays of `ml_dtypes`."""
    if not any(_narrow_element(arg.type) for arg in _borders(session)):
        return session.run  # type: ignore[no-any-return]
    everything = [arg.name for arg in session.get_outputs()]
    narrow = {arg.name: element for arg in session.get_outputs() if (element := _narrow_element(arg.type))}
    by_value = only_tensors(session)

    def run(
        output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: ort.RunOptions | None = None
    ) -> list[Any]:
        names = list(output_names or everything)
        if by_value:
            found = run_tensors(session, names, input_feed, [HOST] * len(names), run_options or ort.RunOptions())
            return [as_numpy(value) for value in found]
        # Beside strings and sequences ONNX Runtime gives float8 as bytes, and none of the other types.
        feed = {name: ort.OrtValue(from_python(v)) if _is_narrow(v) else v for name, v in input_feed.items()}
        arrays = dict(zip(names, session.run(names, feed, run_options), strict=True))
        return [arrays[name].view(numpy_dtype(narrow[name])) if name in narrow else arrays[name] for name in names]

    return run


def _borders(session: ort.InferenceSession) -> list[ort.NodeArg]:
    return [*session.get_inputs(), *session.get_overridable_initializers(), *session.get_outputs()]


def _narrow_element(type_name: str) -> str | None:
    """The element type of a tensor that numpy lacks."""
    element = type_name.removeprefix("tensor(").removesuffix(")")
    return element if element in NARROW else None


def _is_narrow(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_narrow(value.dtype)
