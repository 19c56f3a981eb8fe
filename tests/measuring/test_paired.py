"""Paired measurement: its interval contains the true difference, and excludes 0 where one call is slower."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gnnplace.measuring.paired import PairRule, difference_of, paired_samples, signed_rank_interval

RULE = PairRule(max_blocks=100)


class Clock:
    """A simulated machine: calls take their seconds, with noise, phases, a drift, and cold caches after another call."""

    def __init__(self, seconds: Sequence[float], rng: np.random.Generator, cold: float = 1.0) -> None:
        self.now_s, self.seconds, self.rng, self.cold = 0.0, seconds, rng, cold
        self.last = -1

    def call(self, index: int) -> Callable[[], float]:
        def run() -> float:
            phase = 1.3 if int(self.now_s / 1.7) % 3 == 0 else 1.0
            noise = np.exp(0.01 * self.rng.standard_normal() + 0.2 * (self.rng.random() < 0.05))
            cold = self.cold if self.last not in (-1, index) else 1.0
            taken_s = self.seconds[index] * phase * noise * cold * (1 + self.now_s / 1000)
            self.now_s += taken_s
            self.last = index
            return taken_s

        return run


def measured(seconds: Sequence[float], seed: int, cold: float = 1.0) -> np.ndarray:
    """Samples of A and B; four `seconds` are those of sessions loaded in the order A, B, B, A."""
    rng = np.random.default_rng(seed)
    clock = Clock(seconds, rng, cold)
    calls = [clock.call(index) for index in range(len(seconds))]
    pairs = [(calls[0], calls[1]), (calls[-1], calls[-2])][: len(calls) // 2]
    return paired_samples(pairs, RULE, rng, lambda: clock.now_s)


def test_the_interval_of_few_values_is_the_one_of_all_signs() -> None:
    values = np.array([0.3, -0.1, 0.7, 0.2, 0.5, 0.4, -0.2, 0.9, 0.6])
    for confidence in (0.9, 0.99):
        _, low, high = signed_rank_interval(values, confidence)
        tail = (1 - confidence) / 2
        for shift in np.linspace(-0.3, 1.0, 200) + 1e-4:
            ranks = np.argsort(np.argsort(abs(values - shift))) + 1
            positive = ranks[values > shift].sum()
            sums = [
                sum(rank for rank, sign in zip(range(1, 10), signs, strict=True) if sign)
                for signs in product((0, 1), repeat=9)
            ]
            chance = min(np.mean(np.array(sums) <= positive), np.mean(np.array(sums) >= positive))
            assert (chance > tail) == (low < shift < high)


@pytest.mark.parametrize("count", [60, 61])
def test_the_exact_and_the_approximate_interval_agree(count: int) -> None:
    values = np.random.default_rng(3).normal(size=count)
    centre, low, high = signed_rank_interval(values, 0.995)
    assert low < centre < high
    assert (low, high) == pytest.approx((centre - 0.37, centre + 0.37), abs=0.06)  # 2.81 standard errors


def test_too_few_blocks_decide_nothing() -> None:
    found = difference_of(np.array([[1.0, 1.1] * 4, [2.0, 2.1] * 4]))
    assert (found.sign, found.pairs) == (0, 8)
    assert found.difference == pytest.approx(-0.49, abs=0.02)


def test_equal_calls_seldom_differ_whatever_the_machine_does() -> None:
    found = [difference_of(measured((0.01, 0.01), seed)) for seed in range(60)]
    assert sum(difference.sign != 0 for difference in found) <= 5
    assert abs(np.mean([difference.difference for difference in found])) < 0.001


def test_what_the_loading_adds_is_part_of_the_interval() -> None:
    samples = measured((0.01, 0.01), 0)
    runs, found = difference_of(samples, 0.95, loading_spread=0.0), difference_of(samples, 0.95, loading_spread=0.01)
    assert found.difference == runs.difference
    for bound, of_runs in ((found.low, runs.low), (found.high, runs.high)):
        half = abs(np.log1p(bound) - np.log1p(runs.difference))
        assert half**2 == pytest.approx(abs(np.log1p(of_runs) - np.log1p(runs.difference)) ** 2 + 0.0196**2, rel=1e-3)


def test_sessions_that_are_slower_because_they_were_loaded_first_do_not_make_a_side_slow() -> None:
    once = [difference_of(measured((0.0102, 0.01), seed)) for seed in range(20)]
    assert sum(difference.sign == 1 for difference in once) > 10
    twice = [difference_of(measured((0.0102, 0.01, 0.0102, 0.01), seed)) for seed in range(60)]
    assert sum(difference.sign != 0 for difference in twice) <= 5
    assert abs(np.mean([difference.difference for difference in twice])) < 0.001


@pytest.mark.parametrize("faster", [0, 1])
def test_a_difference_of_two_percent_is_found_with_its_sign(faster: int) -> None:
    seconds = (0.01, 0.0102) if faster == 0 else (0.0102, 0.01)
    found = [difference_of(measured(seconds, seed)) for seed in range(30)]
    assert all(difference.sign == (-1, 1)[faster] for difference in found)
    assert np.median([difference.pairs for difference in found]) < 100


def test_cold_caches_do_not_make_the_second_call_look_slow() -> None:
    found = difference_of(measured((2e-4, 2e-4), 5, cold=1.4))
    assert abs(found.difference) < 0.01


def test_a_measurement_ends_at_its_limits() -> None:
    rng = np.random.default_rng(0)
    clock = Clock((1.0, 1.0), rng)
    rule = PairRule(max_s=30.0)
    samples = paired_samples([(clock.call(0), clock.call(1))], rule, rng, lambda: clock.now_s)
    assert samples.shape == (2, 2 * rule.first_look)


def test_a_rule_that_gives_up_ends_early_where_a_is_slower_and_never_claims_more_than_its_interval() -> None:
    rule = PairRule(first_look=7, max_blocks=24, width=0.01, confidence=0.984, give_up=0.93)

    def blocks_and_sign(seconds: tuple[float, float], seed: int, one: PairRule) -> tuple[int, int]:
        rng = np.random.default_rng(seed)
        clock = Clock(seconds, rng)
        samples = paired_samples([(clock.call(0), clock.call(1))], one, rng, lambda: clock.now_s)
        return samples.shape[1] // 2, difference_of(samples, one.confidence).sign

    def of_all(seconds: tuple[float, float], one: PairRule) -> np.ndarray:
        return np.array([blocks_and_sign(seconds, seed, one) for seed in range(100)])

    patient = replace(rule, give_up=None)
    slower, equal, faster = (of_all(seconds, rule) for seconds in ((0.0103, 0.01), (0.01, 0.01), (0.01, 0.0103)))
    assert slower[:, 0].mean() < 0.6 * of_all((0.0103, 0.01), patient)[:, 0].mean()
    assert (slower[:, 1] >= 0).all()
    assert 0.0 < np.mean(equal[:, 0] == 4) < 0.12  # one sixteenth is expected
    assert np.mean(equal[:, 1] != 0) <= 0.05
    assert np.mean(faster == of_all((0.01, 0.0103), patient)) > 0.97
