"""Values that live on between runs: which of them stay on a device, and which pass through the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gnnplace.executors.dataflow import Step
from gnnplace.executors.values import Value

__all__ = ["State", "StatePlan", "plan_state"]


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
