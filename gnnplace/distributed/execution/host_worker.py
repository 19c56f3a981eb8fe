"""The parts of a placed model on their way to a host: files in pieces in Ray's object store, each host's own and no others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from gnnplace.devices.real_names import host_of
from gnnplace.distributed.cluster import take_usual_priority
from gnnplace.distributed.host_devices import sent_file, written_files
from gnnplace.errors import GnnplaceError, MeasurementFailed, ProcessLost
from gnnplace.files import temporary_folder
from gnnplace.onnx_io.external_data import external_beside
from gnnplace.onnx_io.split import Part
from gnnplace.running.dataflow import START, Request, Step
from gnnplace.running.devices import parse_device
from gnnplace.running.pipeline import part_sessions, providers_of
from gnnplace.running.values import as_numpy
from gnnplace.running.worker import Message, TaskThread, Worker

__all__ = ["HostFacts", "HostParts", "HostWorker", "ModelMeta", "Order", "packed_parts", "unpacked_parts"]


@dataclass(frozen=True)
class HostParts:
    """What one host runs."""

    steps: Mapping[str, Sequence[Step]]
    """Of each device; models and libraries are names in `files`."""
    files: Mapping[str, tuple[Any, ...]]
    """The pieces of each file, as references to Ray's object store."""


def packed_parts(steps: Mapping[str, Sequence[Step]]) -> HostParts:
    """Puts the models of all steps, the weights in files beside them, and libraries of operators into the object store."""
    contents: dict[str, Path | bytes] = {}

    def packed(step: Step) -> Step:
        part, name = step.part, f"part-{step.number:04d}.onnx"
        contents[name] = part.model
        if isinstance(part.model, Path):
            contents.update(external_beside(part.model))
        libraries = {f"{number}-{path.name}": path for number, path in enumerate(part.custom_ops)}
        contents.update(libraries)
        return replace(step, part=replace(part, model=Path(name), custom_ops=tuple(map(Path, libraries))))

    packed_steps = {device: [packed(step) for step in own] for device, own in steps.items()}
    files = {name: sent_file(content) for name, content in contents.items()}
    return HostParts(packed_steps, files)


def unpacked_parts(parts: HostParts, folder: Path) -> Mapping[str, Sequence[Step]]:
    """Writes the files into `folder`; the steps with their paths there."""
    written_files(parts.files, folder)

    def unpacked(part: Part) -> Part:
        assert isinstance(part.model, Path)
        return replace(part, model=folder / part.model, custom_ops=tuple(folder / path for path in part.custom_ops))

    return {device: [replace(step, part=unpacked(step.part)) for step in own] for device, own in parts.steps.items()}


