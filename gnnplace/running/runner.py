"""Runs a placed model many times: one request at a time, several pipelined, or with a future."""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from threading import Lock, Semaphore
from typing import Any
from weakref import WeakSet

from gnnplace.arguments import check_whole
from gnnplace.errors import InvalidInput, MeasurementFailed, MissingDependency
from gnnplace.onnx_io.part import Part
from gnnplace.running.dataflow import Request, State, Step, plan_steps
from gnnplace.running.devices import on_cores
from gnnplace.running.exclusive import rivals_of
from gnnplace.running.feed import check_complete
from gnnplace.running.part_session import PartSession, SessionCache
from gnnplace.running.pipeline import Devices, OneDevice, closed_error, python_devices
from gnnplace.running.values import Feed, Options, OutputNames
from gnnplace.running.worker import TaskThread, one_line

_LOG = logging.getLogger(__name__)
_OPEN: WeakSet[PlacedRunner] = WeakSet()
"""Runners with threads of this process."""
DevicesOf = Callable[[Mapping[str, Sequence[Step]], int], Devices]
"""Makes the devices from the steps of each device and the number of requests under way at once."""


class PlacedRunner:
    """Sessions of all parts, ready to run many requests; close it, or use it as a context.

    Each session is created once, on the thread that runs it. When all parts are on one device, the calling thread runs
    them, on the device's cores, and callers take turns.

    On several devices up to `max_in_flight` requests are under way at once, from any number of callers; a further request
    waits. A device runs the ready step of the oldest request, so younger requests delay an older one by at most the step
    that is running. By default two requests per device are under way: a device computes one while the inputs of the next
    arrive. Input arrays must not change until their request has ended.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        inputs: Sequence[str],
        outputs: Sequence[str],
        cache: SessionCache | None = None,
        max_in_flight: int | None = None,
        devices_of: DevicesOf | None = None,
    ) -> None:
        """Creates all sessions. `parts` are in a global run order; `inputs` and `outputs` are those of the model.

        `devices_of` makes the devices; None: threads of this process, with sessions from `cache`: compiled ones for several
        devices on CPU cores where numba is installed, else those of `python_devices`. The errors are those of `Session`, and
        InvalidPlacement if the parts do not fit together.
        """
        if max_in_flight is not None:
            check_whole("max_in_flight", max_in_flight, 1, InvalidInput)
        self.outputs = tuple(outputs)
        rivals = rivals_of(dict.fromkeys(part.device for part in parts))
        self._steps, self._feeds = plan_steps(parts, inputs, outputs, rivals)
        defaulted = {name for part in parts for name in part.optional_inputs}
        read = {name for part in parts for name in part.inputs}.union(outputs) - defaulted
        self._known = frozenset(outputs)
        self._required = tuple(name for name in inputs if name in read)
        self._last: Request | None = None
        self.max_in_flight = max_in_flight or 2 * max(len(self._steps), 1)
        """Limit of requests under way, and of submitted ones that have not been delivered."""
        self._undelivered = Semaphore(self.max_in_flight)
        self._deliverer: TaskThread | None = None
        self._closed = False
        self._process = os.getpid()
        self._lock = Lock()
        self._direct: PartSession | None = None
        self.devices: Devices
        if devices_of is not None:
            self.devices = devices_of(self._steps, self.max_in_flight)
            return
        found = _compiled_devices(self._steps, self.outputs, self.max_in_flight, cache)
        self.devices = found or python_devices(self._steps, self.max_in_flight, cache)
        _OPEN.add(self)
        if not isinstance(self.devices, OneDevice):
            return
        # Inputs that no op reads belong to no part, and a session would refuse them.
        if len(parts) == 1 and set(inputs) <= set(parts[0].reads) and set(outputs) <= set(parts[0].outputs):
            self._direct = self.devices.sessions[0]

    @property
    def part_s(self) -> dict[int, float]:
        """Seconds of each part in the last `run` by its position in the run order, without copies between memories.

        Empty for a model in one piece.
        """
        if self._last is None:
            return {}
        if self._last.part_ns is None:
            return self._last.part_s
        return dict(enumerate((self._last.part_ns / 1e9).tolist()))

    @property
    def is_own(self) -> bool:
        """This process made it; in one that was forked later there are no threads."""
        return self._process == os.getpid()

    @property
    def in_one_piece(self) -> bool:
        """The whole model is one session, which checks its inputs itself."""
        return self._direct is not None

    def run(self, output_names: OutputNames, input_feed: Feed, run_options: Options = None) -> list[Any]:
        """The outputs of one request, like `onnxruntime.InferenceSession.run`.

        Raises:
            MeasurementFailed: a part failed (the message names it), or the runner was closed before the request ended.
            InvalidInput: an input is missing, an output is unknown, or the runner is closed.
        """
        wanted = output_names or self.outputs
        if self._direct is not None and self.is_own:
            return self._run_directly(self._direct, wanted, input_feed, run_options)
        self._check_names(wanted, input_feed)
        request = Request(wanted, run_options)
        self._begin(request, input_feed)
        self._wait(request)
        self._last = request
        return request.outputs(wanted, input_feed)

    def run_many(
        self, output_names: OutputNames, input_feeds: Iterable[Feed], run_options: Options = None
    ) -> Iterator[list[Any]]:
        """The outputs of one request per feed, in order, while up to `max_in_flight` later requests are under way.

        Leaving the iterator gives up the requests under way. Errors are those of `run`; that of a feed, or of what makes the
        feeds, comes after the outputs of the feeds before it.
        """
        wanted = output_names or self.outputs
        if isinstance(self.devices, OneDevice):
            yield from (self.run(wanted, feed, run_options) for feed in input_feeds)
            return
        pending: deque[tuple[Request, Feed]] = deque()
        failure: Exception | None = None

        def oldest() -> list[Any]:
            request, feed = pending.popleft()
            self._wait(request)
            return request.outputs(wanted, feed)

        try:
            feeds = iter(input_feeds)
            while failure is None:
                if len(pending) == self.max_in_flight:
                    yield oldest()
                try:
                    feed = next(feeds)
                    self._check_names(wanted, feed)
                    request = Request(wanted, run_options)
                    self._begin(request, feed)
                    pending.append((request, feed))
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
            while pending:
                yield oldest()
            if failure is not None:
                raise failure
        finally:
            for request, _ in pending:
                self.devices.give_up(request)

    def submit(
        self,
        output_names: OutputNames,
        input_feed: Feed,
        run_options: Options = None,
        callback: Callable[[Future[list[Any]]], object] | None = None,
    ) -> Future[list[Any]]:
        """A future of the outputs, as `Session.submit` describes it; it cannot be cancelled.

        One thread delivers all results and runs the callbacks; a callback may submit, and does not wait for deliveries then.
        `callback` is the future's first one, so that it cannot come too late for that thread.
        """
        wanted = output_names or self.outputs
        self._check_names(wanted, input_feed)
        with self._lock:
            deliverer = self._deliverer = self._deliverer or TaskThread("results")
        future: Future[list[Any]] = Future()
        future.set_running_or_notify_cancel()
        if callback is not None:
            future.add_done_callback(callback)
        permit = ExitStack()  # closing it a second time does nothing
        if not deliverer.is_current:
            self._undelivered.acquire()
            permit.callback(self._undelivered.release)

        def deliver(outputs: Callable[[], list[Any]]) -> None:
            with permit:
                try:
                    found = outputs()
                except BaseException as error:  # the future carries it
                    resolve = partial(future.set_exception, error)
                else:
                    resolve = partial(future.set_result, found)
                try:
                    resolve()
                except BaseException:  # of a callback; `Future` catches most
                    _LOG.exception("exception calling a callback of %r", future)

        try:
            if isinstance(self.devices, OneDevice):
                with self._lock:
                    self.check_open()  # a closed thread would never run it
                    deliverer.put(partial(deliver, partial(self.run, wanted, input_feed, run_options)))
            else:
                request = Request(wanted, run_options)
                outputs = partial(request.outputs, wanted, input_feed)
                request.on_end.append(lambda _: deliverer.put(partial(deliver, outputs)))
                self._begin(request, input_feed)
        except BaseException:
            permit.close()
            raise
        return future

    def first_state(self, pairs: Mapping[str, str], values: Mapping[str, Any]) -> State:
        """The state before the first of several runs; `pairs` are inputs with the outputs that replace them.

        An output stays on its device when that device reads it in the next run, and travels over the host otherwise.
        """
        maker = {name: device for device, own in self._steps.items() for step in own for name in step.results}
        stays: dict[str, set[str]] = {device: set() for device in self._steps}
        over_host: set[str] = set()
        for name, output in pairs.items():
            readers = {device for device, names in self._feeds.items() if name in names}
            device = maker.get(output)
            if device is not None and device in readers:
                stays[device].add(output)
            if readers != {device}:
                over_host.add(output)
        by_device = {device: frozenset(names) for device, names in stays.items() if names}
        return State(pairs, by_device, frozenset(over_host), values)

    def run_with_state(
        self, output_names: Sequence[str], input_feed: Feed, state: State, run_options: Options = None
    ) -> tuple[list[Any], State]:
        """The outputs of one request, and the state after it; `input_feed` holds the inputs that are no state.

        State that one device makes and reads stays in its memory; other state is moved as any other value. Errors are
        those of `run`, after which `state` remains valid.
        """
        feed = {**state.on_host, **input_feed}
        wanted = state.over_host.union(output_names)
        self._check_names(wanted, [*feed, *(name for values in state.on_devices.values() for name in values)])
        request = Request(wanted, run_options, state.stays)
        self._begin(request, feed, state.on_devices)
        self._wait(request)
        passed = {name: value for name, value in feed.items() if name in wanted}  # outputs that are inputs
        after = state.followed_by({**passed, **request.results}, request.resident)
        return request.outputs(output_names, feed), after

    def close(self) -> None:
        """Ends the threads after the steps that are running; requests under way fail.

        Sessions in a cache stay there. A callback of a future may call this.
        """
        with self._lock:
            self._closed = True
            self._direct = None
        self.devices.close()
        if self._deliverer is not None:
            self._deliverer.close()

    def __enter__(self) -> PlacedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_directly(self, session: PartSession, wanted: Sequence[str], feed: Feed, options: Options) -> list[Any]:
        """Passes the feed to the only session, whose checks suffice; an error is checked again for a better message."""
        assert isinstance(self.devices, OneDevice)
        try:
            with self.devices.turn, on_cores(session.device):
                return list(session.run_python(wanted, feed, options))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            self._check_names(wanted, feed)
            raise MeasurementFailed(f"the model failed on {session.device.name!r}: {one_line(error)}") from error

    def _check_names(self, wanted: Iterable[str], given: Collection[str]) -> None:
        self.check_open()
        if isinstance(wanted, str):
            raise InvalidInput(f"the outputs are the text {wanted!r}; expected a list of names")
        for name in wanted:
            if name not in self._known:
                raise InvalidInput(f"{name!r} is no output of the model; it has {', '.join(self.outputs)}")
        check_complete(self._required, given)

    def check_open(self) -> None:
        """Raises InvalidInput after `close`, and in a process that was forked later."""
        if not self.is_own:
            raise InvalidInput(
                "this session was created before the process was forked, and its threads stayed in the parent; "
                "create the session in the process that runs it"
            )
        if self._closed:
            raise closed_error()

    def _begin(self, request: Request, feed: Feed, resident: Mapping[str, Feed] = {}) -> None:
        """Sends every device its inputs; `resident` are values in the memory of devices."""
        inputs = {device: {name: feed[name] for name in names if name in feed} for device, names in self._feeds.items()}
        for device, values in resident.items():
            inputs[device] |= values
        self.devices.begin(request, inputs)

    def _wait(self, request: Request) -> None:
        try:
            self.devices.wait(request)
        except BaseException:  # Ctrl-C
            self.devices.give_up(request)
            raise
        if request.failure is not None:
            raise request.failure


@atexit.register
def _close_all() -> None:
    """Ends the threads before the interpreter does: it would end them inside ONNX Runtime, and abort."""
    for runner in list(_OPEN):
        if runner.is_own:
            runner.devices.close()  # not the thread that runs callbacks, which may wait for anything


def _compiled_devices(
    steps: Mapping[str, Sequence[Step]], outputs: Sequence[str], max_in_flight: int, cache: SessionCache | None
) -> Devices | None:
    """Compiled threads; None for a single device, which the calling thread runs, and where parts need the Python loop."""
    if len(steps) < 2:
        return None
    try:
        from gnnplace.running.compiled.devices import CompiledDevices, NotPlainError
    except ImportError:
        return None
    try:
        return CompiledDevices(steps, outputs, cache, max_in_flight)
    except (NotPlainError, MissingDependency):
        return None
