"""The devices of a placed model at work: several with a thread each, or one on the calling thread."""

import weakref
from collections.abc import Mapping, Sequence
from itertools import count
from queue import SimpleQueue
from threading import Lock, Semaphore
from typing import Any, Protocol

from gnnplace.errors import GnnplaceError, InvalidInput, MeasurementFailed
from gnnplace.running.dataflow import START, Request, Step
from gnnplace.running.devices import on_cores, parse_device, pinned, with_driving_cores
from gnnplace.running.exclusive import Gate, rivals_of
from gnnplace.running.part_session import PartSession, SessionCache
from gnnplace.running.values import Value
from gnnplace.running.worker import Message, Worker, start_all


class Devices(Protocol):
    """Runs requests: the devices of this process, or those of other hosts."""

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Starts a request as soon as a slot is free; `inputs` are by device.

        Raises:
            InvalidInput: the devices are closed.
        """

    def wait(self, request: Request) -> None:
        """Waits until a request has ended."""

    def give_up(self, request: Request) -> None:
        """Ends a request whose caller no longer waits."""

    def close(self) -> None:
        """Ends the threads after the steps that are running; requests under way fail."""

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts, in the global run order."""

    def modelmeta(self) -> Any:
        """The model's metadata as `onnxruntime.ModelMetadata`; None for a model without parts."""


class LocalDevices:
    """The sessions of devices in this process."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._closed = False

    @property
    def sessions(self) -> list[PartSession]:
        """The sessions of all parts, in the global run order."""
        numbered = {step.number: part for worker in self._workers for step, part in worker.compiled}
        return [numbered[number] for number in sorted(numbered)]

    def wait(self, request: Request) -> None:
        """Waits until a request has ended."""
        request.ended.get()

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts, in the global run order, each once."""
        return list(dict.fromkeys(name for part in self.sessions for name in part.session.get_providers()))

    def modelmeta(self) -> Any:
        """The first part's metadata; None for a model without parts."""
        return self.sessions[0].session.get_modelmeta() if self.sessions else None


class Pipeline(LocalDevices):
    """Several devices, each with a thread, and up to `max_in_flight` requests under way."""

    def __init__(self, workers: Sequence[Worker], cache: SessionCache | None, max_in_flight: int) -> None:
        """Starts the threads, which create their sessions side by side."""
        super().__init__(workers)
        self._slots = Semaphore(max_in_flight)
        self._numbers = count()
        self._in_flight: set[Request] = set()
        self._lock = Lock()
        self._stop = weakref.finalize(self, _stop, [worker.inbox for worker in workers])
        for worker in workers:
            worker.peers = {peer.device.name: peer.deliver for peer in workers}
            worker.neighbours = {peer.device.name: peer.take for peer in workers}
        try:
            start_all(workers, cache)
        except GnnplaceError:
            self.close()
            raise

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Starts a request as soon as a slot is free."""
        self._slots.acquire()
        request.on_end.insert(0, self._ended)
        with self._lock:
            if self._closed:
                self._slots.release()
                raise closed_error()
            request.number, request.devices_left = next(self._numbers), len(self._workers)
            self._in_flight.add(request)
        for worker in self._workers:  # without the lock, as a copy that fails ends the request
            worker.deliver((request, START, inputs[worker.device.name]))

    def give_up(self, request: Request) -> None:
        """Ends a request whose caller no longer waits."""
        request.fail(MeasurementFailed("the request was given up"))
        for worker in self._workers:
            worker.deliver((request, START, {}))

    def close(self) -> None:
        """Ends the threads after the steps that are running; requests under way fail."""
        with self._lock:
            self._closed = True
        self._stop()
        for worker in self._workers:
            worker.close()
        for request in list(self._in_flight):
            request.fail(MeasurementFailed("the runner was closed before the request was done"))

    def _ended(self, request: Request) -> None:
        with self._lock:
            self._in_flight.discard(request)
        self._slots.release()


class OneDevice(LocalDevices):
    """At most one device, whose steps run on the calling thread, on its cores; one caller at a time."""

    def __init__(self, worker: Worker | None, cache: SessionCache | None) -> None:
        super().__init__([] if worker is None else [worker])
        self._worker = worker
        self.turn = Lock()
        """Held by the caller whose request runs."""
        if worker is not None:
            with pinned(worker.device):
                worker.create_sessions(cache)

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Runs all steps of a request before it returns."""
        with self.turn:
            if self._closed:
                raise closed_error()
            if self._worker is None:
                request.device_done()
                return
            with on_cores(self._worker.device):
                self._worker.run_alone(request, dict(inputs[self._worker.device.name]))

    def give_up(self, request: Request) -> None:
        """Does nothing: a request has ended when `begin` returns."""

    def close(self) -> None:
        """Drops the sessions, after the request that is running."""
        with self.turn:
            self._closed = True
            if self._worker is not None:
                self._worker.close()


def python_devices(
    steps: Mapping[str, Sequence[Step]], max_in_flight: int, cache: SessionCache | None = None
) -> Devices:
    """Devices whose steps a thread each runs in Python; the steps of a single device run on the calling thread."""
    rivals = rivals_of(steps)
    gate = Gate(rivals)
    devices = list(map(parse_device, steps))
    if len(devices) < 2:
        return OneDevice(Worker(devices[0], steps[devices[0].name]) if devices else None, cache)
    workers = [
        Worker(device, steps[device.name], gate if device.name in rivals else None)
        for device in with_driving_cores(devices)
    ]
    return Pipeline(workers, cache, max_in_flight)


def closed_error() -> InvalidInput:
    """The error of a request to a closed runner."""
    return InvalidInput("the runner is closed; make a new one")


def _stop(inboxes: Sequence[SimpleQueue[Message | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)
