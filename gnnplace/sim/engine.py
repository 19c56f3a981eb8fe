"""The compiled event loop: the schedule of a placement by the rules of the execution model.

Rules, with the tie-breaks that make the result unique:

1. A device runs one op at a time and starts the ready op of highest priority. All events of an instant are processed
   before an op starts at that instant: ends of ops by device index, then ends of transfers by channel index. Where devices
   share resources, the ready ops of all devices start by priority; one whose resources are not all free is passed over.
2. When its producer ends, a tensor is sent once per destination: outputs by index, destinations in the order of the
   consumer list. Each hop of the route occupies the link's channel for `latency + bytes / bandwidth`. Channels serve
   transfers first come, first served.
3. An op that starts on a device that sat idle pays the dispatch overhead: a work-conserving device idles only while it
   waits for a remote input, or while another device has its resources. The first op after copies have arrived, or after an
   op that sent a tensor, begins a segment: it pays the segment overhead and the intake of the bytes that arrived.
4. Outputs and workspace are held from the start of the op, a copy on its destination from the start of the last hop.
   An input is released after its last use on the device; at home also not before the last outgoing copy. A tensor without
   consumers is held to the end. In a pool, copies of one tensor count once. Peaks are read after all events of an instant.
"""

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.event_heap import pop_event, push_event
from gnnplace.sim.state import (
    COMPLETED,
    FAILED,
    FREE_TRANSFER,
    HOP,
    NEXT,
    NOTHING,
    NUM_EVENTS,
    NUM_TRANSFERS,
    ONE,
    RECORDED,
    SENT_BYTES,
    SOURCE,
    TARGET,
    TENSOR,
    EngineState,
    Index,
    Recording,
    join,
    occupy,
    pop_ready,
    push_ready,
    reset,
    touch,
)
from gnnplace.sim.tables import FIRST_HOP, LAST_HOP, EngineTables, IndexArray


