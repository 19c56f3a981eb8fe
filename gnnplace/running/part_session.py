"""ONNX Runtime sessions of single parts, and a cache of them for searches that change few parts at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import onnxruntime as ort

from gnnplace.devices.real_names import RealDevice, parse_real
from gnnplace.onnx_io.part import Part
from gnnplace.running.devices import FATAL_ONLY, create_session, register_custom_ops
from gnnplace.running.values import HOST, Options, Value, as_numpy, device_memory, only_tensors, python_run, run_tensors

if TYPE_CHECKING:
    from gnnplace.onnx_io.model import OnnxModel
    from gnnplace.onnx_io.read import TypeText


SessionT = TypeVar("SessionT")


class PartSession:
    """The session of one part on its device."""

    def __init__(self, part: Part, device: RealDevice) -> None:
        self.session = create_session(
            part.model, device, part.data_folder, custom_ops=part.custom_ops, optimised=part.optimised
        )
        self.device = device
        self.outputs = list(part.outputs)
        self.run_python = python_run(self.session)
        """Takes and returns Python's values, as `onnxruntime.InferenceSession.run` does."""
        self._only_tensors = only_tensors(self.session)
        self._options = ort.RunOptions()
        self._all_on_host = [HOST] * len(self.outputs)

    def home_of(self, names: Collection[str]) -> list[Any]:
        """The memory for each output: this device's own for `names`, the host's for the others."""
        memory = device_memory(self.device)
        return self._all_on_host if memory is None else [memory.place if n in names else HOST for n in self.outputs]

    def shares_memory_with(self, reader: str) -> bool:
        """Sessions on the device `reader` can read outputs in this device's memory.

        Devices on one GPU can: every call ends with a synchronised stream.
        """
        here = self.device
        if here.gpu is None:
            return False
        other = parse_real(reader)
        return (other.gpu, other.host) == (here.gpu, here.host)

    def run(self, values: Mapping[str, Value], homes: Sequence[Any], options: Options = None) -> list[Value]:
        """The outputs in the order of `outputs`; `homes` is a result of `home_of`."""
        if not self._only_tensors:
            feed = {name: as_numpy(value) for name, value in values.items()}
            return list(self.run_python(self.outputs, feed, options))
        return run_tensors(self.session, self.outputs, values, homes, options or self._options)


class SessionCache:
    """Sessions by key, for several threads; a key must name the content and the device."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[type, Hashable], Any] = {}
        self._kept: dict[type, Any] = {}
        self._lock = Lock()

    def get(self, kind: type[SessionT], key: Hashable, create: Callable[[], SessionT]) -> SessionT:
        """The session of a kind with this key; `create` makes a missing one.

        `create` runs on the calling thread and outside the lock, so that devices load their sessions side by side.
        """
        with self._lock:
            session: SessionT | None = self._sessions.get((kind, key))
        if session is None:
            session = create()
            with self._lock:
                self._sessions[kind, key] = session
        return session

    def kept(self, kind: type[SessionT], create: Callable[[], SessionT]) -> SessionT:
        """The one object of a kind that all sessions share and `retain` keeps."""
        with self._lock:
            if kind not in self._kept:
                self._kept[kind] = create()
            kept: SessionT = self._kept[kind]
            return kept

    def retain(self, keys: Collection[Hashable]) -> None:
        """Drops all sessions but those of `keys`; sessions in use live on with their users."""
        with self._lock:
            self._sessions = {entry: session for entry, session in self._sessions.items() if entry[1] in keys}


def infer_types(model: bytes, source: OnnxModel) -> dict[str, TypeText]:
    """Type and shape of each output of a model, by name; empty if ONNX Runtime cannot load the model.

    `source` is the model that it derives from: its external weights and custom operators apply.
    """
    options = ort.SessionOptions()
    options.log_severity_level = FATAL_ONLY  # an error is reported again where the model is loaded to run
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(source.path.resolve().parent)
    )
    try:
        register_custom_ops(options, source.custom_ops)
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's errors have no base class of their own
        return {}
    return {arg.name: (arg.type, arg.shape) for arg in session.get_outputs()}
