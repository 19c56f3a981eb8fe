"""The genetic algorithm: decoding, one generation by hand, optima of small graphs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.evaluation import Problem
from gnnplace.planners.classical import genetic
from gnnplace.planners.classical.genetic import GeneticConfig, decode, next_generation, population_size
from gnnplace.planners.solution import Budget, Progress
from tests.problems import connected, devices_of, optimum_s, problem_of, random_reads


def small_problem(seed: int, num_ops: int = 8) -> Problem:
    rng = np.random.default_rng(seed)
    topology = connected(*devices_of("dd"), latency_s=0.5, bandwidth=1e3)
    return problem_of(random_reads(rng, num_ops, (0, 3000), readers=1), topology, rng.uniform(1.0, 9.0, (num_ops, 2)))


def test_a_unit_goes_to_the_allowed_device_of_its_highest_key() -> None:
    mask = np.array([[True, True, True], [True, False, True], [False, True, False]])
    keys = np.array(
        [[[0.1, 0.9, 0.5], [0.3, 0.9, 0.2], [0.9, 0.0, 0.9]], [[0.7, 0.7, 0.7], [0.0, 0.9, 0.1], [0.1, 0.2, 0.3]]]
    )
    assert decode(keys, mask).tolist() == [[1, 0, 1], [0, 2, 1]]


def test_a_generation_is_the_elite_then_children_of_elite_and_others_then_mutants() -> None:
    # Chromosome i holds only keys of i, best first, so a key names its parent.
    keys = np.repeat(np.arange(1.0, 11.0), 400).reshape(10, 200, 2)
    config = GeneticConfig(elite_share=0.2, mutant_share=0.3, elite_inheritance=0.7)
    after, num_elite = next_generation(keys, np.random.default_rng(0), config)
    assert after.shape == keys.shape
    assert num_elite == 2
    np.testing.assert_array_equal(after[:2], keys[:2])
    for child in after[2:7]:
        elite_parent, other_parent = np.unique(child).tolist()
        assert elite_parent in (1.0, 2.0)
        assert other_parent in range(3, 11)
        assert np.mean(child == elite_parent) == pytest.approx(0.7, abs=0.08)  # 400 keys: 3.5 standard deviations
    assert (after[7:] < 1.0).all()


@given(evaluations=st.integers(0, 10**6))
def test_a_population_lets_the_generations_fit_and_leaves_room_for_children(evaluations: int) -> None:
    config = GeneticConfig()
    size = population_size(evaluations, config)
    assert 10 <= size <= 500
    assert round(config.elite_share * size) + round(config.mutant_share * size) < size
    if size > 10:
        needed = size * (1 + (config.generations - 1) * (1 - config.elite_share))
        assert needed <= evaluations * (1 + 1e-12)  # up to rounding


@pytest.mark.parametrize("seed", range(4))
def test_genetic_finds_the_optimum_of_small_graphs(seed: int) -> None:
    problem = small_problem(seed)
    assert genetic.plan(problem, Budget(1000), seed).objective_s == pytest.approx(optimum_s(problem), rel=1e-12)


def test_no_placement_is_evaluated_twice_and_the_search_ends_when_all_are_known() -> None:
    solution = genetic.plan(small_problem(0, num_ops=3), Budget(1000), 0)
    assert solution.evaluations == 2**3


def test_seconds_end_the_search_between_batches() -> None:
    batches: list[Progress] = []
    budget = Budget(None, seconds=0.2, on_progress=batches.append)
    solution = genetic.plan(small_problem(2, num_ops=40), budget, 0)
    assert solution.evaluations >= 16
    counts = [0, *(progress.evaluations for progress in batches)]
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 16
