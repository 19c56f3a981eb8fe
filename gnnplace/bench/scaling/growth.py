"""A driver and many hosts, event by event, with measured costs of messages: where the driver has no time left."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from gnnplace.bench.scaling.costs import MessageCosts

__all__ = ["Growth", "grown", "saturating_hosts"]

_ROUNDS, _WARM = 40, 10


@dataclass(frozen=True)
class Growth:
    """What so many workers, one driver and items of so many evaluations come to."""

    workers: int
    batch: int
    """Evaluations per item."""
    evaluations_per_s: float
    efficiency: float
    """Of what the workers could do were there no driver."""
    driver_busy: float
    """Share of the time in which the driver's loop works."""
    messages_per_s: float
    network_bytes_per_s: float
    driver_s_per_evaluation: float


def grown(costs: MessageCosts, workers: int, batch: int, evaluation_s: float, row_bytes: int) -> Growth:
    """Simulated: each worker has one item at a time, and gets the next when the driver has taken its answer.

    What is counted begins after ten turns. The driver's loop wakes when something has come, asks once for all that has (which costs something for each item that is out), then
    takes the answers and hands out as many items. An item is on its way for the rest of a round trip. Each turn of a worker takes
    `batch` evaluations of equal length; begins are spread over the first turn.
    """
    work_s = batch * evaluation_s
    away_s = work_s + max(0.0, costs.round_trip_s - costs.item_s - costs.wait_s)
    arrivals = [index * work_s / workers for index in range(workers)]
    heapq.heapify(arrivals)
    now_s = busy_s = begin_s = 0.0
    items = 0
    while items < _ROUNDS * workers:
        if begin_s == 0.0 and items >= _WARM * workers:  # what came before is not counted
            begin_s, busy_s, items = now_s, 0.0, 0
        now_s = max(now_s, arrivals[0])
        came = 0
        while arrivals and arrivals[0] <= now_s:
            heapq.heappop(arrivals)
            came += 1
        turn_s = costs.wait_s + costs.wait_each_s * workers
        for taken in range(1, came + 1):
            heapq.heappush(arrivals, now_s + turn_s + taken * costs.item_s + away_s)
        turn_s += came * costs.item_s
        now_s, busy_s, items = now_s + turn_s, busy_s + turn_s, items + came
    per_s = items / (now_s - begin_s)
    item_bytes = costs.bytes_per_item + costs.bytes_per_payload_byte * batch * row_bytes
    return Growth(
        workers=workers,
        batch=batch,
        evaluations_per_s=per_s * batch,
        efficiency=per_s * batch * evaluation_s / workers,
        driver_busy=busy_s / (now_s - begin_s),
        messages_per_s=2 * per_s,
        network_bytes_per_s=item_bytes * per_s,
        driver_s_per_evaluation=busy_s / (items * batch),
    )


def saturating_hosts(costs: MessageCosts, batch: int, evaluation_s: float) -> int:
    """Workers whose answers come as fast as the driver can take them, when it takes many at a time."""
    return int(batch * evaluation_s / costs.item_s)
