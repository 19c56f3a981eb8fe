"""Child processes, which end with their parent: a pool, and one for calls that may crash, hang or exhaust memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, Generic, Literal, Self, TypeVar

import psutil

from gnnplace.errors import ProcessLost
from gnnplace.host_memory import control_group_bytes
from gnnplace.units import format_bytes

A = TypeVar("A")
R = TypeVar("R")

START_S = 120.0
"""Seconds that a process may take to start by default: a cold disk and a busy machine delay the import of libraries."""
_SHARE_OF_AVAILABLE = 0.9
_CHECK_INTERVAL_S = 0.05  # a check takes some 10 us; one core fills some 100 MB in between
_LAST_BYTES = 2**14
_PROGRAM = "from gnnplace.isolated_process import main; main({}, {})"


class ProcessEnded(ProcessLost):
    """The process ended before it answered a call."""

    def __init__(self, message: str, cause: Literal["time", "memory", "lost"], starting: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        """The limit at which the process was stopped; `lost` if it ended for another reason."""
        self.starting = starting
        """Whether the process ended before it could take its first call."""


def available_memory_bytes() -> int:
    """Bytes that this process can still take: the least of what the machine and each of its control groups have left."""
    left = [int(psutil.virtual_memory().available), *(limit - used for limit, used in control_group_bytes())]
    return max(0, min(left))


def spawned_pool(num_processes: int) -> ProcessPoolExecutor:
    """Fresh processes for work that can be pickled: a fork of one that has run torch or compiled code with threads may hang."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(num_processes, mp_context=context, initializer=end_with_parent)


def end_with_parent() -> None:
    """Makes this process, which `multiprocessing` has started, end at once when its parent is gone, also when killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait_and_end() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait_and_end, daemon=True).start()


class IsolatedProcess(Generic[A, R]):
    """A child process that answers one call after the other; close it, or use it as a context.

    The process starts at the first call, and again at the first call after it ended. In each new process `prepare` runs
    once and returns the function that answers the calls; what that function holds lives as long as the process. `prepare`,
    arguments and results are pickled. An exception in the function ends the process. The process ignores Ctrl-C, ends
    with its parent, and is the first that the system kills when memory runs out.
    """

    def __init__(
        self, prepare: Callable[[], Callable[[A], R]], name: str = "process", memory_limit_bytes: int | None = None
    ) -> None:
        """Stores a function of a module or a partial of one, and the name of the process in messages.

        The process is stopped above `memory_limit_bytes` of resident memory; None: 90 % of the memory available at its start.
        """
        self._prepare, self._name, self._memory_limit_bytes = prepare, name, memory_limit_bytes
        self._allowed_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._errors: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the running process; None when there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self, limit_s: float = START_S) -> None:
        """Starts the process unless it runs.

        Raises:
            ProcessEnded: it could not be started, or was not ready in `limit_s`.
        """
        if self.pid is not None:
            return
        self.close()
        self._allowed_bytes = self._memory_limit_bytes or int(_SHARE_OF_AVAILABLE * available_memory_bytes())
        self._connection, theirs = multiprocessing.Pipe()
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM.format(theirs.fileno(), os.getpid())],
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the parent's may have to be one JSON object
                stderr=self._errors,  # a file, as a pipe without a reader would fill up
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
            theirs.close()
            self._exchange(self._prepare, limit_s)
        except OSError as error:
            raise ProcessEnded(str(error), "lost", starting=True) from None
        except ProcessEnded as end:
            raise ProcessEnded(str(end), end.cause, starting=True) from None
        finally:
            theirs.close()

    def call(self, argument: A, limit_s: float) -> R:
        """The result for one argument. The limit does not include starting the process.

        Raises:
            ProcessEnded: the process crashed, or was stopped at a limit.
        """
        self.start()
        result: R = self._exchange(argument, limit_s)
        return result

    def close(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for end in (self._connection, self._errors):
            if end is not None:
                end.close()
        self._process = self._connection = self._errors = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, message: object, limit_s: float) -> Any:
        """Sends a message and returns the reply; without a reply the process is closed."""
        assert self._process is not None
        assert self._connection is not None
        assert self._errors is not None
        try:
            with _Watch(self._process, limit_s, self._allowed_bytes) as watch:
                self._connection.send(message)
                reply = self._connection.recv()
        except (EOFError, OSError):
            how = self._last_words()
            if watch.broken == "time":
                why = f"took longer than {limit_s:.3g} s; the {self._name} was stopped"
            elif watch.broken == "memory":
                why = f"out of memory: more than {format_bytes(self._allowed_bytes)}; the {self._name} was stopped"
            else:
                why = f"the {self._name} ended with {how}"
            raise ProcessEnded(why, watch.broken or "lost") from None
        except BaseException:  # Ctrl-C: a late reply would be taken for the reply to the next message
            self.close()
            raise
        self._errors.seek(0)
        self._errors.truncate()  # the next error message must not quote output of this call
        if watch.broken is not None:  # at the very moment of the reply
            self.close()
        return reply

    def _last_words(self) -> str:
        """Exit code or signal of the process, and the last line on its standard error; closes the process."""
        assert self._process is not None
        assert self._errors is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)  # the pipe breaks before the process has ended
        code = self._process.poll()
        self._errors.seek(-min(_LAST_BYTES, self._errors.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = self._errors.read().decode("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self.close()
        if code is None:
            how = "no answer"
        elif code == -signal.SIGKILL:
            how = "signal SIGKILL (from outside: somebody, or the system for lack of memory)"
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{how}: {last}" if last else how


class _Watch(Thread):
    """Kills a process that exceeds its time or resident memory while the context is open.

    It checks from outside, because the system's limits count addresses: thread stacks, mapped files, what a runtime
    reserves. It is a thread, because sending a long message to a process that is stopped blocks for ever.
    """

    def __init__(self, process: subprocess.Popen[bytes], limit_s: float, allowed_bytes: int) -> None:
        super().__init__(name="gnnplace-watch", daemon=True)
        self.broken: Literal["time", "memory"] | None = None
        """The limit at which the process was killed."""
        self._process, self._limit_s, self._allowed_bytes = process, limit_s, allowed_bytes
        self._over = Event()

    def run(self) -> None:
        deadline_s = time.monotonic() + self._limit_s
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            while self.broken is None and not self._over.wait(_CHECK_INTERVAL_S):
                if time.monotonic() > deadline_s:
                    self.broken = "time"
                elif process.memory_info().rss > self._allowed_bytes:
                    self.broken = "memory"
            if self.broken is not None:
                self._process.kill()

    def __enter__(self) -> _Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def main(descriptor: int, parent: int) -> None:
    """Runs in the child: receives `prepare`, then answers calls until the parent closes the connection."""
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(OSError):  # only Linux has it: when memory runs out, the system kills this process and not its parent
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with Connection(descriptor) as connection:
        function = connection.recv()()
        connection.send(None)
        while True:
            try:
                argument = connection.recv()
            except (EOFError, ConnectionError):
                return
            connection.send(function(argument))


def _end_with(parent: int) -> None:
    """Ends this process when its parent has died, also in the middle of an endless call."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
