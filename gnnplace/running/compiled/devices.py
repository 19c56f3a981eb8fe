"""The devices of a placed model as compiled threads, one for each set of cores that calls sessions."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread, current_thread
from typing import Any

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.devices.detect import pinned_to
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.host_memory import return_free_memory
from gnnplace.onnx_io.part import Part
from gnnplace.running.compiled.book import SPREAD, Program, Shared, book_of
from gnnplace.running.compiled.c_api import CSession, SharedWeights, c_interface
from gnnplace.running.compiled.loop import CALLER, DONE, LATE, await_done, begin, rouse_all, serve, serve_until
from gnnplace.running.compiled.primitives import compile_for, futex_call
from gnnplace.running.compiled.tables import new_program, new_shared, value_numbers
from gnnplace.running.compiled.values import SlotValues
from gnnplace.running.dataflow import Request, Step
from gnnplace.running.devices import caller_cores, create_session, current_core, parse_device, pin
from gnnplace.running.part_session import SessionCache
from gnnplace.running.pipeline import Devices, closed_error, python_devices
from gnnplace.running.values import Value, as_numpy
from gnnplace.running.worker import TaskThread, not_loaded, one_line

_WAIT_NS = 50_000_000  # after which a waiting caller looks for Ctrl-C
_SHORT_NS = 1_000_000


class NotPlainError(Exception):
    """The parts need the Python loop, as a device has its own memory, or values or operators are not ONNX Runtime's plain ones."""


@dataclass(eq=False)
class _Slot:
    """A request under way."""

    index: int
    ended: int
    """Value of `Shared.done` once the request has ended."""
    lends: bool
    """The caller waits, and does the work of the lent thread."""
    arrays: list[Any] = field(default_factory=list)
    """The memory of the inputs."""
    tensors: list[int] = field(default_factory=list)
    """The inputs that were not copied."""


