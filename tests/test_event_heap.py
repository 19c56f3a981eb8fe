"""The heap of events."""

import heapq

import numpy as np

from gnnplace.event_heap import pop_event, push_event


def test_events_leave_the_heap_by_time_and_then_by_id() -> None:
    rng, event_s, event_id = np.random.default_rng(0), np.empty(50), np.empty(50, dtype=np.int32)
    expected = [(float(rng.integers(5)), number) for number in rng.permutation(50).tolist()]
    for size, event in enumerate(expected):
        push_event(event_s, event_id, size, *event)
    heapq.heapify(expected)
    for size in range(49, -1, -1):
        assert (event_s[0], event_id[0]) == heapq.heappop(expected)
        pop_event(event_s, event_id, size)
