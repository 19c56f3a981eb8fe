"""One step of the model under way: what came out, which devices are done, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.errors import GnnplaceError
from gnnplace.executors.values import Value, as_numpy

__all__ = ["Request"]

_NOWHERE: Mapping[str, frozenset[str]] = {}


class Request:
    """Shared by all devices that work on it; what is in `on_end` is called once, on the thread that ends it."""

    def __init__(
        self,
        wanted: Collection[str],
        options: ort.RunOptions | None,
        num_devices: int,
        stays: Mapping[str, frozenset[str]] = _NOWHERE,
    ) -> None:
        self.number = 0
        """Older requests have smaller ones and go first."""
        self.wanted = frozenset(wanted)
        self.options = options
        self.stays = stays
        """Of each device, the outputs that are left in its memory because the next request reads them there."""
        self.results: dict[str, Value] = {}
        """The wanted outputs, on the host."""
        self.resident: dict[str, Value] = {}
        """The outputs that stay, where they were made."""
        self.part_s: dict[int, float] = {}
        """By position in the run order, what each part took, handing over included."""
        self.failure: GnnplaceError | None = None
        self.on_end: list[Callable[[Request], object]] = []
        self._devices_left = num_devices
        self._lock = Lock()

    @property
    def stopped(self) -> bool:
        """It has failed, so nobody has to go on with it."""
        return self.failure is not None

    def device_done(self) -> None:
        """A device has run its last part, and all that others need of it is on its way."""
        with self._lock:
            self._devices_left -= 1
            ends = self._devices_left == 0 and self.failure is None
        if ends:
            self._end()

    def fail(self, failure: GnnplaceError) -> None:
        """Ends it, unless it has ended before."""
        with self._lock:
            ends = self._devices_left > 0 and self.failure is None
            if ends:
                self.failure = failure
        if ends:
            self._end()

    def _end(self) -> None:
        calls, self.on_end = self.on_end, []  # a worker remembers its last request, and so would all that they hold
        for call in calls:
            call(self)

    def outputs(self, names: Sequence[str], input_feed: Mapping[str, Any]) -> list[Any]:
        """The named outputs of a request that has ended, as `onnxruntime.InferenceSession.run` returns them.

        Raises:
            GnnplaceError: it failed.
        """
        if self.failure is not None:
            raise self.failure
        results = self.results
        found = [as_numpy(results[name]) if name in results else np.array(as_numpy(input_feed[name])) for name in names]
        self.results, self.resident = {}, {}
        return found
