"""Limits of another process: seconds and memory."""

from __future__ import annotations

import dataclasses
import math
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
from threading import Event, Thread
from types import TracebackType
from typing import IO, Any, Literal

import numpy as np
import psutil

from gnnplace.arrays import FloatArray
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.evaluation import DimsObjective
from gnnplace.measuring.plain_session import ProfileJob, profiled_samples
from gnnplace.measuring.timing import StoppingRule, interleaved, run_pipelined
from gnnplace.running.dataflow import RunnerPart
from gnnplace.running.part_session import SessionCache
from gnnplace.running.runner import PlacedRunner
from gnnplace.units import format_bytes

__all__ = ["Answer", "Job", "ProcessWatch", "Setup", "WorkerProcess", "main"]


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


_START_S = 120.0  # importing ONNX Runtime from a cold disk on a busy machine
_SHARE_OF_AVAILABLE = 0.9
_LAST_BYTES = 2**14
_TRIES = 2
_PROGRAM = "from gnnplace.measuring.worker_process import main; main({})"


@dataclass(frozen=True, eq=False)
class Setup:
    """What all jobs of a worker share."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    feed: Mapping[str, Any]
    """An array for every input that must be given."""
    kept_jobs: int
    """The sessions of this many last jobs stay loaded; those of older ones make room."""
    other_feeds: tuple[Mapping[str, Any], ...] = ()
    """The same inputs in other sizes; each repeat then runs all."""
    dims_objective: DimsObjective = "worst"
    """Which of their seconds counts."""


@dataclass(frozen=True)
class Job:
    """Placed models to be measured side by side, the reference last."""

    candidates: tuple[tuple[RunnerPart, ...], ...]
    rule: StoppingRule
    limit_s: float = math.inf
    """For loading and running all of them, where that is less than the process's own limit."""
    requests: int = 1
    """That make one repeat, pipelined when there are several; seconds are per request."""


@dataclass(frozen=True, eq=False)
class Answer:
    """`[C, R]` seconds, or why there are none."""

    samples: FloatArray | None
    failure: str = ""
    culprit: int | None = None
    """The candidate that failed; None when the process ended and nobody can tell."""
    executing_s: float = 0.0
    """Of the job, in which models ran."""
    loading_s: float = 0.0
    """Of the job, which went into sessions."""
    part_s: tuple[FloatArray, ...] = ()
    """For each candidate but the reference `[P]` seconds of its parts on a quiet machine, handing over included; empty for a model in one
    piece. Nothing for pipelined requests, whose parts run between each other."""
    retries: int = 0
    """How often the process was lost for no fault of the job, and the job tried again."""


class _Ended(Exception):
    """The process is gone: it was stopped at a limit, never began, or was lost."""

    def __init__(self, why: str, cause: Literal["time", "memory", "start", "lost"]) -> None:
        super().__init__(why)
        self.cause = cause


