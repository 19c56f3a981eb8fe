"""Dataflow between devices: the steps of each device, a request under way, and state that lives on between requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.errors import GnnplaceError, InvalidPlacement
from gnnplace.onnx_io.part import Part
from gnnplace.running.values import Options, Value, as_numpy

START = -1
"""Stands for the caller, who provides the model inputs, in place of a part's number."""


@dataclass(frozen=True)
class Step:
    """One part with the values that its device waits for, sends and releases."""

    number: int
    """Position of the part in the global run order."""
    part: Part
    waits: frozenset[int]
    """Parts on other devices (or `START`) that must have delivered; where the devices share a resource, must have ended. Parts that an
    earlier step waited for are left out."""
    keeps: tuple[str, ...]
    """Outputs that later steps of the device read."""
    sends: tuple[tuple[str, tuple[str, ...]], ...]
    """Other devices, each with the outputs that it reads; none where it only waits for the end of the part."""
    results: tuple[str, ...]
    """Outputs of the part that are model outputs."""
    releases: tuple[str, ...]
    """Values that no later step of the device reads."""


def plan_steps(
    parts: Sequence[Part],
    inputs: Sequence[str],
    outputs: Sequence[str],
    rivals: Mapping[str, Collection[str]] = {},
) -> tuple[dict[str, list[Step]], dict[str, tuple[str, ...]]]:
    """The steps of each device in order, and the model inputs that each device reads.

    `parts` are in a global run order: producers before consumers. `rivals` names for each device those that share a resource with
    it: their parts run one after the other, in the global order.

    Raises:
        InvalidPlacement: a value is read before it is produced, produced twice, or wanted and never produced.
    """
    producer: dict[str, int] = dict.fromkeys(inputs, START)
    last_reader: dict[tuple[str, str], int] = {}
    for number, part in enumerate(parts):
        for name in part.reads:
            if name not in producer:
                raise InvalidPlacement(
                    f"part {part.name!r} reads {name!r}, which no earlier part and no model input provides"
                )
            last_reader[part.device, name] = number
        for name in part.outputs:
            if name in part.optional_inputs:
                continue  # a model input with a default that is also a model output
            if name in producer:
                raise InvalidPlacement(f"part {part.name!r} produces {name!r}, which is there already")
            producer[name] = number
    for name in outputs:
        if name not in producer:
            raise InvalidPlacement(f"the model output {name!r} is produced by no part")

    readers: dict[str, list[str]] = defaultdict(list)
    for device, name in last_reader:
        readers[name].append(device)
    steps: dict[str, list[Step]] = defaultdict(list)
    waited: dict[str, set[int]] = defaultdict(set)
    before, after = _turns(parts, rivals)
    wanted = set(outputs)
    for number, part in enumerate(parts):
        sources = {producer[name] for name in part.reads} | {START}
        waits = {n for n in sources if n == START or parts[n].device != part.device} | before[number]
        waits -= waited[part.device]
        waited[part.device] |= waits
        sends: dict[str, list[str]] = defaultdict(list, {device: [] for device in after[number]})
        for name in part.outputs:
            for device in readers[name] if producer[name] == number else ():
                sends[device].append(name)
        keeps = tuple(sends.pop(part.device, ()))
        steps[part.device].append(
            Step(
                number=number,
                part=part,
                waits=frozenset(waits),
                keeps=keeps,
                sends=tuple((device, tuple(names)) for device, names in sends.items()),
                results=tuple(name for name in part.outputs if name in wanted),
                releases=tuple(name for name in dict.fromkeys(part.reads) if last_reader[part.device, name] == number),
            )
        )
    feeds = {device: tuple(name for name in inputs if (device, name) in last_reader) for device in steps}
    return dict(steps), feeds


