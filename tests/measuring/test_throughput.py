from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from gnnplace.measuring import timing as throughput
from gnnplace.measuring.timing import interleaved, measured_period


class Pipeline:
    """One request takes 5 s; each further one that follows at once ends 2 s after it. Time passes nowhere else."""

    max_in_flight = 2

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked: list[int] = []

    def run_many(self, output_names: None, input_feeds: Iterable[Mapping[str, Any]], /) -> Iterator[list[Any]]:
        feeds = list(input_feeds)
        self.asked.append(len(feeds))
        for number, _ in enumerate(feeds):
            self.now_s += 2.0 if number else 5.0
            yield []


@pytest.mark.parametrize(
    ("requests", "rounds", "period_s"), [(50, [8] * 6, (5.0 + 7 * 2.0) / 8), (3, [3], 3.0), (1, [1], 5.0)]
)
def test_the_period_is_that_of_rounds_that_fill_the_pipeline(
    requests: int, rounds: list[int], period_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = Pipeline()
    monkeypatch.setattr(
        throughput, "interleaved", lambda calls, rule: interleaved(calls, rule, clock=lambda: placed.now_s)
    )
    assert measured_period(placed, {}, requests).median == period_s
    assert placed.asked == rounds
