"""One part of a model as an ONNX Runtime session on one device: named values in, values out, nothing copied on a CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from gnnplace.devices.real_names import parse_real
from gnnplace.executors.devices import RealDevice, create_session
from gnnplace.executors.values import HOST, Value, as_numpy, only_tensors, python_run, run_tensors

__all__ = ["PartSession", "memory_of"]


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
