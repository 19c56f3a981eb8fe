"""Statistics and repeats, against values computed by hand."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from gnnplace.errors import MeasurementFailed
from gnnplace.measuring import timing
from gnnplace.measuring.timing import StoppingRule, interleaved, measured_period, median_interval, without_drift


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # The usual table of ranks for a 95 % interval of a median.
    [(1, 1, 1), (2, 1, 2), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (20, 6, 15), (50, 18, 33)],
)
def test_the_interval_of_a_median_is_that_of_the_published_table(count: int, low: int, high: int) -> None:
    samples = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    interval = median_interval(samples)
    assert (interval.low, interval.high) == (low, high)
    assert interval.median == (count + 1) / 2
    assert interval.spread == (high - low) / 2


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("count", [10, 31, 100])
def test_the_interval_is_the_narrowest_with_the_stated_confidence(count: int, confidence: float) -> None:
    interval = median_interval(np.arange(1.0, count + 1), confidence)
    k = int(interval.low)
    covered = 1 - 2 * binom.cdf(k - 1, count, 0.5)
    narrower = 1 - 2 * binom.cdf(k, count, 0.5)
    assert narrower < confidence <= covered


def test_without_drift_removes_slow_rounds_but_not_slow_calls() -> None:
    samples = np.array([[2.0, 4.0, 6.0], [1.0, 2.0, 1.0]])
    assert without_drift(samples).tolist() == [[2.0, 2.0, 6.0], [1.0, 1.0, 1.0]]


class Stage:
    """A clock that only the calls advance."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.played: list[str] = []

    def clock(self) -> float:
        return self.now_s

    def actor(self, name: str, *seconds: float) -> Callable[[], None]:
        def act() -> None:
            self.now_s += seconds[self.played.count(name) % len(seconds)]
            self.played.append(name)

        return act


def test_rounds_go_forwards_and_backwards_and_end_when_the_intervals_are_narrow() -> None:
    stage = Stage()
    rule = StoppingRule(warmup=1, min_repeats=2, max_repeats=9)
    samples = interleaved([stage.actor("a", 2.0), stage.actor("b", 1.0)], rule, stage.clock)
    assert samples.tolist() == [[2.0, 2.0], [1.0, 1.0]]
    assert "".join(stage.played) == "ab" + "ab" + "ba"


def test_the_reference_may_run_only_in_some_rounds() -> None:
    stage = Stage()
    rule = StoppingRule(warmup=0, min_repeats=5, max_repeats=5, reference_every=2)
    samples = interleaved([stage.actor("a", 2.0), stage.actor("r", 1.0, 3.0)], rule, stage.clock)
    assert samples.tolist() == [[2.0] * 5, [1.0, 1.0, 3.0, 3.0, 1.0]]
    assert "".join(stage.played) == "ar" + "a" + "ar" + "a" + "ar"
    alone = Stage()
    assert interleaved([alone.actor("a", 2.0, 4.0)], rule, alone.clock).tolist() == [[2.0, 4.0, 2.0, 4.0, 2.0]]


def test_noise_leads_to_more_rounds_up_to_the_limit() -> None:
    stage = Stage()
    rule = StoppingRule(warmup=0, min_repeats=3, max_repeats=7, max_s=1e9)
    samples = interleaved([stage.actor("a", 1.0, 9.0), stage.actor("b", 1.0)], rule, stage.clock)
    assert samples.shape == (2, 7)


def test_drift_of_the_whole_machine_leads_to_no_more_rounds() -> None:
    stage = Stage()
    slower = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=50)
    calls = [stage.actor("a", *slower), stage.actor("b", *slower)]
    assert interleaved(calls, rule, stage.clock).shape == (2, 6)


def test_no_round_begins_after_the_time_limit() -> None:
    stage = Stage()
    rule = StoppingRule(warmup=0, min_repeats=2, max_repeats=100, max_s=10.0, relative_spread=0.0)
    # Rounds of 4 and 2 seconds in turn: 10 s are up after the third.
    assert interleaved([stage.actor("a", 4.0, 2.0)], rule, stage.clock).tolist() == [[4.0, 2.0, 4.0]]


def test_candidates_that_exceed_the_limit_in_three_rounds_are_abandoned() -> None:
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=6, abandon_at=10.0)

    def rounds(*candidates: list[float]) -> int:
        stage = Stage()
        calls = [stage.actor(f"c{number}", *seconds) for number, seconds in enumerate(candidates)]
        return interleaved([*calls, stage.actor("reference", 1.0)], rule, stage.clock).shape[1]

    assert rounds([11.0]) == 3
    assert rounds([10.0]) == 6
    assert rounds([11.0, 9.0]) == 6
    assert rounds([11.0], [12.0]) == 3
    assert rounds([11.0], [2.0]) == 6
    assert rounds() == 6


def test_no_measurement_exceeds_the_upper_bound_of_its_rule() -> None:
    stage = Stage()
    rule = StoppingRule(2, min_repeats=3, max_repeats=100, max_s=13.0, relative_spread=-1.0)  # never narrow enough
    interleaved([stage.actor("a", 2.0), stage.actor("b", 2.0)], rule, stage.clock)
    assert stage.now_s == 2 * 2 + 2 + 16.0 <= rule.longest_s(2, 2.0) == 6 * 2 * 2 + 13.0


@pytest.mark.parametrize("broken", [{"min_repeats": 0}, {"min_repeats": 9, "max_repeats": 8}, {"warmup": -1}])
def test_a_rule_with_impossible_counts_is_refused(broken: dict[str, int]) -> None:
    with pytest.raises(MeasurementFailed, match="make no rule"):
        StoppingRule(**broken)  # type: ignore[arg-type]


class Pipeline:
    """The first of consecutive requests takes 5 s, each further one 2 s; nothing else takes time."""

    max_in_flight = 2

    def __init__(self) -> None:
        self.now_s = 0.0
        self.requests: list[int] = []

    def run_many(self, output_names: None, input_feeds: Iterable[Mapping[str, Any]], /) -> Iterator[list[Any]]:
        feeds = list(input_feeds)
        self.requests.append(len(feeds))
        for number, _ in enumerate(feeds):
            self.now_s += 2.0 if number else 5.0
            yield []


@pytest.mark.parametrize(
    ("requests", "rounds", "period_s"), [(50, [8] * 6, (5.0 + 7 * 2.0) / 8), (3, [3], 3.0), (1, [1], 5.0)]
)
def test_the_period_is_measured_in_rounds_that_fill_the_pipeline(
    requests: int, rounds: list[int], period_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = Pipeline()
    monkeypatch.setattr(timing, "interleaved", lambda calls, rule: interleaved(calls, rule, clock=lambda: placed.now_s))
    assert measured_period(placed, {}, requests).median == period_s
    assert placed.requests == rounds
