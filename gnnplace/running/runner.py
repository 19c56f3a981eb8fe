"""Runs a placed model as often as wanted: one request at a time, several pipelined, or later with a future."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Lock, Semaphore
from types import TracebackType
from typing import Any

import onnxruntime as ort

from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.running.dataflow import Request, RunnerPart, State, Step, plan_state, plan_steps
from gnnplace.running.devices import parse_device, pinned
from gnnplace.running.part_session import PartSession, SessionCache
from gnnplace.running.pipeline import Devices, OneDevice, Pipeline, closed_error
from gnnplace.running.worker import TaskThread, Worker, one_line

__all__ = ["DevicesOf", "PlacedRunner"]


DevicesOf = Callable[[Mapping[str, Sequence[Step]], int], Devices]
"""What runs the steps of each device, with so many requests under way at once."""


class PlacedRunner:
    """Sessions of all parts, ready to run again and again; close it, or use it as a context.

    Sessions are created once, each on the thread that will run it. When all parts are on one device there is no worker:
    the calling thread runs them, pinned to the device's core for as long as that takes, and callers take turns.

    On several devices up to `max_in_flight` requests are under way at once, whoever made them; who makes one more waits.
    Of the steps that are ready, a device runs one of the oldest request, so a request is not slowed down by younger ones
    but for the step that is running. By default there are two per device: one is computed while the inputs of the next
    arrive. Arrays that were given must not change until their request is done.
    """

    def __init__(
        self,
        parts: Sequence[RunnerPart],
        inputs: Sequence[str],
        outputs: Sequence[str],
        cache: SessionCache | None = None,
        max_in_flight: int | None = None,
        devices_of: DevicesOf | None = None,
    ) -> None:
        """Creates all sessions. `parts` are in a global run order; `inputs` and `outputs` are those of the model.

        `devices_of` says who runs the steps; None: threads of this process, with the sessions that `cache` has.

        Raises:
            InvalidPlacement: the parts do not fit together.
            InvalidTopology: a device is not on this machine.
            MissingDependency: ONNX Runtime has no provider for a device.
            MeasurementFailed: ONNX Runtime refuses a part; the message names it.
            InvalidInput: `max_in_flight` is less than one.
        """
        if max_in_flight is not None and max_in_flight < 1:
            raise InvalidInput(f"max_in_flight is {max_in_flight}; expected at least 1 request under way")
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._steps, self._feeds = plan_steps(parts, inputs, outputs)
        read = {name for part in parts for name in part.inputs}.union(outputs) - _defaulted(parts)
        self._known = frozenset(outputs)
        self._required = tuple(name for name in inputs if name in read)
        self.part_s: dict[int, float] = {}
        """Seconds of each part in the last `run`, handing over included, by its position in the run order; empty for a model in one piece."""
        self.max_in_flight = max_in_flight or 2 * max(len(self._steps), 1)
        """Requests that are under way at once, and submitted ones that have not been delivered."""
        self._undelivered = Semaphore(self.max_in_flight)
        self._deliverer: TaskThread | None = None
        self._closed = False
        self._lock = Lock()
        self._direct: PartSession | None = None
        self._devices: Devices
        if devices_of is not None:
            self._devices = devices_of(self._steps, self.max_in_flight)
            return
        workers = [Worker(parse_device(name), steps) for name, steps in self._steps.items()]
        if len(workers) > 1:
            self._devices = Pipeline(workers, cache, self.max_in_flight)
            return
        self._devices = OneDevice(workers[0] if workers else None, cache)
        if len(parts) == 1 and _covers(parts[0], inputs, outputs):
            self._direct = self._devices.only_part

    @property
    def in_one_piece(self) -> bool:
        """The whole model is one session, which checks its inputs itself."""
        return self._direct is not None

    def providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts."""
        return self._devices.providers()

    def modelmeta(self) -> Any:
        """What the model says about itself, as `onnxruntime.ModelMetadata`; None when there is no part."""
        return self._devices.modelmeta()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: ort.RunOptions | None = None,
    ) -> list[Any]:
        """The outputs of one step, like `onnxruntime.InferenceSession.run`.

        Raises:
            MeasurementFailed: a part failed, and the others were stopped; the message names it. Or the runner was closed
                before the request was done.
            InvalidInput: an input is missing, an output is unknown, or the runner is closed.
        """
        wanted = output_names or self.outputs
        if self._direct is not None:
            return self._run_directly(self._direct, wanted, input_feed, run_options)
        self._check_names(wanted, input_feed)
        request = self._wait(self._begun(wanted, input_feed, run_options))
        self.part_s = request.part_s
        return request.outputs(wanted, input_feed)

    def run_many(
        self,
        output_names: Sequence[str] | None,
        input_feeds: Iterable[Mapping[str, Any]],
        run_options: ort.RunOptions | None = None,
    ) -> Iterator[list[Any]]:
        """The outputs of one step per feed, in their order, while later steps are under way.

        It begins up to `max_in_flight` steps before the first is asked for. Leaving the iterator gives up those under way.

        Raises:
            MeasurementFailed: as `run`.
            InvalidInput: as `run`.
        """
        wanted = output_names or self.outputs
        if isinstance(self._devices, OneDevice):
            yield from (self.run(wanted, feed, run_options) for feed in input_feeds)
            return
        pending: deque[tuple[_Begun, Mapping[str, Any]]] = deque()
        try:
            for feed in input_feeds:
                if len(pending) == self.max_in_flight:
                    begun, given = pending.popleft()
                    yield self._wait(begun).outputs(wanted, given)
                self._check_names(wanted, feed)
                pending.append((self._begun(wanted, feed, run_options), feed))
            while pending:
                begun, given = pending.popleft()
                yield self._wait(begun).outputs(wanted, given)
        finally:
            for (request, _), _ in pending:
                self._devices.give_up(request)

    def submit(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: ort.RunOptions | None = None,
    ) -> Future[list[Any]]:
        """The outputs of one step, later; it waits while `max_in_flight` submitted requests have not been delivered.

        What a failing part makes `run` raise is the future's exception. The future cannot be cancelled. One thread delivers,
        and calls what `add_done_callback` was given; a callback may submit, and does not wait for deliveries then.

        Raises:
            InvalidInput: an input is missing, an output is unknown, or the runner is closed.
        """
        wanted = output_names or self.outputs
        self._check_names(wanted, input_feed)
        with self._lock:
            deliverer = self._deliverer = self._deliverer or TaskThread("results")
        future: Future[list[Any]] = Future()
        future.set_running_or_notify_cancel()
        waits = not deliverer.is_current
        if waits:
            self._undelivered.acquire()

        def deliver(outputs: Callable[[], list[Any]]) -> None:
            _settle(future, outputs)
            if waits:
                self._undelivered.release()

        try:
            if isinstance(self._devices, OneDevice):
                with self._lock:
                    self._check_open()  # a closed thread would never come to it
                    deliverer.put(partial(deliver, partial(self.run, wanted, input_feed, run_options)))
            else:
                self._begin(
                    Request(wanted, run_options, self._devices.num_workers),
                    input_feed,
                    lambda request: deliverer.put(partial(deliver, partial(request.outputs, wanted, input_feed))),
                )
        except InvalidInput:
            if waits:
                self._undelivered.release()
            raise
        return future

    def first_state(self, pairs: Mapping[str, str], values: Mapping[str, Any]) -> State:
        """The state before the first of several runs; `pairs` are inputs and the outputs that replace them."""
        return State(plan_state(self._steps, self._feeds, pairs), values)

    def run_with_state(
        self,
        output_names: Sequence[str],
        input_feed: Mapping[str, Any],
        state: State,
        run_options: ort.RunOptions | None = None,
    ) -> tuple[list[Any], State]:
        """The outputs of one step, and the state after it; `input_feed` holds the inputs that are no state.

        State that a device makes and reads stays in its memory; other state is moved as any other value.

        Raises:
            MeasurementFailed: as `run`; the state from before is as good as it was.
            InvalidInput: as `run`.
        """
        feed = {**state.on_host, **input_feed}
        resident = [name for values in state.on_devices.values() for name in values]
        self._check_names(output_names, {**feed, **dict.fromkeys(resident)})
        wanted = state.plan.over_host.union(output_names)
        request = self._wait(self._begun(wanted, feed, run_options, state))
        passed = {name: value for name, value in feed.items() if name in wanted}  # outputs that are inputs
        after = state.followed_by({**passed, **request.results}, request.resident)
        return request.outputs(output_names, feed), after

    def close(self) -> None:
        """Ends the threads after the steps that are running; requests that are under way fail.

        Sessions in a cache stay there. A callback of a future may call it.
        """
        with self._lock:
            self._closed = True
            self._direct = None
        self._devices.close()
        if self._deliverer is not None:
            self._deliverer.close()

    def __enter__(self) -> PlacedRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_directly(
        self, session: PartSession, wanted: Sequence[str], input_feed: Mapping[str, Any], options: ort.RunOptions | None
    ) -> list[Any]:
        """A model in one piece goes to its session as it is; ONNX Runtime's own checks do, ours say what was wrong."""
        assert isinstance(self._devices, OneDevice)
        try:
            with self._devices.turn, pinned(session.device):
                return list(session.run_python(wanted, input_feed, options))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            self._check_names(wanted, input_feed)
            raise MeasurementFailed(f"the model failed on {session.device.name!r}: {one_line(error)}") from error

    def _check_names(self, wanted: Iterable[str], input_feed: Mapping[str, Any]) -> None:
        self._check_open()
        for name in wanted:
            if name not in self._known:
                raise InvalidInput(f"{name!r} is no output of the model; it has {', '.join(self.outputs)}")
        for name in self._required:
            if name not in input_feed:
                raise InvalidInput(f"the model input {name!r} is missing; given are {', '.join(input_feed) or 'none'}")

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _begin(
        self, request: Request, feed: Mapping[str, Any], then: Callable[[Request], object], state: State | None = None
    ) -> None:
        """Gives every device its inputs; `then` is called when the request has ended, on the thread that ends it."""
        request.on_end.append(then)
        inputs = {device: {name: feed[name] for name in names if name in feed} for device, names in self._feeds.items()}
        for device, values in {} if state is None else state.on_devices.items():
            inputs[device] |= values
        self._devices.begin(request, inputs)

    def _begun(
        self,
        wanted: Collection[str],
        feed: Mapping[str, Any],
        options: ort.RunOptions | None,
        state: State | None = None,
    ) -> _Begun:
        """A request for a caller who will wait for it."""
        request = Request(wanted, options, self._devices.num_workers, {} if state is None else state.plan.stays)
        done: SimpleQueue[Request] = SimpleQueue()
        self._begin(request, feed, done.put, state)
        return request, done

    def _wait(self, begun: _Begun) -> Request:
        request, done = begun
        try:
            done.get()
        except BaseException:  # Ctrl-C
            self._devices.give_up(request)
            raise
        if request.failure is not None:
            raise request.failure
        return request


_Begun = tuple[Request, SimpleQueue[Request]]
"""A request, and where it arrives when it has ended."""


def _settle(future: Future[list[Any]], outputs: Callable[[], list[Any]]) -> None:
    try:
        found = outputs()
    except Exception as error:  # the future's to raise
        future.set_exception(error)
    else:
        future.set_result(found)


def _defaulted(parts: Sequence[RunnerPart]) -> set[str]:
    return {name for part in parts for name in part.optional_inputs}


def _covers(part: RunnerPart, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
    """The part takes and gives all that the model does; inputs that no op reads are in no part, and ONNX Runtime refuses them."""
    return set(inputs) <= {*part.inputs, *part.optional_inputs} and set(outputs) <= set(part.outputs)
