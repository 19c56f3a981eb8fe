"""Runs a placed model: one worker thread per device runs its parts in order and passes values on as they appear.

A worker is a loop around its inbox. It never waits for anything else, so there is nothing to unlock when a part fails:
the run is marked as stopped, and the next run simply begins with the next message. A handover through a
`queue.SimpleQueue` takes 25 us between two cores here, a condition variable twice that, and short spinning gains nothing
under the interpreter lock. ONNX Runtime releases that lock while it computes.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.errors import GnnplaceError, InvalidInput, MeasurementFailed
from gnnplace.executors.dataflow import START, RunnerPart, Step, plan_steps
from gnnplace.executors.devices import RealDevice, parse_device, pin, pinned
from gnnplace.executors.part_session import PartSession, Value, as_numpy
from gnnplace.executors.session_cache import SessionCache

__all__ = ["PlacedRunner"]


class PlacedRunner:
    """Sessions of all parts, ready to run again and again; close it, or use it as a context.

    Sessions are created once, each on the thread that will run it. When all parts are on one device there is no
    worker: the calling thread runs them, pinned to the device's core for as long as that takes. Runs are
    serialised: a second caller waits for the first.
    """

    def __init__(
        self,
        parts: Sequence[RunnerPart],
        inputs: Sequence[str],
        outputs: Sequence[str],
        cache: SessionCache | None = None,
    ) -> None:
        """Creates all sessions. `parts` are in a global run order; `inputs` and `outputs` are those of the model.

        Raises:
            InvalidPlacement: the parts do not fit together.
            InvalidTopology: a device is not on this machine.
            MissingDependency: ONNX Runtime has no provider for a device.
            MeasurementFailed: ONNX Runtime refuses a part; the message names it.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        steps, self._feeds = plan_steps(parts, inputs, outputs)
        read = {name for part in parts for name in part.inputs}.union(outputs) - _defaulted(parts)
        self._required = tuple(name for name in inputs if name in read)
        self.part_s: dict[int, float] = {}
        """Seconds of each part in the last run, handing over included, by its position in the run order; empty for a model in one piece."""
        self._lock = Lock()
        self._closed = False
        self._workers = [_Worker(parse_device(name), device_steps) for name, device_steps in steps.items()]
        self._inline = self._workers[0] if len(self._workers) == 1 else None
        self._direct: PartSession | None = None
        if self._inline:
            with pinned(self._inline.device):
                self._inline.create_sessions(cache)
            if len(parts) == 1 and set(outputs) <= set(parts[0].outputs):
                self._direct = self._inline.compiled[0][1]
            return
        inboxes = {worker.device.name: worker.inbox for worker in self._workers}
        self._finalizer = weakref.finalize(self, _stop, list(inboxes.values()))
        ready: SimpleQueue[GnnplaceError | None] = SimpleQueue()
        for worker in self._workers:
            worker.peers = inboxes
            worker.thread = Thread(target=worker.serve, args=(cache, ready), name=worker.device.name, daemon=True)
            worker.thread.start()
        failures = [failure for failure in [ready.get() for _ in self._workers] if failure is not None]
        if failures:
            self.close()
            raise failures[0]

    @property
    def in_one_piece(self) -> bool:
        """The whole model is one session, which checks its inputs itself."""
        return self._direct is not None

    @property
    def sessions(self) -> list[ort.InferenceSession]:
        """Of all parts, in the global run order."""
        pairs = [(step.number, part.session) for worker in self._workers for step, part in worker.compiled]
        return [session for _, session in sorted(pairs, key=lambda pair: pair[0])]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: ort.RunOptions | None = None,
    ) -> list[Any]:
        """The outputs of one step, like `onnxruntime.InferenceSession.run`.

        Raises:
            MeasurementFailed: a part failed, and the others were stopped; the message names it.
            InvalidInput: an input is missing, an output is unknown, or the runner is closed.
        """
        wanted = output_names or self.outputs
        if self._direct is not None:
            return self._run_directly(self._direct, wanted, input_feed, run_options)
        self._check_names(wanted, input_feed)
        run = _Run(run_options)
        with self._lock:
            if self._inline:
                with pinned(self._inline.device):
                    self._inline.run_alone(run, input_feed)
            elif self._workers:
                self._run_on_workers(run, input_feed)
        values = [as_numpy(run.results[name]) if name in run.results else np.array(input_feed[name]) for name in wanted]
        run.results.clear()  # a worker remembers its last run
        self.part_s = run.part_s
        return values

    def _run_directly(
        self, session: PartSession, wanted: Sequence[str], input_feed: Mapping[str, Any], options: ort.RunOptions | None
    ) -> list[Any]:
        """A model in one piece goes to its session as it is; ONNX Runtime's own checks do, ours say what was wrong."""
        try:
            with self._lock, pinned(session.device):
                return list(session.session.run(wanted, input_feed, options))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            self._check_names(wanted, input_feed)
            raise MeasurementFailed(f"the model failed on {session.device.name!r}: {_one_line(error)}") from error

    def _check_names(self, wanted: Sequence[str], input_feed: Mapping[str, Any]) -> None:
        if self._closed:
            raise InvalidInput("the runner is closed; make a new one")
        for name in wanted:
            if name not in self.outputs:
                raise InvalidInput(f"{name!r} is no output of the model; it has {', '.join(self.outputs)}")
        for name in self._required:
            if name not in input_feed:
                raise InvalidInput(f"the model input {name!r} is missing; given are {', '.join(input_feed) or 'none'}")

    def _run_on_workers(self, run: _Run, input_feed: Mapping[str, Any]) -> None:
        try:
            for worker in self._workers:
                names = self._feeds[worker.device.name]
                worker.inbox.put((run, START, {name: input_feed[name] for name in names if name in input_feed}))
            for _ in self._workers:
                failure = run.finished.get()
                if failure is not None:
                    raise failure
        finally:
            run.stopped = True

    def close(self) -> None:
        """Ends the worker threads; sessions in a cache stay there."""
        self._closed = True
        self._direct = None
        if self._inline is None:
            _stop([worker.inbox for worker in self._workers])
            for worker in self._workers:
                if worker.thread is not None:
                    worker.thread.join()
        for worker in self._workers:
            worker.compiled = []

    def __enter__(self) -> PlacedRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Run:
    """One step of the model: what came out, who is done, and whether to go on."""

    def __init__(self, options: ort.RunOptions | None) -> None:
        self.options = options
        self.results: dict[str, Value] = {}
        self.finished: SimpleQueue[GnnplaceError | None] = SimpleQueue()
        self.stopped = False
        self.part_s: dict[int, float] = {}


