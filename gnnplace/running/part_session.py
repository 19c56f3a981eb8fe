"""Sessions that have been created once, by what they hold: moving one op group then rebuilds nothing else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as native

from gnnplace.devices.real_names import parse_real
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import at_dims
from gnnplace.onnx_io.untyped import state_types, with_untyped_outputs
from gnnplace.onnx_io.value_types import is_narrow
from gnnplace.running.devices import RealDevice, create_session, register_custom_ops
from gnnplace.running.values import HOST, Value, as_numpy, only_tensors, python_run, run_tensors

__all__ = [
    "COPIED_TYPES",
    "DeviceMemory",
    "PartSession",
    "SessionCache",
    "device_memory",
    "memory_of",
    "with_known_types",
]


class SessionCache:
    """Sessions by key, the least recently used ones dropped beyond `max_sessions`.

    Safe for several threads. A key must name the content and the device.
    """

    def __init__(self, max_sessions: int | None = None) -> None:
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[Hashable, PartSession] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, create: Callable[[], PartSession]) -> PartSession:
        """The session of `key`; `create` makes it when it is not there.

        `create` runs on the calling thread and outside the lock, so that devices compile side by side.
        """
        with self._lock:
            if key in self._sessions:
                self._sessions.move_to_end(key)
                return self._sessions[key]
        session = create()
        with self._lock:
            self._sessions[key] = session
            self._sessions.move_to_end(key)
            while self._max_sessions is not None and len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
        return session

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._sessions

    def retain(self, keys: Collection[Hashable]) -> None:
        """Drops all sessions but those of `keys`."""
        with self._lock:
            for key in [key for key in self._sessions if key not in keys]:
                del self._sessions[key]

    def clear(self) -> None:
        """Drops all sessions; those in use live on with their users."""
        with self._lock:
            self._sessions.clear()


class PartSession:
    """A session and the names it exchanges."""

    def __init__(
        self,
        model: Path | bytes,
        device: RealDevice,
        outputs: Sequence[str],
        data_folder: Path | None = None,
        custom_ops: Sequence[Path] = (),
    ) -> None:
        self.session = create_session(model, device, data_folder, custom_ops=custom_ops)
        self.device = device
        self.outputs = list(outputs)
        self.run_python = python_run(self.session)
        """Takes and gives Python's values, as `onnxruntime.InferenceSession.run` does."""
        self._only_tensors = only_tensors(self.session)
        self._options = ort.RunOptions()
        self._everything_on_host = [HOST] * len(self.outputs)

    def home_of(self, names: Collection[str]) -> list[Any]:
        """Where each output is left: `names` on this device, for its own later parts, the others on the host for all."""
        own = memory_of(self.device)
        if own is None:
            return self._everything_on_host
        return [own if name in names else HOST for name in self.outputs]

    def shares_memory_with(self, reader: str) -> bool:
        """Whether sessions of another device read what this one leaves in its memory.

        Devices on one GPU do: every call ends with a synchronised stream. With the option `peer` those of other GPUs do too: ONNX
        Runtime copies from GPU to GPU when it is fed.
        """
        here, other = self.device, parse_real(reader)
        if here.gpu is None or other.gpu is None or other.host != here.host:
            return False
        return other.gpu == here.gpu or here.peer

    def run(
        self, values: Mapping[str, Value], homes: Sequence[Any] | None = None, options: ort.RunOptions | None = None
    ) -> list[Value]:
        """The outputs, in the order of `outputs`; `homes` is what `home_of` gave."""
        if not self._only_tensors:
            feed = {name: as_numpy(value) for name, value in values.items()}
            return list(self.run_python(self.outputs, feed, options))
        return run_tensors(
            self.session, self.outputs, values, homes or self._everything_on_host, options or self._options
        )


def memory_of(device: RealDevice) -> Any:
    """A GPU's own memory, as ONNX Runtime names it; None where values are in that of the host."""
    return None if device.gpu is None else ort.OrtDevice.make("cuda", device.gpu)._get_c_device()


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


_FATAL_ONLY = 4  # ONNX Runtime's log level: what it refuses here, it refuses again where that is reported


def with_known_types(model: OnnxModel, dims: Mapping[str, int] | None = None) -> OnnxModel:
    """The model with the types of all values, without which the model cannot be cut at them; costs at `dims` follow from them.

    It stays as it is where no type is missing, or where ONNX Runtime cannot load it either.
    """
    asking = with_untyped_outputs(model)
    if asking is None:
        return model
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(model.path.resolve().parent)
    )
    try:
        register_custom_ops(options, model.custom_ops)
        session = ort.InferenceSession(asking, options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's errors have no base class of their own
        return model
    state_types(model, {arg.name: (arg.type, arg.shape) for arg in session.get_outputs()})
    return at_dims(model, dims or {})
