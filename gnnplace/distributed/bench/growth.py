"""Event-by-event simulation of a driver and many hosts with measured costs of messages, to find where the driver saturates."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from gnnplace.distributed.bench.costs import MessageCosts

__all__ = ["Growth", "grown", "saturating_hosts"]

_ROUNDS, _WARM = 40, 10


@dataclass(frozen=True)
class Growth:
    """Throughput of one driver with `workers` workers and items of `batch` evaluations."""

    workers: int
    batch: int
    """Evaluations per item."""
    evaluations_per_s: float
    efficiency: float
    """Share of the throughput that the workers would reach without a driver."""
    driver_busy: float
    """Share of the time in which the driver's loop is busy."""
    messages_per_s: float
    network_bytes_per_s: float
    driver_s_per_evaluation: float


def grown(costs: MessageCosts, workers: int, batch: int, evaluation_s: float, row_bytes: int) -> Growth:
    """Simulates workers that have one item at a time and receive the next one when the driver has taken their answer.

    Counting begins after ten turns. The driver's loop wakes when an answer arrives, looks once for all answers, at a cost for each
    item that is out, then takes them and sends as many items. An item travels for the rest of a round trip. Each turn of
    a worker takes `batch` evaluations of equal length; the workers' first turns begin one after the other.
    """
    work_s = batch * evaluation_s
    away_s = work_s + max(0.0, costs.round_trip_s - costs.item_s - costs.wait_s)
    arrivals = [index * work_s / workers for index in range(workers)]
    heapq.heapify(arrivals)
    now_s = busy_s = begin_s = 0.0
    items = 0
    while items < _ROUNDS * workers:
        if begin_s == 0.0 and items >= _WARM * workers:  # the warm-up ends here
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
    """Number of workers whose answers arrive as fast as the driver can take them, many at a time."""
    return int(batch * evaluation_s / costs.item_s)