@njit(cache=True, nogil=True, error_model="numpy")
def advance(
    tables: EngineTables, assignment: IndexArray, state: EngineState, record: Recording, completed: int, limit_s: float
) -> None:
    """Runs until `completed` ops have ended and their instant is over, until no event is left, or until the run fails.

    A run fails when a route is missing, or when even the fastest continuation would end after `limit_s`: free transfers and the
    fastest devices, or the ops that are left for the op's device, by `state.total_s`, which callers with a limit write. They add a
    margin for rounding, since seconds are added in more than one order.

    One long function on local names: a call per event, or a tuple field per access, costs more than the event.
    """
    op_time_s, tail_s, dispatch_overhead_s = tables.op_time_s, tables.tail_s, tables.dispatch_overhead_s
    segment_overhead_s, intake_s_per_byte = tables.segment_overhead_s, tables.intake_s_per_byte
    start_bytes, workspace_bytes, tensor_bytes = tables.start_bytes, tables.workspace_bytes, tables.tensor_bytes
    output_offsets, input_offsets, input_tensors = tables.output_offsets, tables.input_offsets, tables.input_tensors
    consumer_offsets, consumers, route_offsets = tables.consumer_offsets, tables.consumers, tables.route_offsets
    hop_link, hop_channel, hop_place = tables.hop_link, tables.hop_channel, tables.hop_place
    hop_latency_s, hop_bandwidth = tables.hop_latency_s, tables.hop_bandwidth
    missing, uses, ready, ready_words = state.missing, state.uses, state.ready, state.ready_words
    num_ready, running, last_end_s, begins_s = state.num_ready, state.running, state.last_end_s, state.begins_s
    live_bytes, peak_bytes, device_busy_s = state.live_bytes, state.peak_bytes, state.device_busy_s
    begun_s, total_s = state.begun_s, state.total_s
    event_s, event_id, queue_head, queue_tail = state.event_s, state.event_id, state.queue_head, state.queue_tail
    channel_busy_s, transfers, wake, touched = state.channel_busy_s, state.transfers, state.wake, state.touched
    clock_s, counters = state.now_s, state.counters
    record_start_s, record_end_s, record_tensor = record.start_s, record.end_s, record.tensor
    record_target, record_link = record.target, record.link
    hop_start_s, hop_end_s = record.hop_start_s, record.hop_end_s
    excludes, pooled, memory_home = tables.excludes, tables.pooled, tables.memory_home
    resource_offsets, resources, holder = tables.resource_offsets, tables.resources, state.holder
    num_devices = np.uint64(len(running))
    pools = np.uint64(len(tensor_bytes)) * num_devices  # where copies in each pool begin in `uses`
    record_ops, record_hops = len(record_start_s) > 0, len(record_link) > 0
    now_s = clock_s[0]
    num_completed, num_events, failed = counters[COMPLETED], counters[NUM_EVENTS], counters[FAILED]
    free_transfer = np.uint32(counters[FREE_TRANSFER])
    num_transfers, sent_bytes = counters[NUM_TRANSFERS], counters[SENT_BYTES]
    recorded = counters[RECORDED]
    tensor: Index
    num_touched = len(running)
    for position in range(num_touched):
        touched[position] = position
    while True:
        if excludes:
            num_touched = occupy(tables, state, num_touched)
        for position in range(num_touched):
            device = touched[position]
            home_memory = np.uint64(memory_home[device]) if pooled else np.uint64(device)
            if (
                running[device] < 0
                and num_ready[device] > 0
                and (not excludes or holder[resources[resource_offsets[device]]] == device)
            ):
                op = pop_ready(ready, ready_words, device)
                num_ready[device] -= 1
                duration_s = op_time_s[op, device] + begins_s[device]
                begins_s[device] = 0.0
                if now_s > last_end_s[device]:
                    duration_s += dispatch_overhead_s[device]
                running[device] = op
                device_busy_s[device] += duration_s
                live_bytes[home_memory] += start_bytes[op]
                push_event(event_s, event_id, num_events, now_s + duration_s, device)
                num_events += 1
                after_s = tail_s[op]
                if excludes:
                    for at in range(resource_offsets[device], resource_offsets[device + ONE]):
                        begun_s[resources[at]] += op_time_s[op, device]
                        after_s = max(after_s, total_s[resources[at]] - begun_s[resources[at]])
                else:
                    begun_s[device] += op_time_s[op, device]
                    after_s = max(after_s, total_s[device] - begun_s[device])
                if now_s + duration_s + after_s > limit_s:
                    failed = 1
                if record_ops:
                    record_start_s[op] = now_s
                    record_end_s[op] = now_s + duration_s
            peak_bytes[home_memory] = max(peak_bytes[home_memory], live_bytes[home_memory])
        if num_events == 0 or num_completed >= completed or failed:
            break
        now_s = event_s[0]
        num_touched = 0
        while num_events > 0 and event_s[0] == now_s:
            event = np.uint64(event_id[0])
            num_events -= 1
            pop_event(event_s, event_id, num_events)
            num_wake = 0  # channels whose queue has a new head
            if event < num_devices:  # an op ends: release its inputs, wake local consumers, send its outputs
                device = event
                op = np.uint32(running[device])
                running[device] = -1
                last_end_s[device] = now_s
                if excludes:
                    for at in range(resource_offsets[device], resource_offsets[device + ONE]):
                        holder[resources[at]] = -1
                num_touched = touch(device, touched, num_touched)
                num_completed += 1
                home_memory = np.uint64(memory_home[device]) if pooled else np.uint64(device)
                released = workspace_bytes[op]
                for entry in range(input_offsets[op], input_offsets[op + ONE]):
                    copy: Index = input_tensors[entry] * num_devices + device
                    uses[copy] -= 1
                    if uses[copy] == 0 and (not pooled or leaves_pool(uses, pools + copy - device + home_memory)):
                        released += tensor_bytes[input_tensors[entry]]
                live_bytes[home_memory] -= released
                for tensor in range(output_offsets[op], output_offsets[op + ONE]):
                    home = tensor * num_devices
                    if pooled and consumer_offsets[tensor] < consumer_offsets[tensor + ONE]:
                        uses[pools + home + home_memory] += 1
                    for entry in range(consumer_offsets[tensor], consumer_offsets[tensor + ONE]):
                        consumer = consumers[entry]
                        target = assignment[consumer]
                        uses[home + target] += 1
                        if target == device:
                            missing[consumer] -= 1
                            if missing[consumer] == 0:
                                push_ready(ready, ready_words, device, np.uint64(consumer))
                                num_ready[device] += 1
                        elif uses[home + target] == 1:  # the first consumer on that device
                            uses[home + device] += 1
                            begins_s[device] = max(begins_s[device], segment_overhead_s[device])
                            sent_bytes += tensor_bytes[tensor]
                            hop = route_offsets[device * num_devices + target]
                            if hop == route_offsets[device * num_devices + target + ONE]:
                                failed = 1
                                continue
                            if free_transfer == NOTHING:
                                transfer = np.uint32(num_transfers)
                                num_transfers += 1
                            else:
                                transfer = free_transfer
                                free_transfer = transfers[transfer, NEXT]
                            transfers[transfer, TENSOR] = tensor
                            transfers[transfer, SOURCE] = device
                            transfers[transfer, TARGET] = target
                            transfers[transfer, HOP] = hop
                            num_wake = join(
                                transfer, hop_channel[hop], queue_head, queue_tail, transfers, wake, num_wake
                            )
            else:  # a hop ends: free the channel, start the next hop or wake the consumers
                channel = event - num_devices
                transfer = queue_head[channel]
                queue_head[channel] = transfers[transfer, NEXT]
                if queue_head[channel] != NOTHING:
                    wake[num_wake] = channel
                    num_wake += 1
                tensor = np.uint64(transfers[transfer, TENSOR])
                target = transfers[transfer, TARGET]
                hop = transfers[transfer, HOP]
                if hop_place[hop] & FIRST_HOP:
                    source = transfers[transfer, SOURCE]
                    copy = tensor * num_devices + source
                    uses[copy] -= 1
                    home_memory = np.uint64(memory_home[source]) if pooled else np.uint64(source)
                    if uses[copy] == 0 and (not pooled or leaves_pool(uses, pools + copy - source + home_memory)):
                        live_bytes[home_memory] -= tensor_bytes[tensor]
                if not hop_place[hop] & LAST_HOP:
                    transfers[transfer, HOP] = hop + ONE
                    num_wake = join(transfer, hop_channel[hop + ONE], queue_head, queue_tail, transfers, wake, num_wake)
                else:
                    transfers[transfer, NEXT] = free_transfer
                    free_transfer = transfer
                    begins_s[target] = (
                        max(begins_s[target], segment_overhead_s[target])
                        + tensor_bytes[tensor] * intake_s_per_byte[target]
                    )
                    num_touched = touch(target, touched, num_touched)
                    for entry in range(consumer_offsets[tensor], consumer_offsets[tensor + ONE]):
                        consumer = consumers[entry]
                        if assignment[consumer] == target:
                            missing[consumer] -= 1
                            if missing[consumer] == 0:
                                push_ready(ready, ready_words, target, np.uint64(consumer))
                                num_ready[target] += 1
            for position in range(num_wake):  # the heads of those queues start
                channel = wake[position]
                transfer = queue_head[channel]
                tensor, hop = np.uint64(transfers[transfer, TENSOR]), transfers[transfer, HOP]
                target = transfers[transfer, TARGET]
                duration_s = hop_latency_s[hop] + tensor_bytes[tensor] / hop_bandwidth[hop]
                if hop_place[hop] & LAST_HOP:
                    home_memory = np.uint64(memory_home[target]) if pooled else np.uint64(target)
                    if not pooled or enters_pool(uses, pools + tensor * num_devices + home_memory):
                        live_bytes[home_memory] += tensor_bytes[tensor]
                    num_touched = touch(target, touched, num_touched)
                channel_busy_s[channel] += duration_s
                push_event(event_s, event_id, num_events, now_s + duration_s, num_devices + channel)
                num_events += 1
                if record_hops:
                    record_tensor[recorded] = tensor
                    record_target[recorded] = target
                    record_link[recorded] = hop_link[hop]
                    hop_start_s[recorded] = now_s
                    hop_end_s[recorded] = now_s + duration_s
                    recorded += 1
    clock_s[0] = now_s
    counters[COMPLETED], counters[NUM_EVENTS], counters[FAILED] = num_completed, num_events, failed
    counters[FREE_TRANSFER], counters[NUM_TRANSFERS], counters[SENT_BYTES] = free_transfer, num_transfers, sent_bytes
    counters[RECORDED] = recorded


