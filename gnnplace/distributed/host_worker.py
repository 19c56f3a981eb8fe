"""The process of one host of a placed model, and the files of its parts on their way there."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

from gnnplace.devices.real_names import host_of, parse_real
from gnnplace.distributed.calls import SentFiles, sent_files, write_sent_files
from gnnplace.distributed.cluster import Node, host_options, last_line, take_usual_priority
from gnnplace.errors import GnnplaceError, MeasurementFailed, ProcessLost
from gnnplace.files import temporary_folder
from gnnplace.onnx_io.part import Part
from gnnplace.running.dataflow import START, Request, Step
from gnnplace.running.devices import parse_device, with_driving_cores
from gnnplace.running.exclusive import Gate, rivals_of
from gnnplace.running.pipeline import LocalDevices
from gnnplace.running.values import as_numpy
from gnnplace.running.worker import Message, TaskThread, Worker, start_all

_MESSAGE_THREADS = 8
"""Threads of an actor beyond those of requests, for messages between hosts."""
_BEGIN_S, _LOOK_S = 60.0, 1.0
"""Seconds until Ray has started a process, which waits for free cores; and between looks at its host."""
_METADATA = (
    "custom_metadata_map", "description", "domain", "graph_description", "graph_name", "producer_name", "version",
)  # fmt: skip

Steps = Mapping[str, Sequence[Step]]
"""The steps of one host by device; the paths of models and libraries are relative while they travel."""


def _sent_steps(steps: Steps) -> tuple[Steps, SentFiles]:
    """Puts the models of all steps, their external weights, and libraries of operators into Ray's object store."""
    from gnnplace.onnx_io.external_data import external_beside

    contents: dict[str, Path | bytes] = {}

    def with_names(step: Step) -> Step:
        part, model = step.part, f"part-{step.number:04d}.onnx"
        libraries = {f"{number}-{path.name}": path for number, path in enumerate(part.custom_ops)}
        contents.update({model: part.model, **libraries})
        contents.update(external_beside(part.model, part.data_folder))
        sent = replace(part, model=Path(model), data_folder=None, custom_ops=tuple(map(Path, libraries)))
        return replace(step, part=sent)

    named = {device: [with_names(step) for step in own] for device, own in steps.items()}
    return named, sent_files(contents)


def _inside(folder: Path, part: Part) -> Part:
    """The part with its files in a folder."""
    assert isinstance(part.model, Path)
    return replace(part, model=folder / part.model, custom_ops=tuple(folder / path for path in part.custom_ops))


@dataclass(frozen=True)
class HostFacts:
    """A host's answer once its parts are loaded."""

    first_part: int
    """Position of its first part in the run order."""
    providers: list[str]
    modelmeta: SimpleNamespace
    """Fields of `onnxruntime.ModelMetadata`, which cannot be pickled."""
    pid: int
    """Process id on the host."""


@dataclass(frozen=True)
class Order:
    """One request for one host."""

    number: int
    """Hosts run the request with the smallest number first; a repeated request has a new number."""
    oldest: int
    """The smallest number under way; hosts drop all requests before it."""
    wanted: frozenset[str]
    """Outputs for the caller."""
    stays: frozenset[str]
    """Outputs that stay in the host's object store for the next request."""
    feeds: Mapping[str, Mapping[str, Any]]
    """Model inputs by device."""
    held: tuple[tuple[tuple[str, str, str], ...], ...] = ()
    """(device, input, output) of each group of values that stayed; the groups are further arguments of `HostWorker.run`."""


