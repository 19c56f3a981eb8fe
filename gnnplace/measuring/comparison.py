"""Measured costs: those of placements side by side, and those of plain sessions of the whole model, of which the best is the reference."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.devices.real_names import all_core_sessions, parse_real
from gnnplace.devices.topology import Topology
from gnnplace.difference import Difference
from gnnplace.evaluation import Evaluation
from gnnplace.measuring.timing import median_interval


@dataclass(frozen=True, eq=False)
class PlainSessions:
    """Measured costs of one session of the whole model; None where none runs."""

    best: Evaluation | None = None
    """Cost of the reference, the best session that the device set allows."""
    best_session: str = ""
    """Device of the reference: one of the set, or all its cores with the options of the session."""
    single: Evaluation | None = None
    """Cost on the best single device."""
    single_device: str = ""
    seconds_of: Mapping[str, float] = field(default_factory=dict)
    """Seconds of every plain session that ran, by its device."""

    @property
    def ratio(self) -> float:
        """Seconds of the reference over those of the best single device."""
        return 1.0 if self.best is None or self.single is None else self.best.makespan_s / self.single.makespan_s

    @property
    def best_s(self) -> float | None:
        """Seconds of the reference."""
        return None if self.best is None else self.best.makespan_s

    @property
    def single_s(self) -> float | None:
        """Seconds on the best single device."""
        return None if self.single is None else self.single.makespan_s


@dataclass(frozen=True, eq=False)
class Comparison:
    """Placements measured side by side, each in the segments of a saved placement."""

    evaluations: tuple[Evaluation, ...]
    """Measured costs, in the order of the placements."""
    plain: PlainSessions = PlainSessions()
    """Plain sessions measured beside them."""
    difference: Difference | None = None
    """Paired difference of the fastest placement and the reference, if it was measured."""
    confirmed: bool = True
    """False: the costs are those of the search, with few repeats and not side by side."""


def candidate_sessions(topology: Topology, simulated: Mapping[str, Evaluation]) -> list[str]:
    """Devices of the plain sessions that may be the best: the fastest of each kind, then all cores of the set.

    `simulated` are the costs of the whole model on the devices where it fits, by name. The first device is the fastest.
    """
    kinds = {device.name: device.kind for device in topology.devices}
    fastest_first = sorted(simulated, key=lambda name: simulated[name].makespan_s)
    of_kind = {kinds[name]: name for name in reversed(fastest_first)}
    found = [name for name in fastest_first if of_kind[kinds[name]] == name]
    if any(parse_real(name).family == "cpu" for name in fastest_first):  # it fits into the memory of all cores, too
        found += [name for name in all_core_sessions(topology.device_names) if name not in kinds]
    return found


def chosen_sessions(
    simulated: Mapping[str, Evaluation], first: PlainSessions, ratios: Mapping[str, FloatArray]
) -> PlainSessions:
    """The best plain session and the best single device.

    `ratios` are those `[R]` of the seconds of other sessions to those of the session `first.best_session`.
    """
    assert first.best is not None
    ratio_of = {first.best_session: 1.0, **{name: float(np.median(row)) for name, row in ratios.items()}}
    costs = {first.best_session: first.best}
    for name, row in ratios.items():
        costs[name] = executed(simulated.get(name, first.best), row * first.best.makespan_s)
    best = min(ratio_of, key=ratio_of.__getitem__)
    single = min(filter(simulated.__contains__, ratio_of), key=ratio_of.__getitem__)
    seconds_of = {name: cost.makespan_s for name, cost in costs.items()}
    return PlainSessions(costs[best], best, costs[single], single, seconds_of)


def with_whole_models(plain: PlainSessions, whole: Mapping[str, Evaluation]) -> PlainSessions:
    """Counts placements of the whole model on one device, by its name, as plain sessions, which they are.

    Otherwise such a placement would look like an improvement on a reference that was measured in a busy moment.
    """
    device = min(whole, key=lambda name: whole[name].makespan_s, default="")
    if plain.best_s is None or not device or whole[device].makespan_s >= plain.best_s:
        return plain
    best = whole[device]
    return replace(plain, best=best, best_session=device, single=best, single_device=device)


def executed(simulated: Evaluation, row_s: FloatArray | None, failure: str = "") -> Evaluation:
    """A simulated evaluation with the median of the measured seconds `[R]`; a failure without them."""
    if row_s is None:
        return replace(measured(simulated, np.inf, 0.0, simulated.repeats), failure=failure)
    interval = median_interval(row_s)
    return measured(simulated, interval.median, interval.spread, len(row_s))


def measured(simulated: Evaluation, seconds: float, spread_s: float, repeats: int) -> Evaluation:
    """A simulated evaluation with measured seconds."""
    return replace(
        simulated,
        evaluator="measured",
        makespan_s=seconds,
        period_s=seconds,
        spread_s=spread_s,
        repeats=repeats,
        failure="",
    )
