"""What a caller feeds to a placed model, checked against what the model declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.errors import InvalidInput
from gnnplace.executors.values import as_numpy
from gnnplace.onnx_io.element_types import numpy_dtype
from gnnplace.onnx_io.manifest import ValueInfo

__all__ = ["check_given", "checked_feed"]


def check_given(declared: Mapping[str, ValueInfo], feed: Mapping[str, Any]) -> None:
    """Every input that has no default is there.

    Raises:
        InvalidInput: one is missing.
    """
    for info in declared.values():
        if not info.optional and info.name not in feed:
            raise InvalidInput(f"the model input {info.name!r} is missing; given are {', '.join(feed) or 'none'}")


def checked_feed(declared: Mapping[str, ValueInfo], feed: Mapping[str, Any]) -> dict[str, Any]:
    """The feed, lists made into arrays.

    Raises:
        InvalidInput: an input is missing, unknown, or of another dtype or rank.
    """
    check_given(declared, feed)
    checked: dict[str, Any] = {}
    for name, value in feed.items():
        if name not in declared:
            raise InvalidInput(f"{name!r} is no input of the model; it has {', '.join(declared) or 'none'}")
        checked[name] = _checked_value(declared[name], value)
    return checked


def _checked_value(info: ValueInfo, value: Any) -> Any:
    """The value as an array of the right dtype and shape; sequences and optionals are left to ONNX Runtime."""
    if not info.type.startswith("tensor("):
        return value
    element = info.type[len("tensor(") : -1]
    expected = numpy_dtype(element)
    if isinstance(value, ort.OrtValue):
        value = as_numpy(value._get_c_value())
    if not isinstance(value, np.ndarray):
        value = np.asarray(value, dtype=expected)
    fits = value.dtype.kind in "OUS" if element == "string" else value.dtype.name == expected.name
    if not fits:
        raise InvalidInput(f"the model input {info.name!r} is of dtype {value.dtype.name}; expected {expected.name}")
    if info.shape and value.ndim != len(info.shape):  # ONNX Runtime lets any shape be fed where a scalar is declared
        raise InvalidInput(
            f"the model input {info.name!r} has {value.ndim} dimensions {list(value.shape)}; expected {list(info.shape)}"
        )
    for axis, (found, declared) in enumerate(zip(value.shape, info.shape, strict=False)):
        if isinstance(declared, int) and 0 <= declared != found:  # some exporters write -1 for any size
            raise InvalidInput(
                f"the model input {info.name!r} has size {found} in dimension {axis}; expected {list(info.shape)}"
            )
    return value