class WorkerProcess:
    """The parent's side: the process starts when it is needed, and again after it died; close it in the end."""

    def __init__(self, setup: Setup, timeout_s: float, memory_limit_bytes: int | None = None) -> None:
        """`timeout_s` is for each try of a job; the memory limit, when None, 90 % of what is available at each start."""
        self._setup = setup
        self._timeout_s = timeout_s
        self._memory_limit_bytes = memory_limit_bytes
        self._allowed_bytes = 0
        self._has_worked = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._errors: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process; None when there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def ask(self, job: Job | ProfileJob) -> Answer:
        """What became of the job; never an exception for what the job does.

        When the process is lost, or runs out of memory while it holds sessions of earlier jobs, the job is tried once
        more in a fresh one.

        Raises:
            MeasurementFailed: the process could not even be started once.
        """
        lost: list[str] = []
        while len(lost) < _TRIES:
            fresh = self.pid is None
            try:
                if fresh:
                    self._start()
                answer: Answer = self._exchange(job, min(job.limit_s, self._timeout_s))
                return dataclasses.replace(answer, retries=len(lost))
            except _Ended as end:
                if end.cause == "time" or (end.cause == "memory" and fresh):
                    return Answer(None, str(end), retries=len(lost))
                lost.append(str(end))
        if not self._has_worked:
            raise MeasurementFailed(lost[-1])
        return Answer(None, f"tried twice: {lost[0]}; {lost[1]}", retries=1)

    def samples(self, job: Job | ProfileJob, what: str) -> FloatArray:
        """`[C, R]` seconds of a job that has to succeed; `what` it does begins the message when it does not.

        Raises:
            MeasurementFailed: there are no seconds; the message says why.
        """
        answer = self.ask(job)
        if answer.samples is None:
            raise MeasurementFailed(f"{what}: {answer.failure}")
        return answer.samples

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
        """Starts the process and tells it the setup."""
        self.close()
        self._allowed_bytes = self._memory_limit_bytes or int(_SHARE_OF_AVAILABLE * psutil.virtual_memory().available)
        self._connection, theirs = multiprocessing.Pipe()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the parent's may have to be one JSON object
                stderr=self._errors,  # a file, as a pipe that nobody reads would fill up
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
            theirs.close()
            self._exchange(self._setup, _START_S)
        except (OSError, _Ended) as error:
            raise _Ended(f"cannot begin to measure: {error}", "start") from None
        finally:
            theirs.close()
        self._has_worked = True

    def _exchange(self, message: Setup | Job | ProfileJob, limit_s: float) -> Any:
        """The reply of the process to a message.

        Raises:
            _Ended: there is none; the process is closed.
        """
        assert self._process is not None
        assert self._connection is not None
        assert self._errors is not None
        try:
            with ProcessWatch(self._process, limit_s, self._allowed_bytes) as watch:
                self._connection.send(message)
                reply = self._connection.recv()
        except (EOFError, OSError):
            how = self._last_words()
            if watch.broken == "time":
                raise _Ended(f"took longer than {limit_s:.3g} s; the measuring process was stopped", "time") from None
            if watch.broken == "memory":
                allowed = format_bytes(self._allowed_bytes)
                raise _Ended(
                    f"out of memory: more than {allowed}; the measuring process was stopped", "memory"
                ) from None
            raise _Ended(f"the measuring process ended with {how}", "lost") from None
        except BaseException:  # Ctrl-C: a reply that still comes would be taken for that to the next message
            self.close()
            raise
        self._errors.seek(0)
        self._errors.truncate()  # what was written belongs to this message
        if watch.broken is not None:  # at the very moment of the reply
            self.close()
        return reply

    def _last_words(self) -> str:
        """How the process ended, and the last line that it wrote; the process is gone afterwards."""
        assert self._process is not None
        assert self._errors is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)  # a broken pipe is seen before the end of the process
        code = self._process.poll()
        self._errors.seek(-min(_LAST_BYTES, self._errors.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = self._errors.read().decode("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self.close()
        if code is None:
            how = "no answer"
        elif code == -signal.SIGKILL:
            how = "signal SIGKILL (from outside: somebody, or the system for lack of memory)"
        elif code < 0:
            how = f"signal {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        return f"{how}: {last}" if last else how


def main(descriptor: int) -> None:
    """The life of the worker: one setup, then a job after the other until the parent hangs up."""
    Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    with suppress(OSError):  # only Linux has it: when memory runs out, this process goes and not the search
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with Connection(descriptor) as connection, suppress(EOFError, OSError):
        setup: Setup = connection.recv()
        connection.send(None)
        cache = SessionCache()
        recent: deque[set[Hashable]] = deque(maxlen=setup.kept_jobs)
        while True:
            job: Job | ProfileJob = connection.recv()
            if isinstance(job, ProfileJob):
                connection.send(_profile(setup, job))
                continue
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
        start_s = time.perf_counter()

        def run(index: int, feed: Mapping[str, Any]) -> float:
            begin_s = time.perf_counter()
            if job.requests > 1:
                run_pipelined(runners[index], feed, job.requests)
            else:
                runners[index].run(None, feed)
            return time.perf_counter() - begin_s

        def call(index: int) -> float | None:
            nonlocal current
            current = index
            taken_s = [run(index, feed) for feed in (setup.feed, *setup.other_feeds)]
            if setup.other_feeds:
                return float((np.mean if setup.dims_objective == "mean" else np.max)(taken_s))
            if job.requests > 1:
                return None
            found = runners[index].part_s
            part_s[index].append([found[number] for number in sorted(found)])
            return None

        try:
            for current, parts in enumerate(job.candidates):  # noqa: B007  # read when creating one fails
                runners.append(stack.enter_context(PlacedRunner(parts, setup.inputs, setup.outputs, cache)))
            begin_s = time.perf_counter()
            samples = interleaved([partial(call, index) for index in range(len(runners))], job.rule) / job.requests
            executing_s = time.perf_counter() - begin_s
            measured = list(zip(part_s, samples, strict=True))[: max(1, len(samples) - 1)]
            quiet = tuple(_quiet_part_s(rows, row_s) for rows, row_s in measured if rows)
            return Answer(samples, executing_s=executing_s, loading_s=begin_s - start_s, part_s=quiet)
        except Exception as error:  # whatever happens in here is what the parent asked to know
            return _failed(error, current)


def _profile(setup: Setup, job: ProfileJob) -> Answer:
    try:
        return Answer(profiled_samples(job, setup.feed))
    except Exception as error:  # as in `_measure`
        return _failed(error, 0)


def _failed(error: Exception, culprit: int) -> Answer:
    what = str(error) if isinstance(error, GnnplaceError) else f"{type(error).__name__}: {error}"
    return Answer(None, what.split("\n")[0] or type(error).__name__, culprit)


def _quiet_part_s(rows: list[list[float]], total_s: FloatArray) -> FloatArray:
    """`[P]` mean seconds of the parts in the fastest quarter of the repeats `[R]`; the first rows are of runs that do not count.

    Not quantiles of each part, whose sum would be less than what any run takes.
    """
    counted = np.array(rows[len(rows) - len(total_s) :])
    return np.asarray(counted[total_s <= np.quantile(total_s, 0.25)].mean(axis=0))
