"""Seconds per request of requests that follow each other without a pause: what `--objective throughput` is about."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Protocol

from gnnplace.executors.measure import MedianInterval, StoppingRule, interleaved, median_interval

__all__ = ["Pipelined", "measured_period", "run_pipelined"]


class Pipelined(Protocol):
    """A `Session` or a `PlacedRunner`."""

    @property
    def max_in_flight(self) -> int:
        """Requests that are under way at once."""

    def run_many(self, output_names: None, input_feeds: Iterable[Mapping[str, Any]], /) -> Iterator[list[Any]]:
        """The outputs of many requests, one after the other."""


def run_pipelined(placed: Pipelined, feed: Mapping[str, Any], requests: int) -> None:
    """Runs as many requests as that with one feed, and forgets what comes out."""
    deque(placed.run_many(None, repeat(feed, requests)), maxlen=0)


def measured_period(placed: Pipelined, feed: Mapping[str, Any], requests: int) -> MedianInterval:
    """Seconds per request of about `requests` in rounds that fill the pipeline; filling and draining it count."""
    together = min(requests, 4 * placed.max_in_flight)
    rounds = max(1, requests // together)
    rule = StoppingRule(warmup=0, min_repeats=rounds, max_repeats=rounds)
    (samples,) = interleaved([lambda: run_pipelined(placed, feed, together)], rule)
    return median_interval(samples / together)