def _turns(parts: Sequence[Part], rivals: Mapping[str, Collection[str]]) -> tuple[list[set[int]], list[set[str]]]:
    """For each part the last parts before it on devices that share a resource with its own, and the devices that wait for it."""
    before: list[set[int]] = [set() for _ in parts]
    after: list[set[str]] = [set() for _ in parts]
    last: dict[str, int] = {}
    for number, part in enumerate(parts):
        own = last.get(part.device, START)
        # Earlier ones than the last part on this device are over.
        before[number] = {last[rival] for rival in rivals.get(part.device, ()) if last.get(rival, START) > own}
        for earlier in before[number]:
            after[earlier].add(part.device)
        last[part.device] = number
    return before, after


class Request:
    """One run of the model, shared by all devices; the thread that ends it calls the functions in `on_end` once."""

    def __init__(
        self, wanted: Collection[str], options: Options = None, stays: Mapping[str, frozenset[str]] = {}
    ) -> None:
        self.number = 0
        """Devices run the request with the smallest number first."""
        self.wanted = frozenset(wanted)
        self.options = options
        self.stays = stays
        """Outputs of each device that stay in its memory, because the next request reads them there."""
        self.results: dict[str, Value] = {}
        """The wanted outputs, on the host."""
        self.resident: dict[str, Value] = {}
        """The outputs that stay in the memory of their device."""
        self.part_s: dict[int, float] = {}
        """Seconds of each part by its position in the run order, without copies between memories, which belong to the links."""
        self.part_ns: IntArray | None = None
        """`[P]` nanoseconds of the parts instead, where compiled threads run them."""
        self.failure: GnnplaceError | None = None
        self.on_end: list[Callable[[Request], object]] = []
        self.ended: SimpleQueue[None] = SimpleQueue()
        """Receives one item after the calls in `on_end`."""
        self.devices_left = 1
        """Calls of `device_done` that end the request; the devices set it before they start."""
        self._lock = Lock()

    @property
    def stopped(self) -> bool:
        """The request has failed or is complete, so devices skip its steps and drop its values."""
        return self.failure is not None or self.devices_left == 0

    def device_done(self) -> None:
        """Records that a device has run its last step and sent all its outputs."""
        with self._lock:
            self.devices_left -= 1
            ends = self.devices_left == 0 and self.failure is None
        if ends:
            self._end()

    def fail(self, failure: GnnplaceError) -> None:
        """Ends the request with an error, unless it has ended before."""
        with self._lock:
            ends = self.devices_left > 0 and self.failure is None
            if ends:
                self.failure = failure
        if ends:
            self._end()

    def _end(self) -> None:
        calls, self.on_end = self.on_end, []  # a worker keeps its last request alive, and would keep these too
        for call in calls:
            call(self)
        self.ended.put(None)

    def outputs(self, names: Sequence[str], input_feed: Mapping[str, Any]) -> list[Any]:
        """The named outputs of an ended request, as `onnxruntime.InferenceSession.run` returns them.

        Raises:
            GnnplaceError: the request failed.
        """
        if self.failure is not None:
            raise self.failure
        results = self.results
        found = [as_numpy(results[name]) if name in results else np.array(as_numpy(input_feed[name])) for name in names]
        self.results, self.resident = {}, {}
        return found


@dataclass(frozen=True)
class State:
    """The state between two runs, whose outputs become inputs of the next run; no run writes to its values."""

    pairs: Mapping[str, str]
    """Each state input with the output that replaces it."""
    stays: Mapping[str, frozenset[str]]
    """Outputs of each device that the same device reads in the next run."""
    over_host: frozenset[str]
    """Outputs that other devices, or none, read in the next run."""
    on_host: Mapping[str, Value]
    """Values by input."""
    on_devices: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Values by device and input."""

    def followed_by(self, on_host: Mapping[str, Value], resident: Mapping[str, Value]) -> State:
        """The state after a run with these outputs, on the host and in the memory of devices."""
        pairs = self.pairs.items()
        return replace(
            self,
            on_host={name: on_host[output] for name, output in pairs if output in on_host},
            on_devices={
                device: {name: resident[output] for name, output in pairs if output in outputs}
                for device, outputs in self.stays.items()
            },
        )

    def value(self, name: str) -> Value:
        """The value of one input, wherever it is."""
        places = (self.on_host, *self.on_devices.values())
        return next(values[name] for values in places if name in values)
