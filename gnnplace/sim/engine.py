"""The compiled event loop: a placement's schedule by the six rules of the execution model.

Rules, with the tie-breaks that make the result unique:

1. A device runs one op at a time; among ready ops the highest priority starts. Every event of an instant is taken in
   before an op starts at that instant. Events of one instant: ops that end by device index, then transfers that end by
   channel index.
2. A tensor is sent once per destination when its producer ends, outputs by index, destinations in the order of the
   consumer list; a hop of its route occupies the link's channel for `latency + bytes / bandwidth`; channels serve first come first served.
3. An op that starts on a device that sat idle (since its last op, or since the step began) pays the dispatch overhead:
   a work-conserving device idles only while it waits for a remote input. The first op to start after copies have arrived, or
   after the op before it has sent something, begins a segment: it pays the segment overhead, and for taking in the bytes that arrived.
4. Outputs and workspace are held from the start of the op; a copy on its destination from the start of the last hop.
   An input is released at the end of its last use on that device, at home also not before the last outgoing copy. A tensor without
   consumers stays. Peaks are read after everything that happens at an instant.
"""

from __future__ import annotations

import numpy as np
from numba import njit

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
    pop_ready,
    push_ready,
    touch,
)
from gnnplace.sim.tables import FIRST_HOP, LAST_HOP, EngineTables, IndexArray

__all__ = ["advance"]


@njit(cache=True, nogil=True, error_model="numpy")
def advance(
    tables: EngineTables,
    assignment: IndexArray,
    state: EngineState,
    record: Recording,
    completed: int,
    limit_s: float,
) -> None:
    """Runs until `completed` ops have ended and the instant is over, until nothing is left, or until it has failed.

    It fails when a route is missing, and as soon as the fastest way on would end after `limit_s`; leave room for
    rounding there, as a path's seconds add up in more than one order.

    One long function on local names: a call per event, or a field of a tuple per access, costs more than the event.

    >>> from gnnplace.sim.example import diamond_tables
    >>> from gnnplace.sim.state import engine_state, no_recording, reset
    >>> tables, assignment = diamond_tables(), np.array([0, 0, 1, 1], dtype=np.uint32)
    >>> state = engine_state(tables)
    >>> reset(tables, assignment, state)
    >>> for completed in (2, 4):
    ...     advance(tables, assignment, state, no_recording(), completed, np.inf)
    ...     print(state.now_s.round(3))
    [3.]
    [4.001]
    """
    (_, _, op_time_s, tail_s, start_bytes, workspace_bytes, _, output_offsets, input_offsets, input_tensors, _, tensor_bytes,
     consumer_offsets, consumers, _, _, _, dispatch_overhead_s, segment_overhead_s, intake_s_per_byte, _, route_offsets, hop_link, hop_channel, hop_place,
     hop_latency_s, hop_bandwidth, _) = tables  # fmt: skip
    (missing, uses, ready, ready_words, num_ready, running, last_end_s, begins_s, live_bytes, peak_bytes, device_busy_s, event_s, event_id,
     queue_head, queue_tail, channel_busy_s, transfers, wake, touched, clock_s, counters, _, _, _, _) = state  # fmt: skip
    record_start_s, record_end_s, record_tensor, record_target, record_link, record_hop_start_s, record_hop_end_s = (
        record
    )
    num_devices = np.uint64(len(running))
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
        for position in range(num_touched):
            device = touched[position]
            if running[device] < 0 and num_ready[device] > 0:
                op = pop_ready(ready, ready_words, device)
                num_ready[device] -= 1
                duration_s = op_time_s[op, device] + begins_s[device]
                begins_s[device] = 0.0
                if now_s > last_end_s[device]:
                    duration_s += dispatch_overhead_s[device]
                running[device] = op
                device_busy_s[device] += duration_s
                live_bytes[device] += start_bytes[op]
                push_event(event_s, event_id, num_events, now_s + duration_s, device)
                num_events += 1
                if now_s + duration_s + tail_s[op] > limit_s:
                    failed = 1
                if record_ops:
                    record_start_s[op] = now_s
                    record_end_s[op] = now_s + duration_s
            peak_bytes[device] = max(peak_bytes[device], live_bytes[device])
        if num_events == 0 or num_completed >= completed or failed:
            break
        now_s = event_s[0]
        num_touched = 0
        while num_events > 0 and event_s[0] == now_s:
            event = np.uint64(event_id[0])
            num_events -= 1
            pop_event(event_s, event_id, num_events)
            num_wake = 0  # channels whose queue has a new head
            if event < num_devices:  # an op ends: release inputs, wake local consumers, send outputs
                device = event
                op = np.uint32(running[device])
                running[device] = -1
                last_end_s[device] = now_s
                num_touched = touch(device, touched, num_touched)
                num_completed += 1
                released = workspace_bytes[op]
                for entry in range(input_offsets[op], input_offsets[op + ONE]):
                    copy: Index = input_tensors[entry] * num_devices + device
                    uses[copy] -= 1
                    if uses[copy] == 0:
                        released += tensor_bytes[input_tensors[entry]]
                live_bytes[device] -= released
                for tensor in range(output_offsets[op], output_offsets[op + ONE]):
                    home = tensor * num_devices
                    for entry in range(consumer_offsets[tensor], consumer_offsets[tensor + ONE]):
                        consumer = consumers[entry]
                        target = assignment[consumer]
                        uses[home + target] += 1
                        if target == device:
                            missing[consumer] -= 1
                            if missing[consumer] == 0:
                                push_ready(ready, ready_words, device, np.uint64(consumer))
                                num_ready[device] += 1
                        elif uses[home + target] == 1:  # the first consumer there asks for the copy
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
            else:  # a hop ends: free the channel, hand the tensor on or to its consumers
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
                    if uses[copy] == 0:
                        live_bytes[source] -= tensor_bytes[tensor]
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
            for position in range(num_wake):  # the heads of those queues go on the wire
                channel = wake[position]
                transfer = queue_head[channel]
                tensor, hop = np.uint64(transfers[transfer, TENSOR]), transfers[transfer, HOP]
                target = transfers[transfer, TARGET]
                duration_s = hop_latency_s[hop] + tensor_bytes[tensor] / hop_bandwidth[hop]
                if hop_place[hop] & LAST_HOP:
                    live_bytes[target] += tensor_bytes[tensor]
                    num_touched = touch(target, touched, num_touched)
                channel_busy_s[channel] += duration_s
                push_event(event_s, event_id, num_events, now_s + duration_s, num_devices + channel)
                num_events += 1
                if record_hops:
                    record_tensor[recorded] = tensor
                    record_target[recorded] = target
                    record_link[recorded] = hop_link[hop]
                    record_hop_start_s[recorded] = now_s
                    record_hop_end_s[recorded] = now_s + duration_s
                    recorded += 1
    clock_s[0] = now_s
    counters[COMPLETED], counters[NUM_EVENTS], counters[FAILED] = num_completed, num_events, failed
    counters[FREE_TRANSFER], counters[NUM_TRANSFERS], counters[SENT_BYTES] = free_transfer, num_transfers, sent_bytes
    counters[RECORDED] = recorded