class HostWorker:
    """A Ray actor with a thread per device; Ray calls its methods side by side, on other threads, and in any order."""

    def __init__(self, host: str, steps: Steps, files: SentFiles) -> None:
        take_usual_priority()
        self._host, self._steps, self._files = host, steps, files
        self._workers: dict[str, Worker] = {}
        self._facts: HostFacts | None = None
        self._peers: Mapping[str, Any] = {}
        self._senders: dict[str, TaskThread] = {}
        self._requests: dict[int, Request] = {}
        self._oldest = 0
        self._lock = Lock()

    def load(self, peers: Mapping[str, Any], oldest: int) -> HostFacts | GnnplaceError:
        """Creates the sessions of all parts, unless they exist, and drops all requests before `oldest`.

        `peers` are the actors of all hosts by name. An error is returned instead of raised, as Ray would wrap it.
        """
        self._peers = peers
        self._drop_before(oldest)
        if self._facts is not None:
            return self._facts
        take_usual_priority()  # for the threads that Ray has added, which start those of the devices
        try:
            with temporary_folder() as folder:
                write_sent_files(self._files, folder)
                rivals = rivals_of(self._steps)
                gate = Gate(rivals)
                for device in with_driving_cores([parse_device(name, self._host) for name in self._steps]):
                    steps = [replace(step, part=_inside(folder, step.part)) for step in self._steps[device.name]]
                    self._workers[device.name] = Worker(device, steps, gate if device.name in rivals else None)
                self._start()
        except GnnplaceError as error:
            return error
        devices = LocalDevices(list(self._workers.values()))
        metadata = SimpleNamespace(**{name: getattr(devices.modelmeta(), name) for name in _METADATA})
        first_part = min(step.number for steps in self._steps.values() for step in steps)
        self._facts = HostFacts(first_part, devices.providers(), metadata, os.getpid())
        return self._facts

    def run(self, order: Order, *held: Mapping[str, Any]) -> tuple[GnnplaceError | dict[str, Any], dict[str, Any]]:
        """The wanted outputs of this host's parts, or an error; and separately the outputs that stay."""
        if self._facts is None:
            return ProcessLost("the process was started again and has no parts yet"), {}
        self._drop_before(order.oldest)
        request = self._request(order.number)
        if request is None:
            return MeasurementFailed("the request was given up"), {}
        request.wanted = order.wanted | order.stays
        feeds = {device: dict(values) for device, values in order.feeds.items()}
        for values, names in zip(held, order.held, strict=True):
            for device, name, output in names:
                feeds[device][name] = values[output]
        for device, worker in self._workers.items():
            worker.deliver((request, START, feeds[device]))
        request.ended.get()
        with self._lock:
            self._requests.pop(order.number, None)
        if request.failure is not None:
            self._release(request)
            return request.failure, {}
        found = {name: as_numpy(value) for name, value in request.results.items()}
        wanted, stays = ({name: found[name] for name in found.keys() & names} for names in (order.wanted, order.stays))
        return wanted, stays

    def deliver(self, number: int, device: str, source: int, values: Mapping[str, Any]) -> None:
        """Takes the outputs of a part on another host for a device of this one."""
        request = None if self._facts is None else self._request(number)
        if request is not None:
            self._workers[device].deliver((request, source, values))

    def forget(self, number: int) -> None:
        """Drops a request that has failed on another host or whose caller no longer waits; a later `run` of it fails."""
        request = None if self._facts is None else self._request(number)
        if request is not None:
            self._give_up([request])

    def _start(self) -> None:
        """Starts the threads, which create their sessions side by side."""
        devices = {device for steps in self._steps.values() for step in steps for device, _ in step.sends}
        peers = {device: partial(self._send, device) for device in devices - self._workers.keys()}
        self._senders = {host: TaskThread(f"to {host}") for host in map(host_of, peers)}
        for worker in self._workers.values():
            worker.peers = {**peers, **{name: peer.deliver for name, peer in self._workers.items()}}
            worker.neighbours = {name: peer.take for name, peer in self._workers.items()}
        start_all(self._workers.values(), None)

    def _request(self, number: int) -> Request | None:
        """The request of a number, made by the first call that names it; None where it has ended."""
        with self._lock:
            if number < self._oldest:
                return None
            if number not in self._requests:
                request = self._requests[number] = Request(())
                request.number, request.devices_left = number, len(self._workers)
            return self._requests[number]

    def _drop_before(self, oldest: int) -> None:
        with self._lock:
            self._oldest = max(self._oldest, oldest)
            over = [self._requests.pop(number) for number in list(self._requests) if number < self._oldest]
        self._give_up(over)

    def _give_up(self, requests: Sequence[Request]) -> None:
        for request in requests:
            request.fail(MeasurementFailed("the request was given up"))
            self._release(request)

    def _release(self, request: Request) -> None:
        """Wakes the devices, so that they drop the values of a failed request."""
        for worker in self._workers.values():
            worker.deliver((request, START, {}))

    def _send(self, device: str, message: Message) -> None:
        """Queues values for another host, so that the device's thread continues while they are sent."""
        if not message[0].stopped:  # the driver informs the other hosts of a failure
            self._senders[host_of(device)].put(partial(self._hand_over, device, message))

    def _hand_over(self, device: str, message: Message) -> None:
        request, source, values = message
        host = host_of(device)
        try:
            arrays = {name: as_numpy(value) for name, value in values.items()}
            sent = self._peers[host].deliver.remote(request.number, device, source, arrays)
        except Exception as error:  # Ray's errors and those of pickle have no common base class
            request.fail(MeasurementFailed(f"values for {device!r} cannot be sent: {error}"))
        else:
            sent.future().add_done_callback(partial(_check_arrival, request, device))


