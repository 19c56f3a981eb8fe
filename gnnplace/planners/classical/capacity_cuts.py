"""Cuts of a graph into parts that fit into limited memories: annealing of loads and transfers, without schedules."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.compiled_code import inlined
from gnnplace.evaluation import Problem
from gnnplace.interruption import deferred_interrupts
from gnnplace.planners.classical.estimates import Estimated, by_op
from gnnplace.planners.classical.list_schedule import ScheduleOptions, list_schedule, on_all_cores
from gnnplace.planners.classical.repair_moves import Costs, transfers_s

_EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)  # of the norm of loads: from their sum to the largest
_CUTS = (48, 4, 120)  # fewest cuts, cuts for each placement that is evaluated, and most
_MOST_STEPS, _MOST_OPS = 3_500_000, 300_000  # of all cuts, a second or less each; an estimate schedules all ops twice
_ROUNDS = 4  # of annealing, each with limits that the last estimate corrects
_STEPS_PER_UNIT = (400, 80)  # of the first and of later rounds
_LEAST_STEPS_SHARE, _STEP_S = 0.05, 1.2e-6  # of these steps, where seconds are few; seconds of a step
_TEMPERATURES = (0.1, 0.01)  # at the beginning of the first and of later rounds, relative to the norm
_LAST_TEMPERATURE = 3e-4
_PRICES = (3.0, 30.0)  # of missing memory there, per share of all scarce memory, relative to the norm
_LAST_PRICE = 100.0
_FILLED = (0.9, 0.94, 0.97, 1.0)  # shares of a memory that the estimated peak should fill
_TO_NEIGHBOUR, _EXCHANGE = 0.4, 0.2  # shares of the moves
_TRIES = 8  # draws of a unit that goes the other way
_LEAST_LIMIT = 0.3  # of what a memory held, when the next limit is lower
_UNEVEN = 0.01  # by how much equal devices differ when all units go to the fastest one


class Annealed(NamedTuple):
    """What one round of annealing does."""

    exponent: float
    steps: int
    temperature: float
    price: float


class Loads(NamedTuple):
    """What a placement costs: of devices, and of memories at their first device."""

    seconds: FloatArray  # [D]
    held: FloatArray  # [D] bytes of all units
    largest: FloatArray  # [D] the most bytes that a unit needs while it runs


@dataclass(frozen=True, eq=False)
class CapacityCuts:
    """Random cuts of a problem whose devices are short of memory.

    A device's load is the time of its units and half of the time of their transfers to and from other devices. Annealing
    (Kirkpatrick et al. 1983; of graph partitions: Johnson et al. 1989) minimises the norm of the loads, whose exponent is
    drawn: 1 suits chains, whose ops wait for each other, and large ones suit parallel graphs, whose slowest device decides.
    Missing memory has a price that rises. A memory needs room for what its units hold and for the most that one of them
    needs while it runs. What they really need depends on the schedule, so every round ends with an estimate by single ops, which
    corrects the limits of the next one.
    """

    problem: Problem
    costs: Costs

    def estimated(self, count: int, rng: np.random.Generator, seconds: float = np.inf) -> Iterator[Estimated]:
        """Estimated placements, of which the caller evaluates `count`; fewer on large problems. Four in a row start from the same assignment.

        `seconds` limits these four: annealing makes fewer steps where they would take longer, by an estimate. All cores anneal.
        """
        units, ops = self.problem.num_units, self.problem.over_ops[0].graph.num_ops
        run_steps = max(1, units) * (_STEPS_PER_UNIT[0] + (_ROUNDS - 1) * _STEPS_PER_UNIT[1])
        affordable = max(_ROUNDS, min(_ROUNDS * _MOST_STEPS // run_steps, _MOST_OPS // max(1, ops)))
        share = _share_within(seconds, run_steps)
        count = min(affordable, max(_CUTS[0], _CUTS[1] * count), _CUTS[2])
        _ = self._heft, self._memory_bytes, self._finite_costs  # computed once, not in every thread
        runs = islice(self._runs(rng), math.ceil(count / _ROUNDS))
        found = on_all_cores(self.problem, lambda run: self._annealed(share, *run), runs)
        return islice(chain.from_iterable(found), count)

    def corrected(
        self, devices: IntArray, peak_bytes: IntArray, rng: np.random.Generator, seconds: float = np.inf
    ) -> Iterator[Estimated]:
        """Estimated cuts near one `[U]` that needed `peak_bytes` `[D]`, by which their estimates are corrected.

        Each has another exponent, and is annealed for at most about `seconds`.
        """
        limit_bytes = self._limit_bytes(devices, self._memory_bytes, peak_bytes)
        missed_bytes = peak_bytes - by_op(self.problem, devices[self.problem.unit_of_op]).peak_bytes
        all_steps = _STEPS_PER_UNIT[1] * max(1, len(devices))
        steps = round(_share_within(seconds, all_steps) * all_steps)
        for exponent in rng.permutation(_EXPONENTS).tolist():
            annealed = Annealed(exponent, steps, _TEMPERATURES[1], _PRICES[1])
            with deferred_interrupts():
                found = anneal(devices, limit_bytes, annealed, self._finite_costs, rng)
            cut = by_op(self.problem, found[self.problem.unit_of_op])
            yield cut._replace(peak_bytes=cut.peak_bytes + missed_bytes)

    def _runs(self, rng: np.random.Generator) -> Iterator[tuple[float, np.random.Generator]]:
        """Exponents, each as often as the others, with random numbers for one run of annealing; without end."""
        while True:
            for exponent in rng.permutation(_EXPONENTS).tolist():
                yield exponent, rng.spawn(1)[0]

    def _annealed(self, steps_share: float, exponent: float, rng: np.random.Generator) -> list[Estimated]:
        """The estimated placements of one run of annealing, which has a beginning and a share of memories of its own."""
        devices, found = self._beginning(rng), list[Estimated]()
        filled_bytes = float(rng.choice(_FILLED)) * self._memory_bytes
        limit_bytes = filled_bytes
        for number in range(_ROUNDS):
            kind = min(number, 1)
            steps = round(steps_share * _STEPS_PER_UNIT[kind] * len(devices))
            annealed = Annealed(exponent, steps, _TEMPERATURES[kind], _PRICES[kind])
            with deferred_interrupts():
                devices = anneal(devices, limit_bytes, annealed, self._finite_costs, rng)
            found.append(by_op(self.problem, devices[self.problem.unit_of_op]))
            limit_bytes = self._limit_bytes(devices, filled_bytes, found[-1].peak_bytes)
        return found

    def _beginning(self, rng: np.random.Generator) -> IntArray:
        """Devices `[U]` from which to anneal: those of HEFT, the fastest of each unit, or a single device with room for all."""
        hosts = np.flatnonzero(~self.costs.is_scarce & np.isfinite(self.costs.unit_s).all(axis=0))
        kind = int(rng.integers(3 if len(hosts) else 2))
        if kind == 0:
            return self._heft
        if kind == 1:
            factors = rng.uniform(1.0, 1.0 + _UNEVEN, self.costs.unit_s.shape[1])
            return np.asarray(np.argmin(self.costs.unit_s * factors, axis=1))
        return np.full(len(self.costs.unit_s), int(rng.choice(hosts)))

    def _limit_bytes(self, devices: IntArray, filled_bytes: FloatArray, peak_bytes: IntArray) -> FloatArray:
        """`[D]` limits on the estimated need of the next cut: the estimate for `devices`, corrected by how far `peak_bytes` were from `filled_bytes`."""
        needs = loads(devices, self._finite_costs)
        needed = needs.held + needs.largest
        missed = filled_bytes - peak_bytes[self.problem.topology.memory_home]
        return np.asarray(np.maximum(needed + missed, _LEAST_LIMIT * needed))

    @cached_property
    def _memory_bytes(self) -> FloatArray:
        """`[D]` the capacity of each device's memory."""
        topology = self.problem.topology
        memory_bytes: FloatArray = topology.memory_bytes[topology.memory_home].astype(np.float64)
        return memory_bytes

    @cached_property
    def _finite_costs(self) -> Costs:
        """Loads are added and subtracted, so a missing route costs more than all units together, but not an infinite time."""
        latency_s, unit_s = self.costs.latency_s, self.costs.unit_s
        no_route_s = unit_s[np.isfinite(unit_s)].sum()
        return self.costs._replace(latency_s=np.where(np.isfinite(latency_s), latency_s, no_route_s))

    @cached_property
    def _heft(self) -> IntArray:
        """`[U]` devices of HEFT, which ignores memory."""
        return self.problem.unit_devices(list_schedule(self.problem, ScheduleOptions(memory_share=None)).assignment)


