"""What each device has to wait for, to pass on and to forget when the parts of a model run on several devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnnplace.errors import InvalidPlacement

__all__ = ["START", "RunnerPart", "Step", "plan_steps"]

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
