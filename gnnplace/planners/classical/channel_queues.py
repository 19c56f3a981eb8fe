"""What queues at the channels cost, where each channel carries transfers in the order in which their tensors exist."""

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.classical.list_state import Machine, Tensors, list_machine, tensors_of


def queued_s(problem: Problem, free: ListSchedule) -> float:
    """Seconds after which the last path that begins with a transfer would end, by queues at the channels; 0 without transfers.

    `free` is a schedule in which transfers do not wait. Its ops end as they do there, channels carry what they make, first come first
    served as in the simulator, and after a transfer comes the longest path from its readers, on which nothing waits. So later ops are
    not delayed by earlier queues: the result is no simulation.
    """
    if not free.connected:
        return 0.0
    graph, topology, devices = problem.graph, problem.topology, free.assignment
    producers, consumers = graph.edges
    edge_bytes = graph.tensor_bytes[graph.consumer_tensor]
    ends = devices[producers], devices[consumers]
    edge_s = topology.route_latency_s[ends] + edge_bytes * topology.route_s_per_byte[ends]
    after_s = graph.upward_rank(free.end_s - free.start_s, edge_s)
    machine = list_machine(topology, 1.0, None, channels=True)
    return float(_last_end_s(devices, free.end_s, after_s, tensors_of(graph), machine))


@njit(cache=True, nogil=True)
def _last_end_s(devices: IntArray, end_s: FloatArray, after_s: FloatArray, tensors: Tensors, machine: Machine) -> float:
    """The latest end of a path that begins with a transfer; `after_s` `[N]` are the seconds of the longest path from an op's start."""
    producer, num_bytes, consumer_offsets, consumers = tensors
    route_offsets, hop_channel = machine.route_offsets, machine.hop_channel
    hop_latency_s, hop_s_per_byte = machine.hop_latency_s, machine.hop_s_per_byte
    num_devices = len(machine.overhead_s)
    free_s, path_s = np.zeros(machine.num_channels), np.full(num_devices, -1.0)
    last_s = 0.0
    for tensor in np.argsort(end_s[producer], kind="mergesort"):
        source = devices[producer[tensor]]
        begin, end = consumer_offsets[tensor], consumer_offsets[tensor + 1]
        for at in range(begin, end):
            target = devices[consumers[at]]
            path_s[target] = max(path_s[target], after_s[consumers[at]])
        path_s[source] = -1.0
        for at in range(begin, end):
            target = devices[consumers[at]]
            if path_s[target] < 0.0:  # on the same device, or sent already
                continue
            time = end_s[producer[tensor]]
            for hop in range(
                route_offsets[source * num_devices + target], route_offsets[source * num_devices + target + 1]
            ):
                channel = hop_channel[hop]
                time = max(time, free_s[channel]) + hop_latency_s[hop] + num_bytes[tensor] * hop_s_per_byte[hop]
                free_s[channel] = time
            last_s = max(last_s, time + path_s[target])
            path_s[target] = -1.0
    return last_s
