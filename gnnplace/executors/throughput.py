"""Seconds per request when requests follow each other without a pause: what `--objective throughput` is about."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

from gnnplace.errors import MeasurementFailed
from gnnplace.executors.measure import MedianInterval, StoppingRule, interleaved, median_interval, without_drift

__all__ = ["Pipelined", "Throughput", "measure_throughput"]


class Pipelined(Protocol):
    """A `Session` or a `PlacedRunner`."""

    def run(self, output_names: None, input_feed: Mapping[str, Any], /) -> list[Any]:
        """The outputs of one request."""

    def run_many(self, output_names: None, input_feeds: Iterable[Mapping[str, Any]], /) -> Iterator[list[Any]]:
        """The outputs of many."""


@dataclass(frozen=True)
class Throughput:
    """Measured side by side, in seconds."""

    latency: MedianInterval
    """Of one request alone."""
    period: MedianInterval
    """From the end of one request to that of the next in a full pipeline."""
    reference: MedianInterval | None
    """Of one request of the reference, one after the other."""


def measure_throughput(
    placed: Pipelined,
    feed: Mapping[str, Any],
    requests: int,
    rule: StoppingRule,
    reference: Callable[[], object] | None = None,
) -> Throughput:
    """What pipelining gives, from rounds of one request alone, of many pipelined, and of as many calls of the reference.

    Filling and draining the pipeline costs what one request alone takes, so the period is what each further one adds.

    Raises:
        MeasurementFailed: `requests` is less than two.
    """
    if requests < 2:
        raise MeasurementFailed(f"{requests} pipelined request(s) have no period; expected at least 2")
    calls: list[Callable[[], object]] = [
        lambda: placed.run(None, feed),
        lambda: deque(placed.run_many(None, repeat(feed, requests)), maxlen=0),
    ]
    if reference is not None:
        calls.append(lambda: deque((reference() for _ in range(requests)), maxlen=0))
    samples = interleaved(calls, rule)
    alone_s, together_s = (samples if reference is None else without_drift(samples))[:2]
    return Throughput(
        latency=median_interval(alone_s, rule.confidence),
        period=median_interval((together_s - alone_s) / (requests - 1), rule.confidence),
        reference=None if reference is None else median_interval(samples[2] / requests, rule.confidence),
    )