@njit(cache=True, nogil=True, error_model="numpy")
def enters_pool(uses: IntArray, at: Index) -> bool:
    """Counts one more copy of a tensor in a pool; true for the first one, which takes memory."""
    uses[at] += 1
    return bool(uses[at] == 1)


@njit(cache=True, nogil=True, error_model="numpy")
def leaves_pool(uses: IntArray, at: Index) -> bool:
    """Counts one copy less of a tensor in a pool; true for the last one, which frees its memory."""
    uses[at] -= 1
    return bool(uses[at] == 0)


@njit(cache=True, nogil=True, error_model="numpy")
def resident_bytes(tables: EngineTables, assignment: IndexArray, resident: IntArray) -> None:
    """Writes the weights in each memory to `resident` `[D]`, of a pool at its first device; a shared weight counts once."""
    resident[:] = 0
    for op in range(len(tables.memory_bytes)):
        resident[tables.memory_home[assignment[op]]] += tables.memory_bytes[op]
    for weight in range(len(tables.weight_bytes)):
        begin = tables.weight_offsets[weight]
        for entry in range(begin, tables.weight_offsets[weight + 1]):
            device = tables.memory_home[assignment[tables.weight_consumers[entry]]]
            first = True
            for earlier in range(begin, entry):
                if tables.memory_home[assignment[tables.weight_consumers[earlier]]] == device:
                    first = False
                    break
            if first:
                resident[device] += tables.weight_bytes[weight]