@dataclass(frozen=True)
class ModelMeta:
    """What a model says about itself, under the names of `onnxruntime.ModelMetadata`, which cannot be sent."""

    custom_metadata_map: Mapping[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


@dataclass(frozen=True)
class HostFacts:
    """What a host says once its parts are loaded."""

    first_part: int
    """Position in the run order."""
    providers: list[str]
    modelmeta: ModelMeta
    pid: int
    """Of the host's process."""


@dataclass(frozen=True)
class Order:
    """One request for one host."""

    number: int
    """Older requests have smaller ones and go first; a request that is run again has a new one."""
    oldest: int
    """The least number that is under way; all before it are forgotten."""
    wanted: frozenset[str]
    """Outputs for the caller."""
    stays: frozenset[str]
    """Outputs that remain on the host, in its object store, for the next request."""
    feeds: Mapping[str, Mapping[str, Any]]
    """Model inputs by device."""
    held: tuple[tuple[tuple[str, str, str], ...], ...] = ()
    """(device, input, output) for each lot of values that stayed, which come as further arguments."""


class HostWorker:
    """A Ray actor. Its methods are called side by side, on threads of its own, and in any order."""

    def __init__(self, host: str, parts: HostParts) -> None:
        take_usual_priority()
        self._host, self._parts = host, parts
        self._workers: dict[str, Worker] = {}
        self._peers: Mapping[str, Any] = {}
        self._senders: dict[str, TaskThread] = {}
        self._requests: dict[int, Request] = {}
        self._oldest = 0
        self._lock = Lock()

    def load(self) -> HostFacts | GnnplaceError:
        """Creates the sessions of all parts; what went wrong instead of raising it, as Ray would wrap it."""
        take_usual_priority()  # of the threads that have come meanwhile, which begin those of the devices
        try:
            self._workers = {name: Worker(parse_device(name, self._host), ()) for name in self._parts.steps}
            with temporary_folder() as folder:
                for name, steps in unpacked_parts(self._parts, folder).items():
                    self._workers[name].steps = steps
                self._start()
        except GnnplaceError as error:
            return error
        workers = list(self._workers.values())
        metadata = part_sessions(workers)[0].session.get_modelmeta()
        return HostFacts(
            first_part=min(step.number for worker in workers for step in worker.steps),
            providers=providers_of(workers),
            modelmeta=ModelMeta(**{name: getattr(metadata, name) for name in ModelMeta.__dataclass_fields__}),
            pid=os.getpid(),
        )

    def meet(self, peers: Mapping[str, Any], oldest: int) -> None:
        """Takes the processes of the other hosts, by name, in place of those it knew, and forgets all requests before `oldest`."""
        self._peers = peers
        self._forget_before(oldest)

    def alive(self) -> bool:
        """Always."""
        return True

    def run(self, order: Order, *held: Mapping[str, Any]) -> tuple[GnnplaceError | dict[str, Any], dict[str, Any]]:
        """The wanted outputs of this host's parts, or why there are none; and, on their own, those that stay."""
        self._forget_before(order.oldest)
        request = self._request(order.number)
        if request is None:
            return MeasurementFailed("the request was given up"), {}
        ended: SimpleQueue[Request] = SimpleQueue()
        request.wanted = order.wanted | order.stays
        request.on_end.append(ended.put)
        if request.stopped:  # before there was anybody to be told
            ended.put(request)
        feeds = {device: dict(values) for device, values in order.feeds.items()}
        for values, names in zip(held, order.held, strict=True):
            for device, name, output in names:
                feeds[device][name] = values[output]
        for device, worker in self._workers.items():
            worker.deliver((request, START, feeds[device]))
        ended.get()
        with self._lock:
            self._requests.pop(order.number, None)
        if request.failure is not None:
            self._release(request)
            return request.failure, {}
        found = {name: as_numpy(value) for name, value in request.results.items()}
        return (
            {name: value for name, value in found.items() if name in order.wanted},
            {name: value for name, value in found.items() if name in order.stays},
        )

    def deliver(self, number: int, device: str, source: int, values: Mapping[str, Any]) -> None:
        """Takes what a part on another host has made for a device of this one."""
        request = self._request(number)
        if request is not None:
            self._workers[device].deliver((request, source, values))

    def forget(self, number: int) -> None:
        """Lets go of a request that has failed elsewhere or that nobody waits for."""
        with self._lock:
            request = self._requests.get(number)
        if request is not None:
            self._stop(request)

    def _start(self) -> None:
        """Starts the threads, which create their sessions side by side.

        Raises:
            GnnplaceError: a session cannot be created.
        """
        ready: SimpleQueue[GnnplaceError | None] = SimpleQueue()
        devices = {device for steps in self._parts.steps.values() for step in steps for device, _ in step.sends}
        elsewhere: dict[str, Callable[[Message], None]] = {
            device: partial(self._send, device) for device in devices if device not in self._workers
        }
        self._senders = {host: TaskThread(f"to {host}") for host in map(host_of, elsewhere)}
        for worker in self._workers.values():
            worker.peers = {**{name: peer.deliver for name, peer in self._workers.items()}, **elsewhere}
            worker.start(None, ready)
        failures = [failure for failure in [ready.get() for _ in self._workers] if failure is not None]
        if failures:
            raise failures[0]

    def _request(self, number: int) -> Request | None:
        """The request of a number, whoever speaks of it first; None where it is over."""
        with self._lock:
            if number < self._oldest:
                return None
            if number not in self._requests:
                request = self._requests[number] = Request(())
                request.number, request.devices_left = number, len(self._workers)
            return self._requests[number]

    def _forget_before(self, oldest: int) -> None:
        with self._lock:
            self._oldest = max(self._oldest, oldest)
            over = [request for number, request in self._requests.items() if number < self._oldest]
            for request in over:
                del self._requests[request.number]
        for request in over:
            self._stop(request)

    def _stop(self, request: Request) -> None:
        request.fail(MeasurementFailed("the request was given up"))
        self._release(request)

    def _release(self, request: Request) -> None:
        """Wakes the devices, so that they let go of the values of a request that has failed."""
        for worker in self._workers.values():
            worker.deliver((request, START, {}))

    def _send(self, device: str, message: Message) -> None:
        """Called by a device's thread, which goes on while another one sends."""
        if not message[0].stopped:  # where it is, the driver tells the other hosts
            self._senders[host_of(device)].put(partial(self._hand_over, device, message))

    def _hand_over(self, device: str, message: Message) -> None:
        request, source, values = message
        host = host_of(device)
        try:
            arrays = {name: as_numpy(value) for name, value in values.items()}
            sent = self._peers[host].deliver.remote(request.number, device, source, arrays)
        except Exception as error:  # Ray's errors and those of what cannot be sent have no base class in common
            request.fail(MeasurementFailed(f"values for {device!r} cannot be sent: {error}"))
        else:
            sent.future().add_done_callback(partial(_note_loss, request, device))


def _note_loss(request: Request, device: str, sent: Future[None]) -> None:
    error = sent.exception()
    if error is not None:
        request.fail(ProcessLost(f"values for {device!r} did not arrive ({type(error).__name__})"))
