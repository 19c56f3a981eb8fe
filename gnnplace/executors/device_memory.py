"""Memory that only one device reads: how values get into it and out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnxruntime.capi import _pybind_state as native

from gnnplace.executors.devices import RealDevice
from gnnplace.executors.part_session import memory_of
from gnnplace.executors.values import Value
from gnnplace.onnx_io.element_types import is_narrow

__all__ = ["COPIED_TYPES", "DeviceMemory", "device_memory"]

_NUMBERS = (
    "float",
    "double",
    "float16",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
COPIED_TYPES = frozenset(f"tensor({name})" for name in _NUMBERS)
"""As ONNX Runtime names them: what numpy holds. Other values are left to ONNX Runtime, which copies while a part runs."""


class DeviceMemory:
    """The memory of one GPU."""

    def __init__(self, place: Any) -> None:
        self._place = place

    def to_host(self, value: Value) -> Value:
        """The value where the host and, through it, every other device can read it."""
        return value if _is_on_host(value) else value.numpy()

    def from_host(self, value: Value) -> Value:
        """The value where sessions of this device read it; what is here already, or no tensor of numbers, as it is."""
        if isinstance(value, native.OrtValue):
            if not _is_on_host(value) or value.data_type() not in COPIED_TYPES:
                return value
            value = value.numpy()
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS" or is_narrow(value.dtype):
            return value
        return native.OrtValue.ortvalue_from_numpy(value, self._place)


def device_memory(device: RealDevice) -> DeviceMemory | None:
    """The device's own memory; None for devices that compute in that of the host, where nothing has to be copied."""
    place = memory_of(device)
    return None if place is None else DeviceMemory(place)


def _is_on_host(value: Value) -> bool:
    return not isinstance(value, native.OrtValue) or value.device_name().lower() == "cpu"
