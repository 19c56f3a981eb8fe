"""The interval model of `optimal`: placement and schedule as variables of CP-SAT, and devices that may swap."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem
from gnnplace.schedule import Schedule

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

TICKS = 10**7
"""Ticks of the horizon. With 50 roundings in a row a bound loses 5e-6 of itself."""

NEVER = 2 * TICKS
"""Ticks to a place that an op or a tensor cannot reach; beyond the horizon, and small enough to add up."""


def interchangeable_devices(problem: Problem) -> list[list[int]]:
    """Groups of two or more devices that may swap without changing any schedule, each in rising order."""
    groups: list[list[int]] = []
    for device in range(problem.topology.num_devices):
        for group in groups:
            if all(_may_swap(problem, other, device) for other in group):
                group.append(device)
                break
        else:
            groups.append([device])
    return [group for group in groups if len(group) > 1]


def in_order(devices: IntArray, groups: list[list[int]]) -> IntArray:
    """`[U]` the same placement with interchangeable devices in order of first use."""
    renamed = devices.copy()
    for group in groups:
        used = [device for device in dict.fromkeys(devices.tolist()) if device in group]
        for new, old in zip(group, used, strict=False):
            renamed[devices == old] = new
    return renamed


def _may_swap(problem: Problem, first: int, second: int) -> bool:
    """True where a swap maps times, masks, memories, exclusions and every route onto themselves, channels one to one."""
    topology, count = problem.topology, problem.topology.num_devices
    swapped = np.arange(count)
    swapped[[first, second]] = second, first
    columns = [
        *(problem.op_time_s, problem.action_mask, topology.memory_bytes, topology.dispatch_overhead_s),
        *(topology.segment_overhead_s, topology.intake_bandwidth_bytes_per_s),
    ]
    if any(not np.array_equal(column, column[..., swapped]) for column in columns):
        return False
    shares_memory = topology.memory_home[:, None] == topology.memory_home
    if any(not np.array_equal(pairs, pairs[swapped][:, swapped]) for pairs in (topology.excludes, shares_memory)):
        return False
    links: list[tuple[int, int]] = []
    for source, target in np.ndindex(count, count):
        route, other = topology.route(source, target), topology.route(int(swapped[source]), int(swapped[target]))
        if (route is None) != (other is None) or len(route or ()) != len(other or ()):
            return False
        links.extend(zip(route or (), other or (), strict=True))
    here, there = np.array(links, dtype=np.int64).reshape(-1, 2).T
    rates = topology.latency_s, topology.bandwidth_bytes_per_s
    channels = set(zip(topology.link_channel[here].tolist(), topology.link_channel[there].tolist(), strict=True))
    one_to_one = all(len(set(ends)) == len(channels) for ends in zip(*channels, strict=True))
    return one_to_one and all(np.array_equal(rate[here], rate[there]) for rate in rates)


@dataclass(frozen=True, eq=False)
class Hop:
    """A possible transfer of a tensor over one link of its route."""

    tensor: int
    source: int
    """Device of the producer."""
    target: int
    """Device that receives the tensor at the end of the route."""
    channel: int
    is_first: bool
    is_last: bool
    sent: cp_model.IntVar
    """True where the tensor is sent from `source` to `target`."""
    ready: cp_model.LinearExprT
    """Tick at which the tensor joins the channel's queue."""
    start: cp_model.IntVar
    size: int

    @property
    def end(self) -> cp_model.LinearExprT:
        """Tick at which the next hop, or a consumer, may start."""
        return self.start + self.size


