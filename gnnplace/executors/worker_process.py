"""A separate process that runs placed models, so that a crash, a lack of memory or a hang is a result.

The process is a fresh interpreter that imports this module and nothing of the program that measures: neither torch nor
DGL, and no second run of a script without a main guard, as `multiprocessing` would cause.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Hashable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import IO, Any

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.executors.measure import StoppingRule, interleaved
from gnnplace.executors.runner import PlacedRunner
from gnnplace.executors.session_cache import SessionCache

__all__ = ["Answer", "Job", "Setup", "WorkerProcess", "main"]

_START_S = 120.0  # importing ONNX Runtime from a cold disk on a busy machine
_PROGRAM = "from gnnplace.executors.worker_process import main; main({})"


@dataclass(frozen=True, eq=False)
class Setup:
    """What all jobs of a worker share."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    feed: Mapping[str, Any]
    """An array for every input that must be given."""
    kept_jobs: int
    """The sessions of this many last jobs stay loaded; those of older ones make room."""


@dataclass(frozen=True)
class Job:
    """Placed models to be measured side by side, the reference last."""

    candidates: tuple[tuple[RunnerPart, ...], ...]
    rule: StoppingRule


@dataclass(frozen=True, eq=False)
class Answer:
    """`[C, R]` seconds, or why there are none."""

    samples: FloatArray | None
    failure: str = ""
    culprit: int | None = None
    """The candidate that failed; None when the process ended and nobody can tell."""
    executing_s: float = 0.0
    """Of the job, in which models ran; the rest went into sessions."""
    part_s: tuple[FloatArray, ...] = ()
    """For each candidate `[P]` median seconds of its parts, handing over included; empty for a model in one piece."""


class WorkerProcess:
    """The parent's side: the process starts when it is needed, and again after it died; close it in the end."""

    def __init__(self, setup: Setup, timeout_s: float) -> None:
        self._setup = setup
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._errors: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process; None when there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def ask(self, job: Job) -> Answer:
        """What became of the job; never an exception for what the job does.

        Raises:
            MeasurementFailed: the process cannot even be started.
        """
        if self.pid is None:
            self._start()
        assert self._connection is not None
        try:
            self._connection.send(job)
            if not self._connection.poll(self._timeout_s):
                self.close()
                return Answer(None, f"took longer than {self._timeout_s:g} s; the measuring process was stopped")
            answer: Answer = self._connection.recv()
            return answer
        except (EOFError, ConnectionError):
            return Answer(None, f"the measuring process ended with {self._last_words()}")
        except BaseException:  # Ctrl-C: an answer that still comes would be taken for that of the next job
            self.close()
            raise

    def close(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for end in (self._connection, self._errors):
            if end is not None:
                end.close()
        self._process = self._connection = self._errors = None

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self.close()
        self._connection, theirs = multiprocessing.Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the parent's may have to be one JSON object
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        theirs.close()
        try:
            self._connection.send(self._setup)
            if not self._connection.poll(_START_S):
                raise TimeoutError
            self._connection.recv()
        except (OSError, EOFError):
            raise MeasurementFailed(f"the measuring process does not start: {self._last_words()}") from None

    def _last_words(self) -> str:
        """How the process ended, and the last line that it wrote; the process is gone afterwards."""
        assert self._process is not None
        assert self._errors is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)  # a broken pipe is seen before the end of the process
        code = self._process.poll()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self.close()
        if code is None:
            how = "no answer"
        elif code == -signal.SIGKILL:
            how = "signal SIGKILL (out of memory?)"
        elif code < 0:
            how = f"signal {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        return f"{how}: {last}" if last else how


def main(descriptor: int) -> None:
    """The life of the worker: one setup, then a job after the other until the parent hangs up."""
    Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    with Connection(descriptor) as connection, suppress(EOFError, ConnectionError):
        setup: Setup = connection.recv()
        connection.send(None)
        cache = SessionCache()
        recent: deque[set[Hashable]] = deque(maxlen=setup.kept_jobs)
        while True:
            job: Job = connection.recv()
            recent.append({(part.key, part.device) for parts in job.candidates for part in parts})
            cache.retain({key for keys in recent for key in keys})
            connection.send(_measure(setup, job, cache))


def _leave_with(parent: int) -> None:
    """Ends the process when its parent has died, also in the middle of a job that would go on for ever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _measure(setup: Setup, job: Job, cache: SessionCache) -> Answer:
    with ExitStack() as stack:
        runners: list[PlacedRunner] = []
        current = 0
        part_s: list[list[list[float]]] = [[] for _ in job.candidates]

        def call(index: int) -> None:
            nonlocal current
            current = index
            runners[index].run(None, setup.feed)
            found = runners[index].part_s
            part_s[index].append([found[number] for number in sorted(found)])

        try:
            for current, parts in enumerate(job.candidates):  # noqa: B007  # read when creating one fails
                runners.append(stack.enter_context(PlacedRunner(parts, setup.inputs, setup.outputs, cache)))
            begin_s = time.perf_counter()
            samples = interleaved([partial(call, index) for index in range(len(runners))], job.rule)
            executing_s = time.perf_counter() - begin_s
            medians = tuple(np.median(rows[job.rule.warmup :], axis=0) for rows in part_s)
            return Answer(samples, executing_s=executing_s, part_s=medians)
        except Exception as error:  # whatever happens in here is what the parent asked to know
            what = str(error) if isinstance(error, GnnplaceError) else f"{type(error).__name__}: {error}"
            return Answer(None, what.split("\n")[0] or type(error).__name__, current)
