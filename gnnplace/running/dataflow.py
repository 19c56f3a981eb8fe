"""What each device has to wait for, to pass on and to forget when the parts of a model run on several devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.errors import GnnplaceError, InvalidPlacement
from gnnplace.running.values import Value, as_numpy

__all__ = ["START", "Request", "RunnerPart", "State", "StatePlan", "Step", "plan_state", "plan_steps"]


START = -1
"""Stands for the caller, who provides the model inputs, where otherwise the number of a part stands."""


@dataclass(frozen=True)
class RunnerPart:
    """One part of a model, the device that it runs on, and the values that it exchanges."""

    name: str
    """For messages: a file name, or the name of an op group."""
    device: str
    model: Path | bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optional_inputs: tuple[str, ...] = ()
    """Model inputs that have a default."""
    key: Hashable = None
    """Names the content: a session cache gives back the session of an equal key on the same device; None: not cached."""
    data_folder: Path | None = None
    """Where external weights of a model in memory lie."""
    custom_ops: tuple[Path, ...] = ()
    """Shared libraries with operators that ONNX Runtime does not have."""


@dataclass(frozen=True)
class Step:
    """One part as its device's worker sees it."""

    number: int
    """Position of the part in the global run order."""
    part: RunnerPart
    waits: frozenset[int]
    """Parts on other devices (or `START`) that must have delivered, without those an earlier step has waited for."""
    keeps: tuple[str, ...]
    """Outputs that later steps of the device read."""
    sends: tuple[tuple[str, tuple[str, ...]], ...]
    """(device, outputs that it reads)."""
    results: tuple[str, ...]
    """Outputs that the caller wants."""
    releases: tuple[str, ...]
    """Values that no later step of the device reads."""


def plan_steps(
    parts: Sequence[RunnerPart], inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[dict[str, list[Step]], dict[str, tuple[str, ...]]]:
    """The steps of each device in order, and the model inputs that each device reads.

    `parts` are in a global run order: producers before consumers.

    Raises:
        InvalidPlacement: a value is read before it is produced, produced twice, or wanted and never produced.
    """
    producer: dict[str, int] = dict.fromkeys(inputs, START)
    last_reader: dict[tuple[str, str], int] = {}
    for number, part in enumerate(parts):
        for name in (*part.inputs, *part.optional_inputs):
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
    wanted = set(outputs)
    for number, part in enumerate(parts):
        read = (*part.inputs, *part.optional_inputs)
        sources = {producer[name] for name in read} | {START}
        waits = {n for n in sources if n == START or parts[n].device != part.device} - waited[part.device]
        waited[part.device] |= waits
        sends: dict[str, list[str]] = defaultdict(list)
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
                releases=tuple(name for name in dict.fromkeys(read) if last_reader[part.device, name] == number),
            )
        )
    feeds = {device: tuple(name for name in inputs if (device, name) in last_reader) for device in steps}
    return dict(steps), feeds


_NOWHERE: Mapping[str, frozenset[str]] = {}


class Request:
    """Shared by all devices that work on it; what is in `on_end` is called once, on the thread that ends it."""

    def __init__(
        self,
        wanted: Collection[str],
        options: ort.RunOptions | None,
        num_devices: int,
        stays: Mapping[str, frozenset[str]] = _NOWHERE,
    ) -> None:
        self.number = 0
        """Older requests have smaller ones and go first."""
        self.wanted = frozenset(wanted)
        self.options = options
        self.stays = stays
        """Of each device, the outputs that are left in its memory because the next request reads them there."""
        self.results: dict[str, Value] = {}
        """The wanted outputs, on the host."""
        self.resident: dict[str, Value] = {}
        """The outputs that stay, where they were made."""
        self.part_s: dict[int, float] = {}
        """By position in the run order, what each part took, handing over included."""
        self.failure: GnnplaceError | None = None
        self.on_end: list[Callable[[Request], object]] = []
        self._devices_left = num_devices
        self._lock = Lock()

    @property
    def stopped(self) -> bool:
        """It has failed, so nobody has to go on with it."""
        return self.failure is not None

    def device_done(self) -> None:
        """A device has run its last part, and all that others need of it is on its way."""
        with self._lock:
            self._devices_left -= 1
            ends = self._devices_left == 0 and self.failure is None
        if ends:
            self._end()

    def fail(self, failure: GnnplaceError) -> None:
        """Ends it, unless it has ended before."""
        with self._lock:
            ends = self._devices_left > 0 and self.failure is None
            if ends:
                self.failure = failure
        if ends:
            self._end()

    def _end(self) -> None:
        calls, self.on_end = self.on_end, []  # a worker remembers its last request, and so would all that they hold
        for call in calls:
            call(self)

    def outputs(self, names: Sequence[str], input_feed: Mapping[str, Any]) -> list[Any]:
        """The named outputs of a request that has ended, as `onnxruntime.InferenceSession.run` returns them.

        Raises:
            GnnplaceError: it failed.
        """
        if self.failure is not None:
            raise self.failure
        results = self.results
        found = [as_numpy(results[name]) if name in results else np.array(as_numpy(input_feed[name])) for name in names]
        self.results, self.resident = {}, {}
        return found


@dataclass(frozen=True)
class StatePlan:
    """How outputs of one run become inputs of the next one."""

    pairs: Mapping[str, str]
    """Inputs, and the outputs that replace them."""
    stays: Mapping[str, frozenset[str]]
    """Of each device, the outputs that it makes and reads in the next run as well."""
    over_host: frozenset[str]
    """The outputs that other devices read in the next run, or nobody."""


@dataclass(frozen=True)
class State:
    """The values of one moment. They are never written to: the next run makes new ones."""

    plan: StatePlan
    on_host: Mapping[str, Value]
    """By input."""
    on_devices: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """By device and input."""

    def followed_by(self, on_host: Mapping[str, Value], resident: Mapping[str, Value]) -> State:
        """The state after a run that gave these outputs, on the host and on the devices where they stay."""
        pairs = self.plan.pairs.items()
        return State(
            self.plan,
            {name: on_host[output] for name, output in pairs if output in on_host},
            {
                device: {name: resident[output] for name, output in pairs if output in outputs}
                for device, outputs in self.plan.stays.items()
            },
        )

    def value(self, name: str) -> Value:
        """The value of one input, wherever it is."""
        places = (self.on_host, *self.on_devices.values())
        return next(values[name] for values in places if name in values)


def plan_state(
    steps: Mapping[str, Sequence[Step]], feeds: Mapping[str, Collection[str]], pairs: Mapping[str, str]
) -> StatePlan:
    """Leaves an output where it is made when its input is read there, and sends it over the host for everyone else.

    `steps` and `feeds` are what `plan_steps` gave.
    """
    maker = {name: device for device, own in steps.items() for step in own for name in step.results}
    stays: dict[str, set[str]] = {}
    over_host: set[str] = set()
    for name, output in pairs.items():
        readers = {device for device, names in feeds.items() if name in names}
        device = maker.get(output)
        if device is not None and device in readers:
            stays.setdefault(device, set()).add(output)
        if readers != {device}:
            over_host.add(output)
    return StatePlan(pairs, {device: frozenset(names) for device, names in stays.items()}, frozenset(over_host))