class IntervalModel:
    """Rules 1, 2, 3, 5 and 6 of the execution model as constraints; `rules` adds rule 4 and the behaviour of the simulator.

    Every op has a start, an end, and an optional interval on each device. Every tensor has an optional interval for each
    hop from each source to each target. For throughput there is no time: the value is the busiest resource or channel.

    Seconds become whole ticks, and every duration is rounded down. As `floor(a) + floor(b) <= floor(a + b)`, a simulated
    schedule with its starts rounded down still meets every constraint. The least value of the model, in seconds, is
    therefore at most the simulated seconds of any placement with any priorities.

    Args:
        problem: Problem to place.
        horizon_s: Largest value in seconds, above zero.
        at_least_s: Smallest value in seconds.
    """

    def __init__(self, problem: Problem, horizon_s: float, at_least_s: float = 0.0) -> None:
        from ortools.sat.python import cp_model

        self.problem = problem
        self.model = cp_model.CpModel()
        self.tick_s = horizon_s / TICKS
        self.timed = problem.objective == "latency"
        self.value = self.model.new_int_var(min(TICKS, self.ticks(at_least_s)), TICKS, "value")
        self.run_ticks: IntArray = np.full(problem.op_time_s.shape, NEVER, dtype=np.int64)
        """`[N, D]` ticks of each op without overheads."""
        allowed = problem.action_mask[problem.unit_of_op]
        self.run_ticks[allowed] = problem.op_time_s[allowed] / self.tick_s
        self._resource_load: dict[int, list[cp_model.LinearExprT]] = defaultdict(list)
        self._channel_load: dict[int, list[cp_model.LinearExprT]] = defaultdict(list)
        self.on = self._assignment()
        self.hops: list[Hop] = []
        self.hops_of: dict[int, list[Hop]] = defaultdict(list)
        """Every hop that a tensor may take."""
        self.start: list[cp_model.IntVar] = []
        self.end: list[cp_model.IntVar] = []
        self.waits: list[cp_model.IntVar] = []
        """`[N]` true where the op's device was idle before it, so that the op pays the dispatch overhead."""
        self._run_ops()
        self._send_tensors()
        for load in (*self._resource_load.values(), *self._channel_load.values()):
            self.model.add(sum(load) <= self.value)
        self.model.minimize(self.value)

    def ticks(self, seconds: float) -> int:
        """Whole ticks, rounded down."""
        return int(seconds / self.tick_s)

    def new_time(self) -> cp_model.IntVar:
        """A tick within the horizon."""
        return self.model.new_int_var(0, TICKS, "")

    def op_on(self, op: int, device: int) -> cp_model.IntVar:
        """True where the op is on the device."""
        return self.on[int(self.problem.unit_of_op[op])][device]

    def devices_of(self, op: int) -> list[int]:
        """Devices that may run the op."""
        allowed: list[int] = np.flatnonzero(self.problem.action_mask[self.problem.unit_of_op[op]]).tolist()
        return allowed

    def hint(self, schedule: Schedule) -> None:
        """Starts the search at a schedule."""
        devices = in_order(self.problem.unit_devices(schedule.assignment), interchangeable_devices(self.problem))
        for unit, row in enumerate(self.on):
            for device, here in enumerate(row):
                self.model.add_hint(here, bool(devices[unit] == device))
        for op, start in enumerate(self.start):
            self.model.add_hint(start, min(TICKS, self.ticks(float(schedule.start_s[op]))))

    def _assignment(self) -> list[list[cp_model.IntVar]]:
        """`[U][D]` true where the unit is on the device. Units use interchangeable devices in order."""
        mask = self.problem.action_mask
        on = [[self.model.new_bool_var("") for _ in row] for row in mask]
        for unit, row in enumerate(on):
            self.model.add_exactly_one(row)
            for device in np.flatnonzero(~mask[unit]).tolist():
                self.model.add(row[device] == 0)
        for devices in interchangeable_devices(self.problem):
            for before, after in pairwise(devices):
                for unit, row in enumerate(on):
                    self.model.add_bool_or([~row[after], *(earlier[before] for earlier in on[:unit])])
        return on

    def _run_ops(self) -> None:
        """Adds rules 1, 5 and 6 (a resource serves one op at a time) and 3 (an op that `waits` takes longer)."""
        problem, model = self.problem, self.model
        intervals: dict[int, list[cp_model.IntervalVar]] = defaultdict(list)
        resources = [np.flatnonzero(used).tolist() for used in problem.topology.uses_resource]
        for op in range(problem.graph.num_ops):
            sizes = self.run_ticks[op].tolist()
            for device in self.devices_of(op):
                for resource in resources[device]:
                    self._resource_load[resource].append(sizes[device] * self.op_on(op, device))
            if not self.timed:
                continue
            start, end, waits = self.new_time(), self.new_time(), model.new_bool_var("")
            self.start.append(start)
            self.end.append(end)
            self.waits.append(waits)
            model.add(end <= self.value)
            for device in self.devices_of(op):
                with_overhead_s = problem.op_time_s[op, device] + problem.topology.dispatch_overhead_s[device]
                size, here = sizes[device], self.op_on(op, device)
                size += (self.ticks(with_overhead_s) - size) * waits
                interval = model.new_optional_interval_var(start, size, end, here, f"op{op} on {device}")
                for resource in resources[device]:
                    intervals[resource].append(interval)
        for on_resource in intervals.values():
            model.add_no_overlap(on_resource)

    def _send_tensors(self) -> None:
        """Adds rule 2: a tensor is sent once per destination, and each hop of the route is alone on its channel."""
        graph, unit = self.problem.graph, self.problem.unit_of_op
        intervals: dict[int, list[cp_model.IntervalVar]] = defaultdict(list)
        for tensor, producer in enumerate(graph.tensor_producer.tolist()):
            for target in range(self.problem.topology.num_devices):
                readers = [op for op in graph.consumers_of(tensor).tolist() if target in self.devices_of(op)]
                readers = [op for op in readers if unit[op] != unit[producer]]
                if readers:
                    self._send(tensor, target, readers)
        if self.timed:
            for producer, reader in dict.fromkeys(zip(*(ends.tolist() for ends in graph.edges), strict=True)):
                self.model.add(self.start[reader] >= self.end[producer])
            for hop in self.hops:
                intervals[hop.channel].append(
                    self.model.new_optional_fixed_size_interval_var(hop.start, hop.size, hop.sent, "")
                )
        for on_channel in intervals.values():
            self.model.add_no_overlap(on_channel)

    def _send(self, tensor: int, target: int, readers: list[int]) -> None:
        """Adds the transfers of one tensor to one device, from every device that may run its producer."""
        model, topology, graph = self.model, self.problem.topology, self.problem.graph
        producer, num_bytes = int(graph.tensor_producer[tensor]), int(graph.tensor_bytes[tensor])
        # Starts of the first hop, the second, ...; all sources share them, as only one of them sends the tensor.
        starts: list[cp_model.IntVar] = []
        for source in self.devices_of(producer):
            route = topology.route(source, target)
            if source == target:
                continue
            here, sent = self.op_on(producer, source), model.new_bool_var("")
            model.add_implication(sent, here)
            model.add_bool_or([~sent, *(self.op_on(op, target) for op in readers)])
            for op in readers:
                model.add_bool_or([~here, ~self.op_on(op, target), sent])
            if route is None:
                model.add(sent == 0)
                continue
            ready: cp_model.LinearExprT = self.end[producer] if self.timed else 0
            starts.extend(self.new_time() for _ in range(len(route) - len(starts)))
            for place, link in enumerate(route):
                size, channel = self.ticks(topology.links[link].transfer_s(num_bytes)), int(topology.link_channel[link])
                hop = Hop(tensor, source, target, channel, place == 0, place == len(route) - 1, sent,
                          ready, starts[place], size)  # fmt: skip
                self._channel_load[channel].append(size * sent)
                self.hops.append(hop)
                self.hops_of[tensor].append(hop)
                if self.timed:
                    model.add(hop.start >= ready).only_enforce_if(sent)
                ready = hop.end
            if self.timed:
                model.add(ready <= self.value).only_enforce_if(sent)
                for op in readers:
                    model.add(self.start[op] >= ready).only_enforce_if([sent, self.op_on(op, target)])
