from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from gnnplace.errors import MeasurementFailed
from gnnplace.executors import throughput
from gnnplace.executors.measure import StoppingRule, interleaved
from gnnplace.executors.throughput import measure_throughput


class Clock:
    """Time passes only where a test says so."""

    now_s = 0.0


class Pipeline:
    """One request takes 5 s; each further one that follows at once ends 2 s after it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[int] = []

    def run(self, output_names: None, input_feed: Mapping[str, Any], /) -> list[Any]:
        self.clock.now_s += 5.0
        return []

    def run_many(self, output_names: None, input_feeds: Iterable[Mapping[str, Any]], /) -> Iterator[list[Any]]:
        feeds = list(input_feeds)
        self.asked.append(len(feeds))
        for number, _ in enumerate(feeds):
            self.clock.now_s += 2.0 if number else 5.0
            yield []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(
        throughput, "interleaved", lambda calls, rule: interleaved(calls, rule, clock=lambda: made.now_s)
    )
    return made


def test_filling_and_draining_the_pipeline_is_no_part_of_the_period(clock: Clock) -> None:
    def reference() -> None:
        clock.now_s += 4.0

    placed = Pipeline(clock)
    rule = StoppingRule(warmup=1, min_repeats=6, max_repeats=6)
    found = measure_throughput(placed, {}, 10, rule, reference)
    assert (found.latency.median, found.period.median) == (5.0, 2.0)
    assert found.reference is not None
    assert found.reference.median == 4.0
    assert placed.asked == [10] * 7
    assert measure_throughput(placed, {}, 3, rule).reference is None


def test_one_request_has_no_period(clock: Clock) -> None:
    with pytest.raises(MeasurementFailed, match="1 pipelined request"):
        measure_throughput(Pipeline(clock), {}, 1, StoppingRule())
