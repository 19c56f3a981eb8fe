"""`gnnplace.DistributedSession`: a placed model on several hosts, whose values travel from host to host.

Each host has one process, a Ray actor with a thread per device; devices of one host hand values over in memory. Between
hosts a value is an argument of an actor's method, which Ray moves through its object stores. Ray restarts the process of
a lost actor; the pipeline then loads its parts and runs the requests again that were under way.

Ray's compiled graphs would run the steps of an actor in one fixed order, one request after the other. Then a device that
waits for another host could not begin the next request, and a lost actor would take the whole graph with it.
"""

import logging
import math
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from threading import Condition, Semaphore
from typing import Any

import numpy as np

from gnnplace.devices.real_names import host_of
from gnnplace.distributed.cluster import RESTART_RETRIES, connected, last_line, nodes
from gnnplace.distributed.host_worker import HostFacts, HostProcess, Order
from gnnplace.errors import GnnplaceError, InvalidInput, InvalidTopology, MeasurementFailed, ProcessLost, did_you_mean
from gnnplace.running.dataflow import Request, Step
from gnnplace.running.pipeline import closed_error
from gnnplace.running.session import Session
from gnnplace.running.values import Value
from gnnplace.running.worker import TaskThread

_TRIES = 3
"""Runs of one request, as a request may end the process of a host every time."""
_LOG = logging.getLogger(__name__)


class DistributedSession(Session):
    """A `gnnplace.Session` whose devices, such as `host1/cpu:0`, are on the hosts of a Ray cluster.

    All methods and errors are those of `Session`, but run options are refused. Each host loads its own parts, once. A lost
    process is started again, and the requests under way run again. When a host is gone, every request fails with
    `ProcessLost`, which names the host's devices. The state of a training loop stays in the object store of its host.

    >>> with DistributedSession("placed", ray="10.0.0.1:6379") as session:  # doctest: +SKIP
    ...     (answer,) = session.run(None, {"x": image})
    """

    def __init__(
        self,
        placed: str | Path,
        ray: str = "auto",
        max_in_flight: int | None = None,
        custom_ops: Sequence[str | Path] = (),
        share: float = 1.0,
        loading_s: float = math.inf,
    ) -> None:
        """Connects, and loads all parts onto their hosts.

        Args:
            placed: The folder that `place` wrote, or its `placed.onnx`.
            ray: Address of the cluster; see `gnnplace.distributed.connected`.
            max_in_flight: Requests that are under way at once, by default two per device.
            custom_ops: Shared libraries with operators that ONNX Runtime does not have, on this machine.
            share: Fraction of the devices' cores and GPUs that Ray reserves; below 1, sessions can share devices.
            loading_s: Limit in seconds for starting a host's process and loading its parts.

        Raises:
            InvalidPlacement: there is no placed model, or a broken one.
            InvalidTopology: a device is on no host of the cluster.
            GnnplaceError: as `Session`; or there is no cluster.
        """
        super().__init__(
            placed, max_in_flight, custom_ops, partial(HostPipeline, ray, share=share, loading_s=loading_s)
        )


