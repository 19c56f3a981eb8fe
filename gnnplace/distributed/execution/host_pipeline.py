"""The requests that are under way on several hosts, and what is done when a process of one is lost."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import RLock, Semaphore
from typing import Any

import numpy as np

from gnnplace.devices.real_names import host_of
from gnnplace.distributed.cluster import Node, connected, nodes
from gnnplace.distributed.execution.host_process import HostProcess
from gnnplace.distributed.execution.host_worker import HostFacts, Order, packed_parts
from gnnplace.errors import GnnplaceError, InvalidInput, InvalidTopology, MeasurementFailed, ProcessLost, did_you_mean
from gnnplace.running.dataflow import Request, Step
from gnnplace.running.pipeline import closed_error
from gnnplace.running.values import Value
from gnnplace.running.worker import TaskThread

__all__ = ["HostPipeline", "StayingValue"]

_TRIES = 3
"""How often a request is begun: one that ends the process of a host each time would never be done."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class StayingValue:
    """An output that is in the object store of the host that made it; numpy fetches it when it is asked for the array."""

    lot: Any
    """Reference to the host's outputs of that request, by name."""
    output: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The array, brought here.

        Raises:
            ProcessLost: the host that kept it is gone.
        """
        import ray

        try:
            return np.array(ray.get(self.lot)[self.output], dtype=dtype)
        except ray.exceptions.RayError as error:
            raise ProcessLost(f"the state {self.output!r} was lost with its host ({type(error).__name__})") from None


@dataclass(eq=False)
class _Attempt:
    """A request on its way through the hosts."""

    request: Request
    missing: set[str]
    """Hosts that have not answered."""
    results: dict[str, Any] = field(default_factory=dict)
    resident: dict[str, Any] = field(default_factory=dict)


class HostPipeline:
    """The processes of all hosts, behind the seam `gnnplace.running.pipeline.Devices`.

    A process that is lost is started again where its host lives, and what was under way is run again from its inputs: what a
    model computes depends on nothing else. Answers to the first try are then dropped, so that a request is answered once.
    """

    def __init__(self, address: str, steps: Mapping[str, Sequence[Step]], max_in_flight: int) -> None:
        """Connects to the cluster, sends every host its parts, and waits until they are loaded.

        Raises:
            InvalidTopology: a device names no host, or one that the cluster does not have; or the host does not have the device.
            GnnplaceError: there is no cluster; a session cannot be created.
        """
        self._slots = Semaphore(max_in_flight)
        self._lock = RLock()
        self._numbers = count()
        self._under_way: dict[Request, Mapping[str, Mapping[str, Value]]] = {}
        self._tries: dict[Request, int] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._closed = False
        self._broken = ""
        self._answers = TaskThread("answers")
        self._open = ExitStack()
        self._processes: dict[str, HostProcess] = {}
        self._stop = weakref.finalize(self, _kill, self._processes)
        try:
            self._open.enter_context(connected(address))
            by_host: dict[str, dict[str, Sequence[Step]]] = {}
            for device, own in steps.items():
                by_host.setdefault(host_of(device), {})[device] = own
            known = {node.name: node for node in nodes()}
            chosen = {name: _known_host(name, own, known) for name, own in by_host.items()}
            for name, host in chosen.items():
                self._processes[name] = HostProcess(host, packed_parts(by_host[name]), max_in_flight)
                self._processes[name].start()
            self._facts: list[HostFacts] = [process.loaded() for process in self._processes.values()]
            self._introduce()
        except BaseException:
            self.close()
            raise

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Sets all hosts to work on a request as soon as there is room for it.

        Raises:
            InvalidInput: closed, or there are run options, which are objects of this process.
            ProcessLost: a host is gone.
        """
        if request.options is not None:
            raise InvalidInput("run options do not travel to other hosts; leave them out")
        self._slots.acquire()
        request.on_end.insert(0, self._ended)
        with self._lock:
            if not (self._closed or self._broken):
                self._under_way[request] = inputs
                try:
                    self._send(request)
                except BaseException:  # what cannot be sent, or Ctrl-C
                    self._end(request, MeasurementFailed("the request could not be sent"))
                    raise
                return
        self._slots.release()
        raise ProcessLost(self._broken) if self._broken else closed_error()

    def give_up(self, request: Request) -> None:
        """Ends a request that nobody waits for any more."""
        self._end(request, MeasurementFailed("the request was given up"))

    def close(self) -> None:
        """Ends the processes at once; requests that are under way fail."""
        with self._lock:
            self._closed = True
            left = list(self._under_way)
        self._stop()
        for request in left:
            request.fail(MeasurementFailed("the runner was closed before the request was done"))
        self._answers.close()
        self._open.close()

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all hosts."""
        return list(dict.fromkeys(name for facts in self._facts for name in facts.providers))

    def modelmeta(self) -> Any:
        """What the first part says about the model; None when there is none."""
        return min(self._facts, key=lambda facts: facts.first_part).modelmeta if self._facts else None

    def _introduce(self) -> None:
        """Tells every process of the others, and that what was under way is over."""
        import ray

        actors = {name: process.actor for name, process in self._processes.items()}
        oldest = next(self._numbers)
        ray.get([actor.meet.remote(actors, oldest) for actor in actors.values()])

    def _send(self, request: Request) -> None:
        """Gives every host its inputs; called by whoever holds the lock."""
        inputs = self._under_way[request]
        if not self._processes:  # a model without ops
            request.device_done()
            return
        number = next(self._numbers)
        self._tries[request] = self._tries.get(request, 0) + 1
        oldest = min(self._attempts, default=number)
        self._attempts[number] = _Attempt(request, set(self._processes))
        for name, process in self._processes.items():
            lots, held, feeds = _held_apart({device: inputs.get(device, {}) for device in process.devices})
            stays = frozenset(output for device in process.devices for output in request.stays.get(device, ()))
            order = Order(number, oldest, request.wanted, stays, feeds, held)
            answer, resident = process.actor.run.options(num_returns=2).remote(order, *lots)
            names = {output: StayingValue(resident, output) for output in stays}
            answer.future().add_done_callback(partial(self._take, number, name, names))

    def _take(self, number: int, host: str, resident: Mapping[str, StayingValue], answer: Any) -> None:
        """On a thread of Ray's: passes an answer on."""
        self._answers.put(partial(self._answered, number, host, resident, answer))

    def _answered(self, number: int, host: str, resident: Mapping[str, StayingValue], answer: Any) -> None:
        import ray

        with self._lock:
            attempt = self._attempts.get(number)
            if attempt is None or self._closed:
                return  # it has failed, or is run again
            error = answer.exception()
            if isinstance(error, ray.exceptions.RayTaskError):  # nothing is lost: it cannot be sent, or our own mistake
                reason = str(error).strip().rpartition("\n")[2].strip()
                self._end(attempt.request, MeasurementFailed(f"the host {host!r} gave no answer: {reason}"))
                return
            if error is not None:
                self._recover(type(error).__name__)
                return
            found: GnnplaceError | dict[str, Any] = answer.result()
            if isinstance(found, ProcessLost):
                self._recover(str(found))
                return
            if isinstance(found, GnnplaceError):
                self._end(attempt.request, found)
                return
            attempt.results.update({name: _own(value) for name, value in found.items()})
            attempt.resident.update(resident)
            attempt.missing.discard(host)
            if attempt.missing:
                return
            del self._attempts[number]
            attempt.request.results, attempt.request.resident = attempt.results, attempt.resident
        attempt.request.device_done()

    def _end(self, request: Request, failure: GnnplaceError) -> None:
        """Ends a request that has failed, and tells the hosts."""
        with self._lock:
            numbers = [number for number, attempt in self._attempts.items() if attempt.request is request]
            for number in numbers:
                del self._attempts[number]
                for process in self._processes.values():
                    process.actor.forget.remote(number)
        request.fail(failure)

    def _recover(self, reason: str) -> None:
        """Starts lost processes again, and begins everything anew that is under way; called by whoever holds the lock."""
        self._attempts.clear()
        waiting = list(self._under_way)
        try:
            devices = self._restart_lost()
        except GnnplaceError as error:
            self._broken = str(error)
            for request in waiting:
                request.fail(ProcessLost(self._broken))
            return
        said = f"{', '.join(devices) or 'values between hosts'}: lost ({reason})"
        _LOG.warning("%s; started again, and %d requests that were under way run again", said, len(waiting))
        for request in waiting:
            if self._tries[request] < _TRIES:
                self._send(request)
            else:
                request.fail(ProcessLost(f"{said}; this request was begun {_TRIES} times and is given up"))

    def _restart_lost(self) -> list[str]:
        """The names of the devices whose processes were lost and are there again.

        Raises:
            ProcessLost: a host is gone, or processes are lost over and over again.
            GnnplaceError: a session can no longer be created.
        """
        import ray

        devices: dict[str, None] = {}
        last = ""
        for _ in range(_TRIES):
            lost = HostProcess.lost(self._processes.values())
            devices.update((device, None) for process in lost for device in process.devices)
            for process in lost:
                process.kill()
                if not process.host_lives():
                    raise ProcessLost(process.gone())
                process.start()
            try:
                self._facts = [process.loaded() for process in self._processes.values()]
                self._introduce()
            except ray.exceptions.RayError as error:  # one more was lost meanwhile
                last = type(error).__name__
            except ProcessLost as error:
                last = str(error)
            else:
                return list(devices)
        raise ProcessLost(
            f"{', '.join(devices)}: lost {_TRIES} times in a row, and given up ({last}); open the session again"
        )

    def _ended(self, request: Request) -> None:
        with self._lock:
            self._under_way.pop(request, None)
            self._tries.pop(request, None)
        self._slots.release()


