"""The execution model written down as slowly and plainly as possible: the oracle of the compiled engine."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph


@dataclass
class NaiveRun:
    """One step, event by event."""

    graph: OpGraph
    topology: Topology
    op_time_s: np.ndarray
    assignment: list[int]
    order: list[int]  # ops from the highest priority to the lowest
    start_s: dict[int, float] = field(default_factory=dict)
    end_s: dict[int, float] = field(default_factory=dict)
    hops: list[tuple[int, int, int, float, float]] = field(default_factory=list)  # tensor, target, link, start, end
    sent_bytes: int = 0

    def __post_init__(self) -> None:
        devices = range(self.topology.num_devices)
        self.running = dict.fromkeys(devices)
        self.last_end = dict.fromkeys(devices, 0.0)
        self.live = dict.fromkeys(devices, 0)
        self.peak = dict.fromkeys(devices, 0)
        self.begins = dict.fromkeys(devices, 0.0)  # what the next op pays for beginning a segment
        self.device_busy = dict.fromkeys(devices, 0.0)
        self.queues = defaultdict(list)  # channel -> [[tensor, source, target, hop number]]; the first is under way
        self.channel_end = {}
        self.channel_busy = defaultdict(float)
        self.in_memory = defaultdict(int)  # (tensor, memory) -> copies there
        self.here = set()  # (tensor, device) that can be used
        self.holders = {}  # (tensor, device) -> set of uses that are left
        self.run()

    def outputs(self, op: int) -> list[int]:
        return [t for t in range(self.graph.num_tensors) if self.graph.tensor_producer[t] == op]

    def is_ready(self, op: int) -> bool:
        return all((t, self.assignment[op]) in self.here for t in self.graph.inputs_of(op).tolist())

    def run(self) -> None:
        now = 0.0
        self.start_ops(now)
        while True:
            events = [(self.end_s[op], 0, device) for device, op in self.running.items() if op is not None]
            events += [(end, 1, channel) for channel, end in self.channel_end.items()]
            if not events:
                break
            now = min(events)[0]
            while True:
                events = [(0, d) for d, op in self.running.items() if op is not None and self.end_s[op] == now]
                events += [(1, c) for c, end in self.channel_end.items() if end == now]
                if not events:
                    break
                what, which = min(events)
                if what == 0:
                    self.end_op(which, now)
                else:
                    self.end_hop(which, now)
            self.start_ops(now)
        self.makespan = now

    def resources(self, device: int) -> set[str]:
        return {*(self.topology.devices[device].resources or [self.topology.devices[device].name])}

    def memory(self, device: int) -> int:
        pool = self.topology.devices[device].memory_pool
        return next(
            at for at, other in enumerate(self.topology.devices)
            if at == device or (pool is not None and other.memory_pool == pool)
        )  # fmt: skip

    def store(self, tensor: int, device: int) -> None:
        memory = self.memory(device)
        self.in_memory[tensor, memory] += 1
        if self.in_memory[tensor, memory] == 1:
            self.live[memory] += int(self.graph.tensor_bytes[tensor])

    def drop(self, tensor: int, device: int) -> None:
        memory = self.memory(device)
        self.in_memory[tensor, memory] -= 1
        if self.in_memory[tensor, memory] == 0:
            self.live[memory] -= int(self.graph.tensor_bytes[tensor])

    def start_ops(self, now: float) -> None:
        taken = {r for device, op in self.running.items() if op is not None for r in self.resources(device)}
        for op in self.order:
            device = self.assignment[op]
            if op not in self.start_s and self.is_ready(op) and not self.resources(device) & taken:
                taken |= self.resources(device)
                duration = float(self.op_time_s[op, device]) + self.begins[device]
                if now > self.last_end[device]:
                    duration += self.topology.devices[device].dispatch_overhead_s
                self.begins[device] = 0.0
                self.running[device] = op
                self.start_s[op], self.end_s[op] = now, now + duration
                self.device_busy[device] += duration
                self.live[self.memory(device)] += int(self.graph.workspace_bytes[op])
                for tensor in self.outputs(op):
                    self.store(tensor, device)
        for device in self.live:
            self.peak[device] = max(self.peak[device], self.live[device])

    def end_op(self, device: int, now: float) -> None:
        op = self.running[device]
        self.running[device] = None
        self.last_end[device] = now
        self.live[self.memory(device)] -= int(self.graph.workspace_bytes[op])
        for tensor in self.graph.inputs_of(op).tolist():
            self.release(tensor, device, op)
        for tensor in self.outputs(op):
            self.here.add((tensor, device))
            consumers = self.graph.consumers_of(tensor).tolist()
            for consumer in consumers:
                self.holders.setdefault((tensor, self.assignment[consumer]), set()).add(consumer)
            for target in dict.fromkeys(self.assignment[c] for c in consumers):
                if target != device:
                    self.holders.setdefault((tensor, device), set()).add(("copy", target))
                    self.begins[device] = max(self.begins[device], self.topology.devices[device].segment_overhead_s)
                    self.sent_bytes += int(self.graph.tensor_bytes[tensor])
                    self.request([tensor, device, target, 0], now)

    def release(self, tensor: int, device: int, use: object) -> None:
        self.holders[tensor, device].remove(use)
        if not self.holders[tensor, device]:
            self.drop(tensor, device)

    def link_of(self, transfer: list[int]) -> int:
        return self.topology.route(transfer[1], transfer[2])[transfer[3]]

    def request(self, transfer: list[int], now: float) -> None:
        channel = int(self.topology.link_channel[self.link_of(transfer)])
        self.queues[channel].append(transfer)
        if len(self.queues[channel]) == 1:
            self.begin_hop(channel, now)

    def begin_hop(self, channel: int, now: float) -> None:
        transfer = self.queues[channel][0]
        tensor, source, target, hop = transfer
        link = self.topology.links[self.link_of(transfer)]
        duration = link.latency_s + int(self.graph.tensor_bytes[tensor]) / link.bandwidth_bytes_per_s
        if hop + 1 == len(self.topology.route(source, target)):
            self.store(tensor, target)
        self.channel_end[channel] = now + duration
        self.channel_busy[channel] += duration
        self.hops.append((tensor, target, self.link_of(transfer), now, now + duration))

    def end_hop(self, channel: int, now: float) -> None:
        transfer = self.queues[channel].pop(0)
        del self.channel_end[channel]
        if self.queues[channel]:
            self.begin_hop(channel, now)
        tensor, source, target, hop = transfer
        if hop == 0:
            self.release(tensor, source, ("copy", target))
        if hop + 1 < len(self.topology.route(source, target)):
            self.request([tensor, source, target, hop + 1], now)
        else:
            self.here.add((tensor, target))
            device = self.topology.devices[target]
            num_bytes = int(self.graph.tensor_bytes[tensor])
            taking_s = num_bytes * (1.0 / (device.intake_bandwidth_bytes_per_s or np.inf))
            self.begins[target] = max(self.begins[target], device.segment_overhead_s) + taking_s
