"""Limits of another process: seconds and memory."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Literal

import psutil

__all__ = ["ProcessWatch"]

_INTERVAL_S = 0.05  # some 10 us of work each time; one core fills some 100 MB meanwhile


class ProcessWatch(Thread):
    """Kills a process that takes too long or too much resident memory, as long as the context is open.

    It looks from outside, as limits of the system count addresses: thread stacks, files that are mapped, what a runtime
    reserves. It is a thread, as a process that is stopped reads nothing: sending it a long message would last for ever.
    """

    def __init__(self, process: subprocess.Popen[bytes], limit_s: float, allowed_bytes: int) -> None:
        super().__init__(name="gnnplace-watch", daemon=True)
        self.broken: Literal["time", "memory"] | None = None
        """The limit at which the process was killed."""
        self._process, self._limit_s, self._allowed_bytes = process, limit_s, allowed_bytes
        self._over = Event()

    def run(self) -> None:
        """Looks at the process time and again."""
        deadline_s = time.monotonic() + self._limit_s
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            while self.broken is None and not self._over.wait(_INTERVAL_S):
                if time.monotonic() > deadline_s:
                    self.broken = "time"
                elif process.memory_info().rss > self._allowed_bytes:
                    self.broken = "memory"
            if self.broken is not None:
                self._process.kill()

    def __enter__(self) -> ProcessWatch:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()