def _share_within(seconds: float, steps: int) -> float:
    """Share of these steps that takes at most `seconds`, by an estimate; a few are always made."""
    return min(1.0, max(_LEAST_STEPS_SHARE, seconds / (_STEP_S * steps)))


@njit(cache=True, nogil=True)
def anneal(
    devices: IntArray, limit_bytes: FloatArray, settings: Annealed, costs: Costs, rng: np.random.Generator
) -> IntArray:
    """Devices `[U]` with the least missing memory, and of those the ones with the least norm of loads, that annealing meets."""
    unit_s, unit_bytes, transient_bytes = costs.unit_s, costs.unit_bytes, costs.transient_bytes
    home, offsets, neighbours = costs.home, costs.offsets, costs.neighbours
    sent, sent_bytes, received, received_bytes = costs.sent, costs.sent_bytes, costs.received, costs.received_bytes
    latency_s, per_byte_s, exponent = costs.latency_s, costs.per_byte_s, settings.exponent
    num_units, num_devices = unit_s.shape
    devices = devices.copy()
    best = devices.copy()
    now, scarce_bytes = loads(devices, costs), 1.0
    for device in range(num_devices):
        if costs.is_scarce[device] and home[device] == device:
            scarce_bytes += limit_bytes[device]
    seconds, held, largest = now.seconds, now.held, now.largest
    new_seconds, new_held, new_largest = seconds.copy(), held.copy(), largest.copy()
    norm_s, missing = _norm(seconds, exponent), _missing(held, largest, limit_bytes)
    best_s, best_missing = norm_s, missing
    for step in range(settings.steps):
        done = step / settings.steps
        temperature = settings.temperature * (_LAST_TEMPERATURE / settings.temperature) ** done
        price = settings.price * (_LAST_PRICE / settings.price) ** done / scarce_bytes
        unit, target = int(rng.integers(0, num_units)), int(rng.integers(0, num_devices))
        source, begin, end = int(devices[unit]), offsets[unit], offsets[unit + 1]
        if begin < end and rng.random() < _TO_NEIGHBOUR:
            target = int(devices[neighbours[rng.integers(begin, end)]])
        if target == source or unit_s[unit, target] == np.inf:
            continue
        _copy(seconds, held, largest, new_seconds, new_held, new_largest)
        _move(
            unit, target, devices, unit_s, unit_bytes, transient_bytes, home, offsets, neighbours, sent, sent_bytes, received,
            received_bytes, latency_s, per_byte_s, new_seconds, new_held, new_largest,
        )  # fmt: skip
        new_missing, back = _missing(new_held, new_largest, limit_bytes), -1
        if new_missing > missing or rng.random() < _EXCHANGE:
            back = _drawn(unit, target, source, devices, unit_s, rng)
            if back >= 0:
                _move(
                    back, source, devices, unit_s, unit_bytes, transient_bytes, home, offsets, neighbours, sent, sent_bytes,
                    received, received_bytes, latency_s, per_byte_s, new_seconds, new_held, new_largest,
                )  # fmt: skip
                new_missing = _missing(new_held, new_largest, limit_bytes)
        new_norm_s = _norm(new_seconds, exponent)
        worse = np.log(new_norm_s / norm_s) + price * (new_missing - missing)
        if worse <= 0.0 or rng.random() < np.exp(-worse / temperature):
            _copy(new_seconds, new_held, new_largest, seconds, held, largest)
            norm_s, missing = new_norm_s, new_missing
            if missing < best_missing or (missing == best_missing and norm_s < best_s):
                for each in range(num_units):
                    best[each] = devices[each]
                best_s, best_missing = norm_s, missing
        else:
            devices[unit] = source
            if back >= 0:
                devices[back] = target
    return best


