"""One part of a model as an ONNX Runtime session on one device: named values in, values out, nothing copied on a CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as native

from gnnplace.devices.real_names import parse_real
from gnnplace.executors.devices import RealDevice, create_session

__all__ = ["PartSession", "Value", "as_numpy", "memory_of"]

Value = Any
"""A tensor as ONNX Runtime's native OrtValue; strings, sequences and optionals as the Python objects of `run`."""

_HOST = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)


class PartSession:
    """A session and the names it exchanges.

    `run_with_ort_values` of ONNX Runtime's Python class spends some 50 us per call on wrapping its results, so the call
    below it, `run_with_ortvaluevector`, is used: with all conversions it takes 7 to 10 us.
    """

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
        types = [*self.session.get_inputs(), *self.session.get_overridable_initializers(), *self.session.get_outputs()]
        self._only_tensors = all(arg.type.startswith("tensor(") and arg.type != "tensor(string)" for arg in types)
        self._options = ort.RunOptions()
        self._everything_on_host = [_HOST] * len(self.outputs)

    def home_of(self, names: Collection[str]) -> list[Any]:
        """Where each output is left: `names` on this device, for its own later parts, the others on the host for all."""
        own = memory_of(self.device)
        if own is None:
            return self._everything_on_host
        return [own if name in names else _HOST for name in self.outputs]

    def shares_memory_with(self, reader: str) -> bool:
        """Whether sessions of another device read what this one leaves in its memory.

        Devices on one GPU do: every call ends with a synchronised stream. With the option `peer` those of other GPUs do too: ONNX
        Runtime copies from GPU to GPU when it is fed.
        """
        here, gpu = self.device.gpu, parse_real(reader).gpu
        return here is not None and (gpu == here or (self.device.peer and gpu is not None))

    def run(
        self, values: Mapping[str, Value], homes: Sequence[Any] | None = None, options: ort.RunOptions | None = None
    ) -> list[Value]:
        """The outputs, in the order of `outputs`; `homes` is what `home_of` gave."""
        if not self._only_tensors:
            feed = {name: as_numpy(value) for name, value in values.items()}
            return list(self.session.run(self.outputs, feed, options))
        feeds, fetches = native.OrtValueVector(), native.OrtValueVector()
        for value in values.values():
            feeds.push_back(value if isinstance(value, native.OrtValue) else _from_python(value))
        self.session.run_with_ortvaluevector(
            options or self._options, list(values), feeds, self.outputs, fetches, homes or self._everything_on_host
        )
        # By index: iterating over the vector costs 50 us.
        return [fetches[index] for index in range(len(self.outputs))]


def memory_of(device: RealDevice) -> Any:
    """A GPU's own memory, as ONNX Runtime names it; None where values are in that of the host."""
    return None if device.gpu is None else ort.OrtDevice.make("cuda", device.gpu)._get_c_device()


def as_numpy(value: Value) -> Any:
    """A value as `onnxruntime.InferenceSession.run` would return it; without a copy when it is on the host."""
    return value.numpy() if isinstance(value, native.OrtValue) else value


def _from_python(value: Any) -> Value:
    return native.OrtValue.ortvalue_from_numpy(np.asarray(value), _HOST)
