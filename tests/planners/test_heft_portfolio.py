"""The portfolio of list schedules: never worse than HEFT, with every placement evaluated once."""

import itertools

import numpy as np
import pytest

from gnnplace.evaluation import Problem
from gnnplace.planners.classical import heft, heft_portfolio
from gnnplace.planners.classical.heft_portfolio import TRANSFER_FACTORS, held_shares, noisy_options, plain_options
from gnnplace.planners.solution import Budget
from tests.problems import connected, devices_of, problem_of, random_reads


def random_problem(seed: int, num_ops: int = 40, memory_bytes: int | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    graph = random_reads(rng, num_ops, (1, 100), memory_bytes=10)
    topology = connected(*devices_of("ddd", memory_bytes), latency_s=1.0, bandwidth=20.0)
    return problem_of(graph, topology, rng.uniform(1.0, 9.0, (num_ops, 3)))


@pytest.mark.parametrize("evaluations", [1, 2, 20])
@pytest.mark.parametrize("seed", range(6))
def test_the_portfolio_is_never_worse_than_heft(seed: int, evaluations: int) -> None:
    problem = random_problem(seed, memory_bytes=None if seed % 2 else 700)
    alone = heft.plan(problem, Budget(evaluations), 0).objective_s
    assert heft_portfolio.plan(problem, Budget(evaluations), 0).objective_s <= alone


def test_varied_costs_beat_heft_on_most_graphs() -> None:
    ratios = [
        heft_portfolio.plan(problem, Budget(100), 0).objective_s / heft.plan(problem, Budget(9), 0).objective_s
        for problem in map(random_problem, range(10))
    ]
    assert sum(ratio < 0.99 for ratio in ratios) >= 6


def test_the_whole_budget_is_used() -> None:
    assert heft_portfolio.plan(random_problem(0), Budget(150), 0).evaluations == 150


def test_without_a_limit_about_a_hundred_schedules_are_evaluated() -> None:
    assert 100 <= heft_portfolio.plan(random_problem(0), Budget(None, None), 0).evaluations < 116


def test_a_graph_without_alternatives_ends_the_search() -> None:
    problem = random_problem(0, num_ops=2)
    assert heft_portfolio.plan(problem, Budget(2000), 0).evaluations <= 3**2


def test_every_transfer_factor_comes_with_and_without_channels_before_noise_that_depends_on_the_seed() -> None:
    problem = random_problem(1)
    shares = held_shares(problem)
    options = list(plain_options(shares))
    assert [each.channels for each in options] == [True] * 8 + [False] * 8
    assert [each.transfer_factor for each in options] == [*TRANSFER_FACTORS] * 2
    noisy = [list(itertools.islice(noisy_options(problem, np.random.default_rng(s), shares), 3)) for s in (0, 1)]
    assert [each.channels for each in noisy[0]] == [True, False, True]
    assert [each.transfer_factor for each in noisy[0]] != [each.transfer_factor for each in noisy[1]]


def test_smaller_shares_of_memory_are_tried_only_where_not_everything_fits() -> None:
    assert held_shares(random_problem(0)) == ((1.0, 0.0),)
    assert len(held_shares(random_problem(0, memory_bytes=300))) == 5


def test_where_memory_is_tight_schedules_leave_room_for_activations_as_heft_must() -> None:
    problem = random_problem(2, memory_bytes=1100)
    alone = heft.plan(problem, Budget(100), 0)
    assert alone.evaluations > 1  # it had to leave room
    assert alone.objective_s <= problem.worst_case_s
    assert heft_portfolio.plan(problem, Budget(100), 0).objective_s < alone.objective_s