@njit(cache=True, nogil=True)
def loads(devices: IntArray, costs: Costs) -> Loads:
    """The loads of a placement `[U]`."""
    num_units, num_devices = costs.unit_s.shape
    found = Loads(np.zeros(num_devices), np.zeros(num_devices), np.zeros(num_devices))
    for unit in range(num_units):
        device = devices[unit]
        found.seconds[device] += costs.unit_s[unit, device]
        _add_transfers(  # each transfer has two ends
            unit, device, 0.5, devices, costs.offsets, costs.neighbours, costs.sent, costs.sent_bytes, costs.received,
            costs.received_bytes, costs.latency_s, costs.per_byte_s, found.seconds,
        )  # fmt: skip
        memory = costs.home[device]
        found.held[memory] += costs.unit_bytes[unit]
        found.largest[memory] = max(found.largest[memory], costs.transient_bytes[unit])
    return found


@inlined
def _copy(
    seconds: FloatArray,
    held: FloatArray,
    largest: FloatArray,
    to_seconds: FloatArray,
    to_held: FloatArray,
    to_largest: FloatArray,
) -> None:
    for device in range(len(seconds)):
        to_seconds[device], to_held[device], to_largest[device] = seconds[device], held[device], largest[device]


@inlined
def _move(
    unit: int,
    target: int,
    devices: IntArray,
    unit_s: FloatArray,
    unit_bytes: FloatArray,
    transient_bytes: FloatArray,
    home: IntArray,
    offsets: IntArray,
    neighbours: IntArray,
    sent: FloatArray,
    sent_bytes: FloatArray,
    received: FloatArray,
    received_bytes: FloatArray,
    latency_s: FloatArray,
    per_byte_s: FloatArray,
    seconds: FloatArray,
    held: FloatArray,
    largest: FloatArray,
) -> None:
    """Moves a unit, in place, and its loads from the old device to the new one."""
    source = devices[unit]
    left, entered = home[source], home[target]
    seconds[source] -= unit_s[unit, source]
    _add_transfers(
        unit, source, -1.0, devices, offsets, neighbours, sent, sent_bytes, received, received_bytes, latency_s, per_byte_s,
        seconds,
    )  # fmt: skip
    seconds[target] += unit_s[unit, target]
    _add_transfers(
        unit, target, 1.0, devices, offsets, neighbours, sent, sent_bytes, received, received_bytes, latency_s, per_byte_s,
        seconds,
    )  # fmt: skip
    devices[unit] = target
    held[left] -= unit_bytes[unit]
    held[entered] += unit_bytes[unit]
    largest[entered] = max(largest[entered], transient_bytes[unit])
    if transient_bytes[unit] >= largest[left]:
        most = 0.0
        for other in range(len(devices)):
            if home[devices[other]] == left:
                most = max(most, transient_bytes[other])
        largest[left] = most