@njit(cache=True, nogil=True, error_model="numpy")
def result(
    tables: EngineTables, assignment: IndexArray, state: EngineState, resident: IntArray
) -> tuple[float, float, float]:
    """Makespan, period and bytes above capacity of a finished run; all infinite if a route was missing."""
    if state.counters[FAILED]:
        return np.inf, np.inf, np.inf
    resident_bytes(tables, assignment, resident)
    period_s, shortfall = 0.0, 0.0
    for device in range(len(resident)):
        period_s = max(period_s, state.device_busy_s[device])
        shortfall += max(0, resident[device] + state.peak_bytes[device] - tables.capacity_bytes[device])
    if tables.excludes:
        busy_s = np.zeros(tables.num_resources)
        for device in range(len(resident)):
            for at in range(tables.resource_offsets[device], tables.resource_offsets[device + 1]):
                busy_s[tables.resources[at]] += state.device_busy_s[device]
        period_s = busy_s.max()
    for channel in range(tables.num_channels):
        period_s = max(period_s, state.channel_busy_s[channel])
    return state.now_s[0], period_s, shortfall


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_all(tables: EngineTables, assignments: IntArray, state: EngineState, record: Recording) -> FloatArray:
    """`[B, 3]` the `result` of each of `[B, N]` assignments, which are in the graph's numbers."""
    num_ops, out = len(tables.num_inputs), np.empty((len(assignments), 3))
    assignment = np.empty(num_ops, dtype=np.uint32)
    resident = np.empty(len(tables.capacity_bytes), dtype=np.int64)
    for row in range(len(assignments)):
        for op in range(num_ops):
            assignment[op] = assignments[row, tables.old_op[op]]
        reset(tables, assignment, state)
        advance(tables, assignment, state, record, num_ops, np.inf)
        out[row, 0], out[row, 1], out[row, 2] = result(tables, assignment, state, resident)
    return out
