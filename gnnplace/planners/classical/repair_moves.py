"""The compiled moves of `repair.py`: units leave over-full memories, and units of hosts come into free memory."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.compiled_code import inlined
from gnnplace.evaluation import Problem

_MOST_LEAVE = 6  # units that leave a memory to make room for one


class Costs(NamedTuple):
    """What moves cost and need: units, their neighbours in CSR form, and routes."""

    unit_s: FloatArray  # [U, D] infinite where not allowed
    unit_bytes: FloatArray  # [U] held for as long as the unit is on a device
    transient_bytes: FloatArray  # [U] needed while the unit runs; a memory has room for the largest of its units
    is_scarce: BoolArray  # [D] devices that are short of memory; the others are hosts
    home: IntArray  # [D] the first device of each device's memory
    offsets: IntArray  # [U + 1]
    neighbours: IntArray
    sent: FloatArray  # number of tensors to the neighbour
    sent_bytes: FloatArray
    received: FloatArray  # number of tensors from the neighbour
    received_bytes: FloatArray
    latency_s: FloatArray  # [D, D] infinite where no route is
    per_byte_s: FloatArray  # [D, D]


class Memory(NamedTuple):
    """What each memory has free, at its first device."""

    room: FloatArray  # [D] negative where it is over-full
    reserved: FloatArray  # [D] kept free for what its units need while they run


def move_costs(problem: Problem, unit_bytes: FloatArray, transient_bytes: FloatArray, is_scarce: BoolArray) -> Costs:
    """The costs of a problem's moves; a tensor goes to a unit once, however many of its ops read it."""
    graph, topology, unit, count = problem.graph, problem.topology, problem.unit_of_op, problem.num_units
    source, target = unit[graph.tensor_producer[graph.consumer_tensor]], unit[graph.consumers]
    reads = np.unique(np.stack([graph.consumer_tensor, source, target])[:, source != target], axis=1)
    tensor, source, target = reads
    pairs, index = np.unique(np.concatenate([source * count + target, target * count + source]), return_inverse=True)
    is_sent, num_bytes = np.repeat([1.0, 0.0], len(tensor)), np.tile(graph.tensor_bytes[tensor], 2)

    def summed(weights: FloatArray) -> FloatArray:
        return np.bincount(index, weights, len(pairs)).astype(np.float64)

    return Costs(
        np.where(problem.action_mask, problem.unit_time_s, np.inf),
        unit_bytes,
        transient_bytes,
        is_scarce,
        topology.memory_home,
        *csr(pairs // count, pairs % count, count),
        summed(is_sent),
        summed(is_sent * num_bytes),
        summed(1.0 - is_sent),
        summed((1.0 - is_sent) * num_bytes),
        topology.route_latency_s,
        np.where(np.isfinite(topology.route_s_per_byte), topology.route_s_per_byte, 0.0),
    )


@njit(cache=True, nogil=True)
def cost_s(unit: int, device: int, devices: IntArray, costs: Costs) -> float:
    """Seconds of the unit on the device and of all its transfers there, one after the other."""
    total = costs.unit_s[unit, device]
    for at in range(costs.offsets[unit], costs.offsets[unit + 1]):
        other = devices[costs.neighbours[at]]
        if other != device:
            total += transfers_s(
                at, device, other, costs.sent, costs.sent_bytes, costs.received, costs.received_bytes, costs.latency_s,
                costs.per_byte_s,
            )  # fmt: skip
    return float(total)


@inlined
def transfers_s(
    at: int,
    device: int,
    other: int,
    sent: FloatArray,
    sent_bytes: FloatArray,
    received: FloatArray,
    received_bytes: FloatArray,
    latency_s: FloatArray,
    per_byte_s: FloatArray,
) -> float:
    """Seconds of the transfers between a unit on `device` and its neighbour `at` on another one, one after the other.

    The arrays are those of `Costs`.
    """
    seconds = 0.0
    if sent[at] > 0.0:
        seconds += sent[at] * latency_s[device, other]
        seconds += sent_bytes[at] * per_byte_s[device, other]
    if received[at] > 0.0:
        seconds += received[at] * latency_s[other, device]
        seconds += received_bytes[at] * per_byte_s[other, device]
    return seconds


@njit(cache=True, nogil=True)
def _needed(unit: int, memory: int, costs: Costs, state: Memory) -> float:
    """Bytes of the unit in the memory, with those that it needs while it runs beyond what is reserved."""
    return float(costs.unit_bytes[unit] + max(0.0, costs.transient_bytes[unit] - state.reserved[memory]))


@njit(cache=True, nogil=True)
def _relocate(unit: int, target: int, devices: IntArray, costs: Costs, state: Memory) -> None:
    source, memory = costs.home[devices[unit]], costs.home[target]
    state.room[memory] -= _needed(unit, memory, costs, state)
    state.reserved[memory] = max(state.reserved[memory], costs.transient_bytes[unit])
    state.room[source] += costs.unit_bytes[unit]
    devices[unit] = target


@njit(cache=True, nogil=True)
def evict(devices: IntArray, costs: Costs, state: Memory) -> None:
    """Moves units out of over-full memories, in place, the least loss per byte first (Dantzig's greedy rule for knapsacks)."""
    num_units, num_devices = costs.unit_s.shape
    while True:
        best, best_to, best_rate = -1, -1, np.inf
        for unit in range(num_units):
            source = devices[unit]
            if state.room[costs.home[source]] >= 0.0 or costs.unit_bytes[unit] <= 0.0:
                continue
            here = cost_s(unit, source, devices, costs)
            for target in range(num_devices):
                memory = costs.home[target]
                if memory == costs.home[source] or state.room[memory] < _needed(unit, memory, costs, state):
                    continue
                rate = (cost_s(unit, target, devices, costs) - here) / costs.unit_bytes[unit]
                if rate < best_rate:
                    best, best_to, best_rate = unit, target, rate
        if best < 0:
            return
        _relocate(best, best_to, devices, costs, state)


@njit(cache=True, nogil=True)
def fill(most: int, banned: BoolArray, devices: IntArray, costs: Costs, state: Memory) -> IntArray:
    """Brings at most `most` units from hosts, but those `banned`, into free memory, in place; gives these units.

    Units that the hosts delay most per byte come first.
    """
    num_units, num_devices = costs.unit_s.shape
    rate = np.full(num_units, -np.inf)
    for unit in range(num_units):
        if not costs.is_scarce[devices[unit]] and not banned[unit]:
            fastest = np.inf
            for device in range(num_devices):
                if costs.is_scarce[device]:
                    fastest = min(fastest, costs.unit_s[unit, device])
            rate[unit] = (costs.unit_s[unit, devices[unit]] - fastest) / max(1.0, costs.unit_bytes[unit])
    brought, count = np.empty(num_units, dtype=np.int64), 0
    for unit in np.argsort(-rate):
        if rate[unit] <= 0.0 or count == most:
            break
        if _bring_in(unit, devices, costs, state):
            brought[count] = unit
            count += 1
    return brought[:count]


@njit(cache=True, nogil=True)
def _bring_in(unit: int, devices: IntArray, costs: Costs, state: Memory) -> bool:
    """Moves a unit of a host where it saves most, after others have made room there; false where it saves nothing."""
    num_units, num_devices = costs.unit_s.shape
    here = cost_s(unit, devices[unit], devices, costs)
    saved = np.zeros(num_devices)
    for target in range(num_devices):
        if costs.is_scarce[target]:
            saved[target] = here - cost_s(unit, target, devices, costs)
    lost, to = np.full(num_units, np.inf), np.full(num_units, -1)  # of the cheapest other place of each unit
    best_s, best_to, best_left, best_count = 1e-9 * here, -1, np.empty(_MOST_LEAVE, dtype=np.int64), 0
    for target in np.argsort(-saved):
        if saved[target] <= best_s:
            break
        memory, loss, count, left = costs.home[target], 0.0, 0, np.empty(_MOST_LEAVE, dtype=np.int64)
        need = _needed(unit, memory, costs, state) - state.room[memory]
        if need > 0.0:
            _price_departures(target, devices, costs, state, lost, to)
        while need > 0.0 and count < _MOST_LEAVE and loss < saved[target] - best_s:
            chosen, chosen_rate = -1, np.inf
            for other in range(num_units):
                if devices[other] == target and lost[other] < np.inf and (left[:count] != other).all():
                    rate = lost[other] / min(costs.unit_bytes[other], need)
                    if rate < chosen_rate:
                        chosen, chosen_rate = other, rate
            if chosen < 0:
                break
            left[count] = chosen
            count += 1
            need -= costs.unit_bytes[chosen]
            loss += lost[chosen]
        if need <= 0.0 and saved[target] - loss > best_s:
            best_s, best_to, best_left, best_count = saved[target] - loss, target, left, count
    if best_to < 0:
        return False
    for other in best_left[
        :best_count
    ]:  # two that leave for one memory may over-fill it, which the next schedule shows
        _relocate(other, to[other], devices, costs, state)
    _relocate(unit, best_to, devices, costs, state)
    return True


@njit(cache=True, nogil=True)
def _price_departures(
    device: int, devices: IntArray, costs: Costs, state: Memory, lost: FloatArray, to: IntArray
) -> None:
    """Writes the seconds that each unit of the device loses on the cheapest other one with room, and which one that is."""
    for unit in range(len(devices)):
        if devices[unit] != device:
            continue
        lost[unit] = np.inf
        if costs.unit_bytes[unit] <= 0.0:
            continue
        stay = cost_s(unit, device, devices, costs)
        for place in range(costs.unit_s.shape[1]):
            memory = costs.home[place]
            if memory == costs.home[device] or state.room[memory] < _needed(unit, memory, costs, state):
                continue
            leave = cost_s(unit, place, devices, costs) - stay
            if leave < lost[unit]:
                lost[unit], to[unit] = leave, place