@dataclass(frozen=True, eq=False)
class StayingValue:
    """An output in the object store of the host that made it; numpy fetches it on conversion to an array."""

    outputs: Any
    """Reference to the host's outputs of that request, by name."""
    output: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The array, brought to this process.

        Raises:
            ProcessLost: the host that kept it is gone.
        """
        import ray

        try:
            return np.array(ray.get(self.outputs)[self.output], dtype=dtype)
        except ray.exceptions.RayError as error:
            raise ProcessLost(f"the state {self.output!r} was lost with its host ({type(error).__name__})") from None


@dataclass(eq=False)
class _UnderWay:
    """A request, and its current run on all hosts."""

    inputs: Mapping[str, Mapping[str, Value]]
    tries: int = 0
    number: int | None = None
    """Number of the current run; None while there is none. Answers to other runs are dropped."""
    missing: set[str] = field(default_factory=set)
    """Hosts that have not answered."""


class HostPipeline:
    """The processes of all hosts as `gnnplace.running.pipeline.Devices`.

    After the loss of a process the requests under way run again from their inputs, on which alone their outputs depend.
    Answers to the first run are dropped, so that a request is answered once.
    """

    def __init__(
        self,
        address: str,
        steps: Mapping[str, Sequence[Step]],
        max_in_flight: int,
        share: float = 1.0,
        loading_s: float = math.inf,
    ) -> None:
        """Connects to the cluster, sends every host its parts, and waits until they are loaded; see `DistributedSession`."""
        self._slots, self._loading_s = Semaphore(max_in_flight), loading_s
        self._lock = Condition()
        """Reentrant; signals the end of a recovery, and closing."""
        self._recovering = False
        self._numbers = count()
        self._under_way: dict[Request, _UnderWay] = {}
        self._closed = False
        self._broken = ""
        self._answers = TaskThread("answers")
        self._open = ExitStack()
        self._processes: dict[str, HostProcess] = {}
        self._stop = weakref.finalize(self, _kill, self._processes)
        try:
            self._open.enter_context(connected(address))
            known = {node.name: node for node in nodes()}
            by_host: dict[str, dict[str, Sequence[Step]]] = {}
            for device, own in steps.items():
                by_host.setdefault(_known_host(device, known), {})[device] = own
            for name, of_host in by_host.items():
                self._processes[name] = HostProcess(known[name], of_host, max_in_flight, share)
            self._facts = self._load()
        except BaseException:
            self.close()
            raise

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Starts a request on all hosts as soon as a slot is free.

        Raises:
            InvalidInput: the pipeline is closed, or there are run options, which are objects of this process.
            ProcessLost: a host is gone.
        """
        if request.options is not None:
            raise InvalidInput("run options do not travel to other hosts; leave them out")
        self._slots.acquire()
        request.on_end.insert(0, self._ended)
        try:
            with self._lock:
                self._lock.wait_for(lambda: self._closed or not self._recovering)
                if not (self._closed or self._broken):
                    self._under_way[request] = _UnderWay(inputs)
                    self._send(request)
                    return
        except BaseException:  # an input that cannot be pickled, or Ctrl-C
            self._end(request, MeasurementFailed("the request could not be sent"))
            raise
        self._slots.release()
        raise ProcessLost(self._broken) if self._broken else closed_error()

    def wait(self, request: Request) -> None:
        """Waits until a request has ended."""
        request.ended.get()

    def give_up(self, request: Request) -> None:
        """Ends a request whose caller no longer waits."""
        self._end(request, MeasurementFailed("the request was given up"))

    def close(self) -> None:
        """Ends the processes at once; requests under way fail."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            left = list(self._under_way)
        self._stop()
        for request in left:
            request.fail(MeasurementFailed("the runner was closed before the request was done"))
        self._answers.close()
        self._open.close()

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all hosts."""
        return list(dict.fromkeys(name for facts in self._facts.values() for name in facts.providers))

    def modelmeta(self) -> Any:
        """The first part's metadata; None for a model without parts."""
        facts = self._facts.values()
        return min(facts, key=lambda each: each.first_part).modelmeta if facts else None

    def _load(self) -> dict[str, HostFacts]:
        """The facts of every host once its process has its parts; requests before this call are dropped there."""
        actors = {name: process.actor for name, process in self._processes.items()}
        oldest = next(self._numbers)
        loads = [actor.load.options(max_task_retries=RESTART_RETRIES) for actor in actors.values()]
        loading = [load.remote(actors, oldest) for load in loads]
        return {
            name: self._processes[name].loaded(answer, self._loading_s, lambda: self._closed)
            for name, answer in zip(actors, loading, strict=True)
        }

    def _send(self, request: Request) -> None:
        """Sends every host its inputs; the caller holds the lock."""
        if not self._processes:  # a model without ops
            request.device_done()
            return
        under_way, number = self._under_way[request], next(self._numbers)
        oldest = min((other.number for other in self._under_way.values() if other.number is not None), default=number)
        under_way.tries, under_way.number, under_way.missing = under_way.tries + 1, number, set(self._processes)
        request.results, request.resident = {}, {}
        for name, process in self._processes.items():
            inputs = {device: under_way.inputs.get(device, {}) for device in process.devices}
            groups, held, feeds = _without_staying(inputs)
            stays = frozenset(output for device in process.devices for output in request.stays.get(device, ()))
            order = Order(number, oldest, request.wanted, stays, feeds, held)
            answer, resident = process.actor.run.options(num_returns=2).remote(order, *groups)
            names = {output: StayingValue(resident, output) for output in stays}
            taken = partial(self._answered, request, number, name, names)  # not on Ray's thread, which calls back
            answer.future().add_done_callback(lambda answer, taken=taken: self._answers.put(partial(taken, answer)))

    def _answered(
        self, request: Request, number: int, host: str, resident: Mapping[str, StayingValue], answer: Any
    ) -> None:
        import ray

        with self._lock:
            under_way = self._under_way.get(request)
            if under_way is None or under_way.number != number or self._closed:
                return  # the request has failed, or runs again
            error = answer.exception()
            if isinstance(error, ray.exceptions.RayTaskError):  # an output that cannot be pickled, or our own mistake
                self._end(request, MeasurementFailed(f"the host {host!r} gave no answer: {last_line(error)}"))
                return
            if error is not None:
                self._begin_recovery(type(error).__name__)
                return
            found: GnnplaceError | dict[str, Any] = answer.result()
            if isinstance(found, ProcessLost):
                self._begin_recovery(str(found))
                return
            if isinstance(found, GnnplaceError):
                self._end(request, found)
                return
            for name, value in found.items():  # Ray returns views of its object store, which cannot be written
                is_view = isinstance(value, np.ndarray) and not value.flags.writeable
                request.results[name] = value.copy() if is_view else value
            request.resident |= resident
            under_way.missing.discard(host)
            if under_way.missing:
                return
            under_way.number = None
        request.device_done()

    def _end(self, request: Request, failure: GnnplaceError) -> None:
        """Ends a failed request here and on all hosts."""
        with self._lock:
            under_way = self._under_way.get(request)
            if under_way is not None and under_way.number is not None:
                for process in self._processes.values():
                    process.actor.forget.remote(under_way.number)
                under_way.number = None
        request.fail(failure)

    def _begin_recovery(self, reason: str) -> None:
        """Ends the current runs of all requests, and recovers after the answers in the queue; the caller holds the lock."""
        self._recovering = True
        for under_way in self._under_way.values():
            under_way.number = None
        self._answers.put(partial(self._recover, reason))

    def _recover(self, reason: str) -> None:
        """Loads the parts of restarted processes, without the lock, and runs all requests under way again."""
        before, broken = self._facts, ""
        try:
            self._facts = self._loaded_again()
        except GnnplaceError as error:
            broken = str(error)
        with self._lock:
            self._recovering = False
            self._lock.notify_all()
            if self._closed:
                return
            self._broken, waiting = broken, list(self._under_way)
            if broken:
                for request in waiting:
                    request.fail(ProcessLost(broken))
                return
            restarted = [name for name, facts in self._facts.items() if facts.pid != before[name].pid]
            devices = [device for name in restarted for device in self._processes[name].devices]
            lost = ", ".join(devices) or "values between hosts"
            _LOG.warning(
                "%s: lost (%s); started again, and %d requests that were under way run again",
                lost,
                reason,
                len(waiting),
            )
            for request in waiting:
                if self._under_way[request].tries < _TRIES:
                    self._send(request)
                else:
                    request.fail(
                        ProcessLost(f"{lost}: lost ({reason}); this request was begun {_TRIES} times and is given up")
                    )

    def _loaded_again(self) -> dict[str, HostFacts]:
        """The facts of every host after a loss, unless a host is gone or processes are lost again and again."""
        for _ in range(_TRIES):
            try:
                return self._load()
            except ProcessLost as error:  # one more process was lost meanwhile
                if self._closed:
                    raise
                for process in self._processes.values():
                    process.check_host()
                last = error
        raise ProcessLost(f"processes were lost {_TRIES} times in a row ({last}); open the session again")

    def _ended(self, request: Request) -> None:
        with self._lock:
            self._under_way.pop(request, None)
        self._slots.release()