def _check_arrival(request: Request, device: str, sent: Future[None]) -> None:
    error = sent.exception()
    if error is not None:
        request.fail(ProcessLost(f"values for {device!r} did not arrive ({type(error).__name__})"))


class HostProcess:
    """The driver's side of the actor on one host; Ray restarts a lost process on that host."""

    def __init__(self, host: Node, steps: Steps, max_in_flight: int, share: float) -> None:
        import ray

        self.host, self.devices = host, list(steps)
        self._sent = _sent_steps(steps)
        """Keeps the files in the object store, from where a restarted process loads them."""
        devices = [parse_real(name) for name in self.devices]
        num_cpus = share * min(len({core for device in devices for core in device.cores}), host.cores)
        num_gpus = share * min(len({device.gpu for device in devices} - {None}), host.gpus)
        options = {
            **host_options(host.node_id),
            "num_cpus": num_cpus if num_cpus < 1 else int(num_cpus),
            "num_gpus": num_gpus if num_gpus < 1 else int(num_gpus),
            "max_restarts": -1,
            "max_concurrency": max_in_flight + _MESSAGE_THREADS,
        }
        if num_gpus:  # device names number all GPUs of the host
            options["runtime_env"] = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
        actor: Any = ray.remote(HostWorker)
        self.actor = actor.options(**options).remote(host.name, *self._sent)
        self._begun = self.actor.__ray_ready__.remote()

    def loaded(self, loading: Any, limit_s: float, is_closed: Callable[[], bool]) -> HostFacts:
        """The answer of a call of `load`.

        Raises:
            ProcessLost: the process ended, has not begun in time, or its host is gone; or the session was closed.
            GnnplaceError: a session cannot be created, or not within `limit_s`.
        """
        import ray

        waited_s = 0.0
        while not ray.wait([loading], timeout=_LOOK_S)[0]:
            waited_s += _LOOK_S
            if is_closed():
                raise ProcessLost("the session was closed while its parts were loaded again")
            self.check_host()
            if waited_s > limit_s:
                raise MeasurementFailed(
                    f"loading the parts of {', '.join(self.devices)} took longer than {limit_s:.0f} s"
                )
            if waited_s > _BEGIN_S and not ray.wait([self._begun], timeout=0)[0]:
                raise ProcessLost(
                    f"no process of {', '.join(self.devices)} has begun within {_BEGIN_S:.0f} s; "
                    "other work of the cluster may have its cores (ray status)"
                )
        try:
            found: HostFacts | GnnplaceError = ray.get(loading)
        except ray.exceptions.RayError as error:
            self.check_host()
            raise ProcessLost(
                f"the process of {', '.join(self.devices)} ended while it loaded its parts ({last_line(error)})"
            ) from None
        if isinstance(found, GnnplaceError):
            raise found
        return found

    def check_host(self) -> None:
        """Raises `ProcessLost` unless the host is alive."""
        import ray

        if not any(node["NodeID"] == self.host.node_id and node["Alive"] for node in ray.nodes()):
            raise ProcessLost(
                f"the host {self.host.name!r} is gone, and with it {', '.join(self.devices)}; "
                "bring it back and open the session again, or place the model on the others"
            )
