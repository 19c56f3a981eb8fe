"""A process that does one piece of work after the other, and may crash doing it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Generic, TypeVar

from gnnplace.child_processes import end_with_parent
from gnnplace.errors import ProcessLost

__all__ = ["IsolatedProcess"]

A = TypeVar("A")
R = TypeVar("R")


class IsolatedProcess(Generic[A, R]):
    """Does `work` in a process of its own, which starts when it is needed, and again after it ended; close it in the end."""

    def __init__(self, work: Callable[[A], R], limit_s: float) -> None:
        """`work` can be pickled, and so can what it takes and gives; a piece of it may take `limit_s`."""
        self._work, self.limit_s = work, limit_s
        self._process: SpawnProcess | None = None
        self._connection: Connection[Any, Any] | None = None

    def ask(self, argument: A) -> R:
        """What `work` gives.

        Raises:
            ProcessLost: the process has crashed, or was ended for taking too long.
        """
        if self._connection is None:
            self._start()
        assert self._connection is not None
        try:
            self._connection.send(argument)
            if not self._connection.poll(self.limit_s):
                raise ProcessLost(f"took longer than {self.limit_s:.3g} s")
            answer: R = self._connection.recv()
        except (EOFError, OSError):
            raise ProcessLost(f"the process ended with {self._how()}") from None
        except BaseException:  # Ctrl-C too: the answer would be taken for that to the next question
            self.close()
            raise
        return answer

    def close(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def __enter__(self) -> IsolatedProcess[A, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._work, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def _how(self) -> str:
        """How the process ended; it is gone afterwards."""
        assert self._process is not None
        self._process.join(5.0)  # a broken pipe is seen before the end of the process
        code = self._process.exitcode
        self.close()
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _serve(work: Callable[[Any], Any], connection: Connection[Any, Any]) -> None:
    """The life of the process; what a runtime writes about its errors is in their messages too."""
    end_with_parent()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with suppress(EOFError):
        while True:
            connection.send(work(connection.recv()))
