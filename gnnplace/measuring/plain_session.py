"""One plain ONNX Runtime session of a whole model file on one device: the reference for placed models."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnxruntime as ort

from gnnplace.running.devices import create_session, parse_device, pinned, session_options
from gnnplace.running.values import python_run


class PlainSession:
    """A session of an unchanged model file; as a context it pins the calling thread to its device."""

    def __init__(self, path: Path, device_name: str, optimised: bool = True) -> None:
        """Loads an ONNX file on a real device, such as `cpu:0`; `optimised` lets ONNX Runtime fuse and fold ops.

        Raises:
            InvalidTopology: the device is not on this machine.
            MissingDependency: ONNX Runtime has no provider for it.
        """
        self._device = parse_device(device_name)
        self._pinned = ExitStack()
        options = session_options(self._device)
        if not optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        with pinned(self._device):
            session = create_session(path, self._device, options=options)
        self._run = python_run(session)
        self.inputs = tuple(arg.name for arg in session.get_inputs())
        """Names of the required inputs."""

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """All outputs."""
        return list(self._run(None, dict(feed)))

    def __enter__(self) -> PlainSession:
        self._pinned.enter_context(pinned(self._device))
        return self

    def __exit__(self, *_: object) -> None:
        self._pinned.close()
