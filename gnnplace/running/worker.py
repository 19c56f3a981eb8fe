"""The threads of one device: one runs its steps in order, another copies values where the device has its own memory."""

import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any, Literal

from gnnplace.devices.real_names import RealDevice
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.onnx_io.part import Part
from gnnplace.running.dataflow import START, Request, Step
from gnnplace.running.devices import pin
from gnnplace.running.exclusive import Gate
from gnnplace.running.part_session import PartSession, SessionCache
from gnnplace.running.values import COPIED_TYPES, DeviceMemory, Value, device_memory, num_bytes


class TaskThread:
    """A thread that runs tasks in the order of their arrival; a task must not raise.

    The thread ends when it is closed or garbage-collected, after the tasks that are queued.
    """

    def __init__(self, name: str) -> None:
        tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._tasks = tasks
        self._thread = Thread(target=_run_tasks, args=(tasks,), name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, tasks.put, None)

    @property
    def is_current(self) -> bool:
        """The calling thread is this one."""
        return current_thread() is self._thread

    def put(self, task: Callable[[], object]) -> None:
        """Queues a task and returns at once."""
        self._tasks.put(task)

    def close(self) -> None:
        """Ends the thread after the queued tasks, and waits for it unless a task makes the call."""
        self._end()
        if not self.is_current:
            self._thread.join()