@inlined
def _add_transfers(
    unit: int,
    device: int,
    factor: float,
    devices: IntArray,
    offsets: IntArray,
    neighbours: IntArray,
    sent: FloatArray,
    sent_bytes: FloatArray,
    received: FloatArray,
    received_bytes: FloatArray,
    latency_s: FloatArray,
    per_byte_s: FloatArray,
    seconds: FloatArray,
) -> None:
    """Adds half of the seconds of the unit's transfers, if it runs on the device, to the loads of both ends."""
    for at in range(offsets[unit], offsets[unit + 1]):
        other = devices[neighbours[at]]
        if other != device:
            half_s = 0.5 * factor * transfers_s(
                at, device, other, sent, sent_bytes, received, received_bytes, latency_s, per_byte_s
            )  # fmt: skip
            seconds[device] += half_s
            seconds[other] += half_s


@inlined
def _drawn(unit: int, device: int, to: int, devices: IntArray, unit_s: FloatArray, rng: np.random.Generator) -> int:
    """Another unit of the device that may run on `to`; -1 where few draws find none."""
    found = -1
    for _ in range(_TRIES):
        other = int(rng.integers(0, len(devices)))
        if other != unit and devices[other] == device and unit_s[other, to] < np.inf:
            found = other
            break
    return found


@inlined
def _missing(held: FloatArray, largest: FloatArray, limit_bytes: FloatArray) -> float:
    """Bytes that all memories together lack."""
    missing = 0.0
    for memory in range(len(limit_bytes)):
        missing += max(0.0, held[memory] + largest[memory] - limit_bytes[memory])
    return missing


@inlined
def _norm(seconds: FloatArray, exponent: float) -> float:
    """The norm of the seconds of devices; at least a tiny time, as it is compared by ratios."""
    most, total = 1e-30, 0.0
    for device in range(len(seconds)):
        most = max(most, seconds[device])
    for device in range(len(seconds)):
        total += (max(0.0, seconds[device]) / most) ** exponent
    return float(max(1e-30, most * total ** (1.0 / exponent)))