def _known_host(name: str, steps: Mapping[str, Any], known: Mapping[str, Node]) -> Node:
    """The host of that name.

    Raises:
        InvalidTopology: there is none.
    """
    device = next(iter(steps))
    if not name:
        raise InvalidTopology(
            f"device {device!r} names no host; without a cluster gnnplace.Session runs it on this machine"
        )
    if name not in known:
        meant = did_you_mean(name, known, "place the model on these")
        raise InvalidTopology(f"device {device!r}: the cluster has no host {name!r}, but {', '.join(known)}; {meant}")
    return known[name]


def _held_apart(
    inputs: Mapping[str, Mapping[str, Value]],
) -> tuple[list[Any], tuple[tuple[tuple[str, str, str], ...], ...], dict[str, dict[str, Value]]]:
    """Lots of values that stay on hosts, which of their outputs is which input of which device, and all other inputs."""
    lots: dict[Any, list[tuple[str, str, str]]] = {}
    feeds: dict[str, dict[str, Value]] = {}
    for device, values in inputs.items():
        feeds[device] = {name: value for name, value in values.items() if not isinstance(value, StayingValue)}
        for name, value in values.items():
            if isinstance(value, StayingValue):
                lots.setdefault(value.lot, []).append((device, name, value.output))
    return list(lots), tuple(tuple(names) for names in lots.values()), feeds


def _own(value: Any) -> Any:
    """An array that may be written to: what Ray gives is a view of its store."""
    return value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value


def _kill(processes: Mapping[str, HostProcess]) -> None:
    for process in processes.values():
        process.kill()