def _known_host(device: str, known: Collection[str]) -> str:
    """The host of a device, which must be in the cluster."""
    name = host_of(device)
    if not name:
        raise InvalidTopology(
            f"device {device!r} names no host; without a cluster gnnplace.Session runs it on this machine"
        )
    if name not in known:
        meant = did_you_mean(name, known, "place the model on these")
        raise InvalidTopology(f"device {device!r}: the cluster has no host {name!r}, but {', '.join(known)}; {meant}")
    return name


def _without_staying(
    inputs: Mapping[str, Mapping[str, Value]],
) -> tuple[list[Any], tuple[tuple[tuple[str, str, str], ...], ...], dict[str, dict[str, Value]]]:
    """References to outputs that stayed on hosts, the (device, input, output) of each, and all other inputs by device."""
    groups: dict[Any, list[tuple[str, str, str]]] = {}
    feeds: dict[str, dict[str, Value]] = {}
    for device, values in inputs.items():
        feeds[device] = {name: value for name, value in values.items() if not isinstance(value, StayingValue)}
        for name, value in values.items():
            if isinstance(value, StayingValue):
                groups.setdefault(value.outputs, []).append((device, name, value.output))
    return list(groups), tuple(tuple(names) for names in groups.values()), feeds


def _kill(processes: Mapping[str, HostProcess]) -> None:
    for process in processes.values():
        import ray

        if ray.is_initialized():
            ray.kill(process.actor)
