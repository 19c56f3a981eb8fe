"""One plain ONNX Runtime session of a whole model file on one device: what placed models are compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gnnplace.executors.devices import create_session, parse_device, pin, session_options

__all__ = ["PlainSession"]


class PlainSession:
    """The file as it is, on the calling thread, which stays pinned to the device while the context is open."""

    def __init__(self, path: Path, device_name: str, spinning: bool = False) -> None:
        """Loads the model; `spinning` lets the threads of a core set wait for work as ONNX Runtime does by default.

        Raises:
            InvalidTopology: the device is not on this machine.
            MissingDependency: ONNX Runtime has no provider for it.
        """
        self._device = parse_device(device_name)
        self._before = os.sched_getaffinity(0)
        self._session = create_session(path, self._device, options=session_options(self._device, spinning))

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """All outputs."""
        return list(self._session.run(None, dict(feed)))

    def __enter__(self) -> PlainSession:
        pin(self._device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.sched_setaffinity(0, self._before)
