"""The devices of a placed model at work: several with a thread each, one on the thread of the caller, or others behind the same seam."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from itertools import count
from queue import SimpleQueue
from threading import Lock, Semaphore
from typing import Any, Protocol

from gnnplace.errors import GnnplaceError, InvalidInput, MeasurementFailed
from gnnplace.running.dataflow import START, Request
from gnnplace.running.devices import pinned
from gnnplace.running.part_session import PartSession, SessionCache
from gnnplace.running.values import Value
from gnnplace.running.worker import Message, Worker

__all__ = ["Devices", "OneDevice", "Pipeline", "closed_error", "modelmeta_of", "providers_of"]


class Devices(Protocol):
    """What works on requests."""

    @property
    def num_workers(self) -> int:
        """Who has to be done with a request before it ends; see `Request`."""

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Sets to work on a request as soon as there is room for it; `inputs` are by device.

        Raises:
            InvalidInput: closed.
        """

    def give_up(self, request: Request) -> None:
        """Ends a request that nobody waits for any more."""

    def close(self) -> None:
        """Ends the work after the steps that are running; requests that are under way fail."""

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts, in the global run order."""

    def modelmeta(self) -> Any:
        """What the model says about itself, as `onnxruntime.ModelMetadata`; None when there is no part."""


class Pipeline:
    """Several devices, each with a thread, and up to `max_in_flight` requests under way."""

    def __init__(self, workers: Sequence[Worker], cache: SessionCache | None, max_in_flight: int) -> None:
        """Starts the threads, which create their sessions side by side.

        Raises:
            GnnplaceError: a session cannot be created.
        """
        self._workers = workers
        self._slots = Semaphore(max_in_flight)
        self._numbers = count()
        self._in_flight: set[Request] = set()
        self._closed = False
        self._lock = Lock()
        self._stop = weakref.finalize(self, _stop, [worker.inbox for worker in workers])
        ready: SimpleQueue[GnnplaceError | None] = SimpleQueue()
        for worker in workers:
            worker.peers = {peer.device.name: peer.deliver for peer in workers}
            worker.start(cache, ready)
        failures = [failure for failure in [ready.get() for _ in workers] if failure is not None]
        if failures:
            self.close()
            raise failures[0]

    @property
    def num_workers(self) -> int:
        """One per device."""
        return len(self._workers)

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Sets the devices to work on a request as soon as there is room for it; `inputs` are by device.

        Raises:
            InvalidInput: the pipeline is closed.
        """
        self._slots.acquire()
        request.on_end.insert(0, self._ended)
        with self._lock:
            if not self._closed:
                request.number = next(self._numbers)
                self._in_flight.add(request)
                for worker in self._workers:
                    worker.deliver((request, START, inputs[worker.device.name]))
                return
        self._slots.release()
        raise closed_error()

    def give_up(self, request: Request) -> None:
        """Ends a request that nobody waits for any more."""
        request.fail(MeasurementFailed("the request was given up"))
        for worker in self._workers:
            worker.deliver((request, START, {}))

    def close(self) -> None:
        """Ends the threads after the steps that are running; requests that are under way fail."""
        with self._lock:
            self._closed = True
        self._stop()
        for worker in self._workers:
            worker.close()
        for request in list(self._in_flight):
            request.fail(MeasurementFailed("the runner was closed before the request was done"))

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts, in the global run order."""
        return providers_of(self._workers)

    def modelmeta(self) -> Any:
        """What the first part says about the model."""
        return modelmeta_of(self._workers)

    def _ended(self, request: Request) -> None:
        with self._lock:
            self._in_flight.discard(request)
        self._slots.release()


class OneDevice:
    """One device, or none at all: the calling thread does the work, pinned for as long as it takes. Callers take turns."""

    def __init__(self, worker: Worker | None, cache: SessionCache | None) -> None:
        """Creates the sessions.

        Raises:
            GnnplaceError: a session cannot be created.
        """
        self._worker = worker
        self._workers = [] if worker is None else [worker]
        self._closed = False
        self.turn = Lock()
        if worker is not None:
            with pinned(worker.device):
                worker.create_sessions(cache)

    @property
    def num_workers(self) -> int:
        """One, who does nothing where there is no part."""
        return 1

    @property
    def only_part(self) -> PartSession:
        """The session of the first part."""
        return _compiled(self._workers)[0]

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Does all of a request here and now.

        Raises:
            InvalidInput: closed.
        """
        with self.turn:
            if self._closed:
                raise closed_error()
            if self._worker is None:
                request.device_done()
                return
            with pinned(self._worker.device):
                failure = self._worker.run_alone(request, dict(inputs[self._worker.device.name]))
        if failure is not None:
            request.fail(failure)

    def give_up(self, request: Request) -> None:
        """Nothing: what has begun is done."""

    def close(self) -> None:
        """Lets go of the sessions, after the request that is running."""
        with self.turn:
            self._closed = True
            if self._worker is not None:
                self._worker.close()

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts."""
        return providers_of(self._workers)

    def modelmeta(self) -> Any:
        """What the first part says about the model; None when there is none."""
        return modelmeta_of(self._workers)


def closed_error() -> InvalidInput:
    """What a closed runner says."""
    return InvalidInput("the runner is closed; make a new one")


def _compiled(workers: Sequence[Worker]) -> list[PartSession]:
    """All parts in the global run order."""
    pairs = [(step.number, part) for worker in workers for step, part in worker.compiled]
    return [part for _, part in sorted(pairs, key=lambda pair: pair[0])]


def providers_of(workers: Sequence[Worker]) -> list[str]:
    """ONNX Runtime's execution providers of all parts, in the global run order."""
    return list(dict.fromkeys(name for part in _compiled(workers) for name in part.session.get_providers()))


def modelmeta_of(workers: Sequence[Worker]) -> Any:
    """What the first part says about the model; None when there is none."""
    parts = _compiled(workers)
    return parts[0].session.get_modelmeta() if parts else None


def _stop(inboxes: Sequence[SimpleQueue[Message | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)