def _run_tasks(tasks: SimpleQueue[Callable[[], object] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it holds values


_SMALL_BYTES = 2**16
"""Copies of up to this size take up to 25 us between an H200 and its host."""
Message = tuple[Request, int, Mapping[str, Value]]
"""A request, the part that delivers (or `START`), and the values."""


@dataclass(eq=False)
class _Progress:
    """Progress of one request on the device, and the request's values that are there."""

    request: Request
    values: dict[str, Value] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    """Parts that have delivered."""
    position: int = 0
    """Index of the next step."""


class Worker:
    """The steps of one device, run in order.

    On a device with memory of its own, a second thread copies values between that memory and the host while the device
    computes. Inputs are on the device before their step begins, and outputs leave it while the next step runs. Small values are
    copied by the thread that has them, as waking another one takes longer.
    """

    def __init__(self, device: RealDevice, steps: Sequence[Step], gate: Gate | None = None) -> None:
        """`gate` is for devices that share a resource with others."""
        self.device = device
        self.steps = steps
        self._gate = gate
        self.inbox: SimpleQueue[Message | None] = SimpleQueue()
        self.peers: Mapping[str, Callable[[Message], None]] = {}
        """Functions that deliver a message, by device."""
        self.neighbours: Mapping[str, Callable[[Message], None]] = {}
        """Functions of devices of this process that deliver a message whose values need no copy."""
        self.compiled: list[tuple[Step, PartSession]] = []
        """The steps with their sessions."""
        self._thread: Thread | None = None
        self._homes: list[Any] = []
        self._sharing: list[list[str]] = []
        """For each step the devices that read its outputs in this device's memory."""
        self._copying: weakref.WeakSet[Request] = weakref.WeakSet()
        """Requests with outputs that the copying thread copies, or has copied."""
        self._memory: DeviceMemory | None = None
        self._copier: TaskThread | None = None

    def start(self, cache: SessionCache | None, ready: SimpleQueue[GnnplaceError | None]) -> None:
        """Starts the device's thread; `ready` receives None, or the error of a session that cannot be created."""
        self._memory = device_memory(self.device)
        if self._memory is not None:
            self._copier = TaskThread(f"{self.device.name} copies")
            self._copier.put(partial(pin, self.device))
        self._thread = Thread(target=self._serve, args=(cache, ready), name=self.device.name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the threads, whose inbox holds the end mark, and drops the sessions."""
        if self._thread is not None:
            self._thread.join()
        if self._copier is not None:
            self._copier.close()
        self.compiled = []

    def create_sessions(self, cache: SessionCache | None) -> None:
        """Creates the session of every step, or takes it from the cache."""
        for step in self.steps:
            part = step.part
            create = partial(PartSession, part, self.device)
            try:
                key = part.key, self.device.name
                session = create() if cache is None or part.key is None else cache.get(PartSession, key, create)
            except GnnplaceError:
                raise
            except Exception as error:  # ONNX Runtime's errors have no base class of their own
                raise not_loaded(part, error) from error
            self.compiled.append((step, session))
            if self._memory is not None:  # all outputs that the copying thread can copy
                kept = {arg.name for arg in session.session.get_outputs() if arg.type in COPIED_TYPES}
            else:  # outputs that only this device reads
                kept = set(step.keeps) - set(step.results) - {name for _, names in step.sends for name in names}
            self._homes.append(session.home_of(kept))
            self._sharing.append([name for name, _ in step.sends if session.shares_memory_with(name)])

    def deliver(self, message: Message) -> None:
        """Takes a message from another thread; its values are on the host."""
        if self._copier is None or not message[2]:
            self.take(message)
        elif _bytes_of(message[2].values()) <= _SMALL_BYTES:
            self._copy_in(message)
        else:
            self._copier.put(partial(self._copy_in, message))

    def take(self, message: Message) -> None:
        """Takes a message whose values are where this device reads them."""
        self.inbox.put(message)

    def _serve(self, cache: SessionCache | None, ready: SimpleQueue[GnnplaceError | None]) -> None:
        """The thread: creates sessions, then runs every step whose inputs have arrived, until the end mark."""
        try:
            pin(self.device)
            self.create_sessions(cache)
        except GnnplaceError as error:
            ready.put(error)
            return
        except Exception as error:  # the starting thread waits for an answer
            ready.put(MeasurementFailed(f"device {self.device.name!r} cannot be used: {one_line(error)}"))
            return
        ready.put(None)
        under_way: dict[Request, _Progress] = {}
        while True:
            current = self._oldest_ready(under_way)
            while current is None or not self.inbox.empty():
                message = self.inbox.get()
                if message is None:
                    return
                _take_in(message, under_way)
                del message  # it holds values
                current = self._oldest_ready(under_way)
            self._advance(current, under_way)

    def _oldest_ready(self, under_way: Mapping[Request, _Progress]) -> _Progress | None:
        ready = [found for found in under_way.values() if self.steps[found.position].waits <= found.arrived]
        return min(ready, key=lambda found: found.request.number, default=None)

    def _advance(self, progress: _Progress, under_way: dict[Request, _Progress]) -> None:
        """Runs the next step of a request, and drops the request after the last one."""
        request = progress.request
        if not request.stopped:
            self._run_step(progress.position, request, progress.values)
        progress.position += 1
        if request.stopped or progress.position == len(self.steps):
            progress.values.clear()
            under_way.pop(request)

    def _fail(self, request: Request, failure: GnnplaceError) -> None:
        """Ends the request, and wakes the other devices so that they drop its values."""
        request.fail(failure)
        for deliver in self.peers.values():
            deliver((request, START, {}))

    def _run_step(self, position: int, request: Request, values: dict[str, Value]) -> None:
        """Runs one step and hands its outputs on; a failure ends the request."""
        step, _ = self.compiled[position]
        try:
            self._compute(position, request, values)
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            self._fail(
                request, MeasurementFailed(f"part {step.part.name!r} failed on {self.device.name!r}: {one_line(error)}")
            )

    def _compute(self, position: int, request: Request, values: dict[str, Value]) -> None:
        (step, session), homes, sharing = self.compiled[position], self._homes[position], self._sharing[position]
        begin_s = time.perf_counter()
        part = step.part
        stays = request.stays.get(self.device.name, ())
        if stays and self._memory is None:
            homes = session.home_of((*step.keeps, *stays))
        feed = {name: values[name] for name in part.inputs}
        feed |= {name: values[name] for name in part.optional_inputs if name in values}
        with nullcontext() if self._gate is None else self._gate.turn(self.device.name, request.number, step.number):
            computed = session.run(feed, homes, request.options)
        outputs = dict(zip(part.outputs, computed, strict=True))
        if stays:
            request.resident.update({name: outputs[name] for name in part.outputs if name in stays})
        for name in step.keeps:
            values[name] = outputs[name]
        for name in step.releases:
            values.pop(name, None)
        is_last = step is self.steps[-1]
        request.part_s[step.number] = (
            time.perf_counter() - begin_s
        )  # without copies, of which other devices may make some
        if self._copier is None:
            self._hand_on(step, request, outputs, outputs)
            if is_last:
                request.device_done()
            return
        copied = _copied_out(step, request, sharing)
        # The last step ends the request, after all copies of earlier steps.
        waits = is_last and request in self._copying
        if waits or _bytes_of(outputs[name] for name in copied) > _SMALL_BYTES:
            self._copying.add(request)
            self._copier.put(partial(self._copy_out, step, sharing, request, outputs))
        else:
            self._copy_out(step, sharing, request, outputs)

    def run_alone(self, request: Request, values: dict[str, Value]) -> None:
        """Runs all steps on the calling thread; a step that fails ends the request."""
        for position in range(len(self.compiled)):
            if not request.stopped:
                self._run_step(position, request, values)

    def _hand_on(
        self,
        step: Step,
        request: Request,
        outputs: Mapping[str, Value],
        on_host: Mapping[str, Value],
        sharing: Collection[str] = (),
    ) -> None:
        """Passes on the outputs that the caller and other devices read; devices in `sharing` read this device's memory."""
        for device, names in step.sends:
            values, peers = (outputs, self.neighbours) if device in sharing else (on_host, self.peers)
            peers[device]((request, step.number, {name: values[name] for name in names}))
        for name in step.results:
            if name in request.wanted:
                request.results[name] = on_host[name]

    def _copy_in(self, message: Message) -> None:
        """Copies the values of a message into the device's memory."""
        request, source, values = message
        if not request.stopped:
            values = self._copied(request, "to", values)
        self.inbox.put((request, source, values))

    def _copy_out(self, step: Step, sharing: Collection[str], request: Request, outputs: Mapping[str, Value]) -> None:
        """Copies each value that others read to the host once, and hands it on."""
        if request.stopped:
            return
        names = _copied_out(step, request, sharing)
        on_host = self._copied(request, "from", {name: outputs[name] for name in names})
        if not request.stopped:
            try:
                self._hand_on(step, request, outputs, on_host, sharing)
            except Exception as error:  # the thread has to outlive it
                self._fail(request, MeasurementFailed(f"outputs of {self.device.name!r} are lost: {one_line(error)}"))
                return
            if step is self.steps[-1]:
                request.device_done()

    def _copied(self, request: Request, way: Literal["to", "from"], values: Mapping[str, Value]) -> Mapping[str, Value]:
        """The values after copying to or from the device; a copy that fails ends the request."""
        assert self._memory is not None
        copy = self._memory.from_host if way == "to" else self._memory.to_host
        try:
            return {name: copy(value) for name, value in values.items()}
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            self._fail(request, MeasurementFailed(f"a copy {way} {self.device.name!r} failed: {one_line(error)}"))
            return {}


def _copied_out(step: Step, request: Request, sharing: Collection[str]) -> set[str]:
    """Outputs of a step that the caller, or devices that do not share this device's memory, read on the host."""
    read = {name for device, names in step.sends if device not in sharing for name in names}
    return read | request.wanted.intersection(step.results)


def _bytes_of(values: Iterable[Value]) -> float:
    """Bytes of tensors; infinite with values of other kinds."""
    return sum(num_bytes(value) for value in values)


def _take_in(message: Message, under_way: dict[Request, _Progress]) -> None:
    request, source, values = message
    if request.stopped:
        under_way.pop(request, None)
        return
    progress = under_way.setdefault(request, _Progress(request))
    progress.values.update(values)
    progress.arrived.add(source)


def start_all(workers: Collection[Worker], cache: SessionCache | None) -> None:
    """Starts the threads of workers, which create their sessions side by side.

    Raises:
        GnnplaceError: a session cannot be created.
    """
    ready: SimpleQueue[GnnplaceError | None] = SimpleQueue()
    for worker in workers:
        worker.start(cache, ready)
    for failure in [ready.get() for _ in workers]:
        if failure is not None:
            raise failure


def not_loaded(part: Part, error: Exception) -> MeasurementFailed:
    """The error of a part whose session cannot be created."""
    return MeasurementFailed(f"part {part.name!r} cannot be loaded on {part.device!r}: {one_line(error)}")


def one_line(error: Exception) -> str:
    """The message of an error in one line; its class name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
