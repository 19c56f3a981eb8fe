"""Statistics and repeats, against values computed by hand."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from gnnplace.errors import MeasurementFailed
from gnnplace.measuring import timing
from gnnplace.measuring.timing import (
    MeasureOptions,
    StoppingRule,
    interleaved,
    measured_period,
    median_interval,
    without_drift,
)
from tests.measuring.test_paired import Clock


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


def rounds_of(calls: list[Callable[[], None]], rule: StoppingRule, stage: Stage) -> np.ndarray:
    return interleaved(calls, rule, np.random.default_rng(0), stage.clock)


def test_each_round_makes_every_call_in_random_order_and_rounds_end_when_the_intervals_are_narrow() -> None:
    stage = Stage()
    calls = [stage.actor("a", 2.0), stage.actor("b", 1.0)]
    assert rounds_of(calls, StoppingRule(1, min_repeats=2, max_repeats=9), stage).tolist() == [[2.0, 2.0], [1.0, 1.0]]
    stage.played.clear()
    rounds_of(calls, StoppingRule(0, min_repeats=40, max_repeats=40), stage)
    pairs = ["".join(stage.played[begin : begin + 2]) for begin in range(0, 80, 2)]
    assert set(pairs) == {"ab", "ba"}
    assert len({"".join(pairs[begin : begin + 4]) for begin in range(0, 40, 4)}) > 4  # no fixed pattern


@pytest.mark.parametrize("call_s", [2e-4, 5e-3, 0.1])
def test_equal_calls_measure_equal_where_each_is_slower_after_the_other(call_s: float) -> None:
    rule = dataclasses.replace(MeasureOptions().search, min_repeats=20)

    def logarithm(seed: int) -> float:
        rng = np.random.default_rng(seed)
        clock = Clock((call_s, call_s), rng, cold=1.4)
        candidate_s, reference_s = interleaved([clock.call(0), clock.call(1)], rule, rng, lambda: clock.now_s)
        return float(np.log(candidate_s / reference_s).mean())

    ratios = [logarithm(seed) for seed in range(40)]
    limit = 0.005 if call_s < 0.02 else 3 * np.std(ratios) / np.sqrt(len(ratios))  # long calls are not warmed up
    assert abs(np.mean(ratios)) < limit


def test_calls_are_timed_with_their_own_data_in_the_caches() -> None:
    cold = [3.0, 2.0, 1.4, 1.2, 1.1, 1.05]  # multiples of the first requests after those of another call
    now_s, last, since = 0.0, "", 0

    def call(name: str) -> None:
        nonlocal now_s, last, since
        since = since + 1 if name == last else 0
        last = name
        now_s += 3e-4 * (cold[since] if since < len(cold) else 1.0)

    rule = StoppingRule(warmup=2, min_repeats=20, max_repeats=20)
    samples = interleaved([lambda: call("a"), lambda: call("b")], rule, np.random.default_rng(0), lambda: now_s)
    np.testing.assert_allclose(samples[:, 1:], 3e-4)


def test_rounds_are_spread_over_the_seconds_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    begun: list[float] = []

    def sleep(seconds: float) -> None:
        stage.now_s += seconds
        begun.append(stage.now_s)

    monkeypatch.setattr("gnnplace.measuring.timing.time.sleep", sleep)
    rule = StoppingRule(warmup=0, min_repeats=4, max_repeats=4, spread_s=20.0)
    samples = rounds_of([stage.actor("a", 1.0, 7.0, 1.0)], rule, stage)
    assert samples.tolist() == [[1.0, 7.0, 1.0, 1.0]]
    assert begun == [5.0, 15.0]  # the second round took longer than its share


def test_calls_are_warm_after_each_pause_between_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, since = 0.0, 0
    cold = [1.5, 1.3, 1.1]  # multiples of the first requests after a pause

    def call() -> None:
        nonlocal now_s, since
        now_s += 1e-3 * (cold[since] if since < len(cold) else 1.0)
        since += 1

    def sleep(seconds: float) -> None:
        nonlocal now_s, since
        now_s, since = now_s + seconds, 0

    monkeypatch.setattr("gnnplace.measuring.timing.time.sleep", sleep)
    rule = StoppingRule(warmup=3, min_repeats=11, max_repeats=11, spread_s=4.0)
    samples = interleaved([call], rule, np.random.default_rng(0), lambda: now_s)
    np.testing.assert_allclose(samples[:, 1:], 1e-3)


def test_noise_leads_to_more_rounds_up_to_the_limit() -> None:
    stage = Stage()
    rule = StoppingRule(warmup=0, min_repeats=3, max_repeats=7, max_s=1e9)
    samples = rounds_of([stage.actor("a", 1.0, 9.0), stage.actor("b", 1.0)], rule, stage)
    assert samples.shape == (2, 7)


def test_drift_of_the_whole_machine_leads_to_no_more_rounds() -> None:
    stage = Stage()
    slower = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=50)
    calls = [stage.actor("a", *slower), stage.actor("b", *slower)]
    assert rounds_of(calls, rule, stage).shape == (2, 6)


def test_no_round_begins_after_the_time_limit() -> None:
    stage = Stage()
    rule = StoppingRule(warmup=0, min_repeats=2, max_repeats=100, max_s=10.0, relative_spread=0.0)
    # Rounds of 4 and 2 seconds in turn: 10 s are up after the third.
    assert rounds_of([stage.actor("a", 4.0, 2.0)], rule, stage).tolist() == [[4.0, 2.0, 4.0]]


def test_a_candidate_that_exceeds_the_limit_in_three_rounds_is_abandoned() -> None:
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=6, abandon_at=10.0)

    def rounds(*candidates: list[float]) -> list[int]:
        stage = Stage()
        calls = [stage.actor(f"c{number}", *seconds) for number, seconds in enumerate(candidates)]
        found = rounds_of([*calls, stage.actor("reference", 1.0)], rule, stage)
        return np.isfinite(found).sum(axis=1).tolist()

    assert rounds([11.0]) == [3, 3]
    assert rounds([10.0]) == [6, 6]
    assert rounds([11.0, 9.0]) == [6, 6]
    assert rounds([11.0], [12.0]) == [3, 3, 3]
    assert rounds([11.0], [2.0]) == [3, 6, 6]
    assert rounds() == [6]


def test_no_measurement_exceeds_the_upper_bound_of_its_rule() -> None:
    stage = Stage()
    rule = StoppingRule(2, min_repeats=3, max_repeats=100, max_s=13.0, relative_spread=-1.0)  # never narrow enough
    rounds_of([stage.actor("a", 2.0), stage.actor("b", 2.0)], rule, stage)
    assert stage.now_s == 2 * 2 + 2 + 16.0 <= rule.longest_s(2, 2.0)
    short = Stage()
    rule = StoppingRule(1, min_repeats=9, max_repeats=9, max_s=0.0)
    rounds_of([short.actor("a", 3e-4), short.actor("b", 0.015)], rule, short)
    assert short.now_s <= rule.longest_s(2, 0.015)


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
    monkeypatch.setattr(timing, "interleaved", lambda *given: interleaved(*given, clock=lambda: placed.now_s))
    assert measured_period(placed, {}, requests).median == period_s
    assert placed.requests == rounds
