"""The Metropolis rule and the clock of a search."""

import math

import numpy as np
import pytest

from gnnplace.planners.metropolis import SearchClock, accepts, cooled_s
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from gnnplace.sim.example import diamond


def test_a_worse_placement_is_accepted_as_often_as_the_temperature_says() -> None:
    rng = np.random.default_rng(0)
    accepted = sum(accepts(10.0, 13.0, 3.0, rng) for _ in range(10_000))
    assert accepted / 10_000 == pytest.approx(math.exp(-1.0), abs=0.02)


def test_only_chance_draws_random_numbers() -> None:
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    assert accepts(10.0, 10.0, 3.0, rng)
    assert accepts(np.inf, np.inf, 3.0, rng)
    assert not accepts(10.0, 10.1, 0.0, rng)
    assert rng.bit_generator.state == before


def test_a_temperature_falls_geometrically() -> None:
    assert [cooled_s(8.0, 0.25, done) for done in (0.0, 0.5, 1.0)] == [8.0, 4.0, 2.0]


@pytest.mark.parametrize(
    ("budget", "end_share", "max_evaluations", "expected"),
    [(12, 1.0, None, 10), (12, 0.5, None, 4), (12, 1.0, 4, 4), (None, 1.0, 8, 8)],
)
def test_a_clock_counts_the_evaluations_of_its_stage(
    budget: int | None, end_share: float, max_evaluations: int | None, expected: int
) -> None:
    search = Search(diamond(), Budget(budget), "example", seed=0)
    search.evaluate_batch(np.zeros((2, 4), dtype=np.int64))
    clock = SearchClock(search, end_share, max_evaluations)
    assert (clock.max_evaluations, clock.expected_evaluations, clock.share_done) == (expected, expected, 0.0)
    search.evaluate_batch(np.zeros((1, 4), dtype=np.int64))
    assert (clock.evaluations_left, clock.share_done) == (expected - 1, 1 / expected)
    assert clock.share_per_evaluation == 1 / expected


def test_a_clock_of_seconds_alone_estimates_evaluations_from_the_rate_so_far() -> None:
    search = Search(diamond(), Budget(None, seconds=1e6), "example", seed=0)
    search.evaluate_batch(np.zeros((50, 4), dtype=np.int64))
    clock = SearchClock(search)
    assert clock.max_evaluations is None
    assert clock.expected_evaluations > 50
    assert clock.share_per_evaluation == 0.0
    search.evaluate_batch(np.zeros((50, 4), dtype=np.int64))
    assert 0.0 < clock.share_done < 1.0
    assert 0.0 < clock.share_per_evaluation < clock.share_done