_Message = tuple[_Run, int, dict[str, Value]]
"""A run, the part that delivers (or `START`), and the values."""


class _Worker:
    """One device: its steps in order, and the values that are on it."""

    def __init__(self, device: RealDevice, steps: Sequence[Step]) -> None:
        self.device = device
        self.steps = steps
        self.inbox: SimpleQueue[_Message | None] = SimpleQueue()
        self.peers: Mapping[str, SimpleQueue[_Message | None]] = {}
        self.thread: Thread | None = None
        self.compiled: list[tuple[Step, PartSession]] = []
        self._homes: list[list[Any]] = []

    def create_sessions(self, cache: SessionCache | None) -> None:
        """Creates the session of every step, or takes it from the cache."""
        for step in self.steps:
            try:
                session = self._session(step.part, cache)
            except GnnplaceError:
                raise
            except Exception as error:  # ONNX Runtime's errors have no base class of their own
                raise MeasurementFailed(
                    f"part {step.part.name!r} cannot be loaded on {self.device.name!r}: {_one_line(error)}"
                ) from error
            self.compiled.append((step, session))
            self._homes.append(session.home_of(session.stays(step)))

    def _session(self, part: RunnerPart, cache: SessionCache | None) -> PartSession:
        def create() -> PartSession:
            return PartSession(part.model, self.device, part.outputs, part.data_folder)

        if cache is None or part.key is None:
            return create()
        return cache.get((part.key, self.device.name), create)

    def serve(self, cache: SessionCache | None, ready: SimpleQueue[GnnplaceError | None]) -> None:
        """The life of the worker's thread: compile, then run steps as far as the messages allow, until told to end."""
        try:
            pin(self.device)
            self.create_sessions(cache)
        except GnnplaceError as error:
            ready.put(error)
            return
        ready.put(None)
        current: _Run | None = None
        values: dict[str, Value] = {}
        arrived: set[int] = set()
        position = 0
        while (message := self.inbox.get()) is not None:
            run, source, delivered = message
            if run.stopped:
                continue
            if run is not current:
                current, values, arrived, position = run, {}, set(), 0
            values.update(delivered)
            arrived.add(source)
            del message, delivered
            while position < len(self.steps) and self.steps[position].waits <= arrived and not run.stopped:
                failure = self._do(position, run, values)
                position += 1
                if failure is not None:
                    run.stopped = True
                    run.finished.put(failure)
                elif position == len(self.steps):
                    values.clear()
                    run.finished.put(None)

    def _do(self, position: int, run: _Run, values: dict[str, Value]) -> GnnplaceError | None:
        """Runs one step and hands its outputs on; the error instead of raising it, as nobody above could catch it."""
        step, session = self.compiled[position]
        part = step.part
        begin_s = time.perf_counter()
        try:
            feed = {name: values[name] for name in part.inputs}
            for name in part.optional_inputs:
                if name in values:
                    feed[name] = values[name]
            outputs = dict(zip(part.outputs, session.run(feed, self._homes[position], run.options), strict=True))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            return MeasurementFailed(f"part {part.name!r} failed on {self.device.name!r}: {_one_line(error)}")
        for device, names in step.sends:
            self.peers[device].put((run, step.number, {name: outputs[name] for name in names}))
        for name in step.results:
            run.results[name] = outputs[name]
        for name in step.keeps:
            values[name] = outputs[name]
        for name in step.releases:
            values.pop(name, None)
        run.part_s[step.number] = time.perf_counter() - begin_s
        return None

    def run_alone(self, run: _Run, input_feed: Mapping[str, Any]) -> None:
        """All steps on the calling thread."""
        values = dict(input_feed)
        for position in range(len(self.compiled)):
            failure = self._do(position, run, values)
            if failure is not None:
                raise failure


def _defaulted(parts: Sequence[RunnerPart]) -> set[str]:
    return {name for part in parts for name in part.optional_inputs}


def _stop(inboxes: Sequence[SimpleQueue[_Message | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
