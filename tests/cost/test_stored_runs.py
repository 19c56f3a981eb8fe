"""Estimates of seconds from stored runs, against values computed by hand."""

import math

import pytest

from gnnplace.cost.stored_runs import DOUBLING_S, JOB_SPREAD, StoredRuns, estimated_seconds


def runs(ratio: float, measured_at: float = 0.0, reference: str = "r") -> StoredRuns:
    return StoredRuns((2.0 * ratio,) * 4, (2.0,) * 4, reference, measured_at=measured_at)


def test_an_estimate_is_the_ratio_times_todays_reference_and_its_interval_widens_with_age() -> None:
    for age, variance in ((0.0, 1.0), (DOUBLING_S, 2.0), (3 * DOUBLING_S, 4.0)):
        found = estimated_seconds([runs(0.5)], {"r": 10.0}, age)
        assert found == pytest.approx((5.0, 5.0 * 1.96 * JOB_SPREAD * math.sqrt(variance)))


def test_jobs_count_by_the_inverse_of_their_variances() -> None:
    now = 3 * DOUBLING_S
    found = estimated_seconds([runs(0.5, now), runs(0.6, 0.0)], {"r": 10.0}, now)
    weights = 1.0, 0.25
    expected = 10.0 * math.exp((weights[0] * math.log(0.5) + weights[1] * math.log(0.6)) / 1.25)
    assert found == pytest.approx((expected, expected * 1.96 * JOB_SPREAD / math.sqrt(1.25)))
    noisy = StoredRuns((0.5, 0.7, 0.5, 0.7), (1.0,) * 4, "r", measured_at=now)
    alone = estimated_seconds([noisy], {"r": 1.0}, now)
    assert alone is not None
    assert alone[1] > 2 * alone[0] * 1.96 * JOB_SPREAD


def test_each_reference_has_its_own_seconds_and_an_unknown_one_does_not_count() -> None:
    both = [runs(0.5, reference="a"), runs(1.0, reference="b"), runs(9.0, reference="gone")]
    assert estimated_seconds(both, {"a": 2.0, "b": 1.0}, 0.0) == pytest.approx(
        (1.0, 1.96 * JOB_SPREAD / math.sqrt(2)), abs=1e-9
    )
    assert estimated_seconds(both[2:], {"a": 2.0}, 0.0) is None