class CompiledDevices:
    """Several devices on CPU cores, of any provider in main memory, and up to `max_in_flight` requests under way."""

    def __init__(
        self,
        steps: Mapping[str, Sequence[Step]],
        outputs: Sequence[str],
        cache: SessionCache | None,
        max_in_flight: int,
    ) -> None:
        """Starts the threads, which create their sessions side by side.

        Raises:
            NotPlainError: these parts need the Python loop.
            MissingDependency: ONNX Runtime has no C interface.
            GnnplaceError: a session cannot be created.
        """
        system, reals = futex_call(), {name: parse_device(name) for name in steps}
        self._steps_of = steps
        self._python: Devices | None = None
        self._steps = sorted((step for own in steps.values() for step in own), key=lambda step: step.number)
        parts = self.parts = [step.part for step in self._steps]
        needs_python = any(part.optional_inputs or part.custom_ops for part in parts)
        if system is None or needs_python or any(not (real.on_host and real.cores) for real in reals.values()):
            raise NotPlainError
        self._api, self._cache, self._kept = c_interface(), cache, list[Any]()
        self._reals = reals
        weights = partial(SharedWeights, self._api)
        self._weights = weights() if cache is None else cache.kept(SharedWeights, weights)
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)  # cores of a thread -> its parts
        for number, part in enumerate(parts):
            groups[caller_cores(reals[part.device])].append(number)
        self._groups = list(groups.items())
        self._sessions: list[CSession | None] = [None] * len(parts)
        self._go: list[SimpleQueue[tuple[Program, Shared] | None]] = [SimpleQueue() for _ in self._groups]
        self._threads: list[Thread] = []
        if failures := self._start():
            raise failures[0]
        return_free_memory()  # every session packs its weights, and then takes the packed forms of an earlier one
        addresses = [session.address for session in self._sessions if session is not None]
        threads = [own for _, own in self._groups]
        self._program = new_program(self._steps, threads, addresses, outputs, system, self._kept)
        self._shared = new_shared(self._program, max_in_flight)
        self._book = book_of(self._program, self._shared)
        produced = frozenset(name for part in parts for name in part.outputs)
        self._values = SlotValues(self._api, value_numbers(parts), produced, self._shared, self._book, max_in_flight)
        self._lent_cores, lent = self._groups[self._program.lent]
        self._lent_is_own = all(reals[parts[number].device].family == "cpu" for number in lent)
        self._limit, self._short_limit, self._no_limit = np.array(
            [[0, _WAIT_NS], [0, _SHORT_NS], [0, 0]], dtype=np.int64
        )
        self._numbers, self._free, self._lock = count(), deque(range(max_in_flight)), Lock()
        self._permits = Semaphore(max_in_flight)
        self._under_way: dict[Request, _Slot] = {}
        self._watcher: TaskThread | None = None
        self._closed = False
        self._stop = weakref.finalize(self, _stop, self._program.system, self._shared)
        self._compile()
        for queue in self._go:
            queue.put((self._program, self._shared))

    def begin(self, request: Request, inputs: Mapping[str, Mapping[str, Value]]) -> None:
        """Starts a request as soon as a slot is free; one with run options runs in the Python loop.

        Raises:
            InvalidInput: the devices are closed.
        """
        if request.options is not None:
            self._beside().begin(request, inputs)
            return
        feed = {name: value for values in inputs.values() for name, value in values.items()}
        arrays = {name: np.asarray(as_numpy(_native(value)), order="C") for name, value in feed.items()}
        self._take_permit()
        with self._lock:
            if self._closed:
                self._permits.release()
                raise closed_error()
            index = self._free.popleft()
            ended, lends = int(self._shared.done[index * SPREAD]) + 1, not request.on_end and self._can_lend()
            slot = _Slot(index, ended, lends, list(arrays.values()))
            self._under_way[request], request.devices_left, number = slot, 1, next(self._numbers)
        is_put = False
        try:
            self._values.put(index, arrays, slot.tensors)
            is_put = True
        except GnnplaceError as error:
            request.fail(error)
            return
        finally:
            if not is_put:  # also after Ctrl-C or without memory left, or the slot would never be free again
                request.fail(MeasurementFailed("the inputs of the request could not be handed over"))
                self._end(request, slot)
        begin(self._book, index, number, lends)
        if request.on_end:  # nobody waits
            self._watch(request, slot)

    def wait(self, request: Request) -> None:
        """Waits until a request has ended, and takes its outputs; meanwhile the caller does the work of one thread, if it can."""
        with self._lock:
            slot = self._under_way.get(request)
        if slot is None:
            request.ended.get()
            return
        place, state = slot.index * SPREAD, LATE
        if slot.lends:
            with self._on_core():
                while state == LATE and request in self._under_way:  # else the devices were closed
                    state = serve_until(self._book, place, slot.ended, self._limit)
        if state == DONE:
            self._end(request, slot)
        else:
            self._await(request, slot)
        request.ended.get()  # another caller may be taking the outputs

    def _take_permit(self) -> None:
        """Waits until a request may begin.

        The requests of callers that also wait here may hold all slots. So this caller wakes the lent thread, and takes the outputs of
        requests of others that have ended.
        """
        while not self._permits.acquire(blocking=False):
            rouse_all(self._program.system, self._shared)
            with self._lock:
                under_way = list(self._under_way.items())
            if under_way:
                self._is_done(under_way[0][1], self._short_limit)
            for request, slot in under_way:
                if self._is_done(slot, self._no_limit):
                    self._end(request, slot)

    def _is_done(self, slot: _Slot, limit: IntArray) -> bool:
        """The parts of a request have ended, or end within about a limit, seconds and nanoseconds."""
        place, system = slot.index * SPREAD, self._program.system
        return bool(await_done(self._shared.done, place, slot.ended, system, limit.ctypes.data))

    def _await(self, request: Request, slot: _Slot) -> None:
        """Waits until threads, or another caller, have ended a request, and takes its outputs."""
        while not self._is_done(slot, self._limit):
            if request not in self._under_way:  # the devices were closed
                return
        self._end(request, slot)

    def give_up(self, request: Request) -> None:
        """Ends a request whose caller no longer waits."""
        with self._lock:
            slot = self._under_way.get(request)
        request.fail(MeasurementFailed("the request was given up"))
        if slot is not None:
            self._shared.stopped[slot.index * SPREAD] = 1
            rouse_all(self._program.system, self._shared)  # one thread was left to the caller
            self._watch(request, slot)

    def close(self) -> None:
        """Ends the threads after the parts that are running; requests under way fail."""
        with self._lock:
            self._closed = True
            under_way = list(self._under_way.items())
        for request, slot in under_way:
            request.fail(MeasurementFailed("the runner was closed before the request was done"))
            self._shared.stopped[slot.index * SPREAD] = 1
        self._stop()
        for thread in self._threads:
            thread.join()
        while self._shared.role[0] == CALLER:  # it ends after its part
            time.sleep(_SHORT_NS / 1e9)
        for request, slot in under_way:
            self._end(request, slot)
        if self._watcher is not None:
            self._watcher.close()
        if self._python is not None:
            self._python.close()
        self._sessions = []

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts."""
        return list(dict.fromkeys(self._reals[part.device].provider for part in self.parts))

    def modelmeta(self) -> Any:
        """The first part's metadata."""
        part = self.parts[0]
        device = self._reals[part.device]
        return create_session(part.model, device, part.data_folder, optimised=part.optimised).get_modelmeta()

    def _can_lend(self) -> bool:
        """The calling thread may run on the core of the lent thread; one that is pinned elsewhere would move twice per request."""
        return len(self._lent_cores) == 1 and self._lent_cores[0] in os.sched_getaffinity(0)

    def _on_core(self) -> AbstractContextManager[None]:
        """Brings the calling thread to the core of the lent thread; see `on_cores`."""
        is_there = self._lent_is_own and current_core() == self._lent_cores[0]
        return nullcontext() if is_there else pinned_to(self._lent_cores)

    def _end(self, request: Request, slot: _Slot) -> None:
        """Takes the outputs of a request whose parts have ended, once, and frees its slot."""
        with self._lock:
            if self._under_way.pop(request, None) is None:
                return
        place = slot.index * SPREAD
        if status := int(self._shared.status[place]):
            self._shared.status[place] = 0
            part, text = self.parts[int(self._shared.failed[place])], self._api.message(status)
            failure = f"part {part.name!r} failed on {part.device!r}: {one_line(MeasurementFailed(text))}"
            request.fail(MeasurementFailed(failure))
        if request.failure is None:
            stays = frozenset[str]().union(*request.stays.values())
            for name, array in self._values.outputs(slot.index, request.wanted | stays).items():
                if name in request.wanted:
                    request.results[name] = array
                if name in stays:
                    request.resident[name] = array
        self._values.clear(slot.index, slot.tensors)
        parts = len(self.parts)
        request.part_ns = self._shared.part_ns[slot.index * parts : (slot.index + 1) * parts].copy()
        with self._lock:
            self._free.append(slot.index)
        self._permits.release()
        request.device_done()

    def _beside(self) -> Devices:
        """The same parts in the Python loop, loaded with the first request that needs it."""
        with self._lock:
            if self._closed:
                raise closed_error()
            if self._python is None:
                self._python = python_devices(self._steps_of, self._shared.number.size // SPREAD, self._cache)
            return self._python

    def _watch(self, request: Request, slot: _Slot) -> None:
        if sys.is_finalizing():  # a new thread would never run
            return
        with self._lock:
            self._watcher = self._watcher or TaskThread("requests")
        self._watcher.put(partial(self._await, request, slot))

    def _compile(self) -> None:
        """Compiles all that requests need, or loads it; or the first request would take 0.3 s longer, and 11 s in a new installation."""
        program, shared, book = self._program, self._shared, self._book
        compile_for(serve, program, shared, 0)
        compile_for(serve_until, book, 0, 0, self._limit)
        compile_for(await_done, shared.done, 0, 0, program.system, self._limit.ctypes.data)
        compile_for(begin, book, 0, 0, True)
        compile_for(rouse_all, program.system, shared)

    def _start(self) -> list[Exception]:
        """Starts all threads; the errors of those that could not create their sessions."""
        ready: SimpleQueue[Exception | None] = SimpleQueue()
        for number in range(len(self._groups)):
            # The list is emptied by the thread, as a runner that nobody closes is collected, and the thread then ends.
            thread = Thread(target=_work, args=([self], number, ready), name=self._name(number), daemon=True)
            self._threads.append(thread)
            thread.start()
        failures = [failure for failure in [ready.get() for _ in self._threads] if failure is not None]
        if failures:
            for queue, thread in zip(self._go, self._threads, strict=True):
                queue.put(None)
                thread.join()
        return failures

    def _name(self, thread: int) -> str:
        names = dict.fromkeys(self.parts[number].device for number in self._groups[thread][1])
        return f"device {' and '.join(map(repr, names))}"

    def create_sessions(self, thread: int) -> SimpleQueue[tuple[Program, Shared] | None]:
        """Creates the sessions of a thread's parts, on that thread; gives the queue by which it learns what to run."""
        cores, own = self._groups[thread]
        for number in own:
            part = self.parts[number]
            pin(self._reals[part.device])  # threads of the session inherit it
            self._sessions[number] = self._session(part)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        return self._go[thread]

    def _session(self, part: Part) -> CSession:
        real = self._reals[part.device]

        def create() -> CSession:
            try:
                session = self._api.session(part, real, self._weights)
            except MeasurementFailed as error:
                if real.family == "cpu":
                    raise
                raise NotPlainError from error  # the Python loop can start more providers, and names ops that they refuse
            if not self._api.holds_numbers(session.address):
                raise NotPlainError
            return session

        try:
            key = part.key, part.device
            return create() if self._cache is None or part.key is None else self._cache.get(CSession, key, create)
        except MeasurementFailed as error:
            raise not_loaded(part, error) from error


def _work(devices: list[CompiledDevices], thread: int, ready: SimpleQueue[Exception | None]) -> None:
    """One thread: creates its sessions, then runs its parts until the devices are closed or collected."""
    try:
        go = devices.pop().create_sessions(thread)
    except (GnnplaceError, NotPlainError) as error:  # the starting thread raises it
        ready.put(error)
        return
    except Exception as error:  # any other one too, as that thread waits for an answer
        name = current_thread().name
        ready.put(MeasurementFailed(f"{name} cannot be used: {one_line(error)}"))
        return
    ready.put(None)
    given = go.get()
    if given is not None:
        serve(*given, thread)


def _native(value: Any) -> Any:
    """The native tensor of an `onnxruntime.OrtValue`; other values unchanged."""
    return value._get_c_value() if hasattr(value, "_get_c_value") else value


def _stop(system: IntArray, shared: Shared) -> None:
    shared.closing[0] = 1
    rouse_all(system, shared)
