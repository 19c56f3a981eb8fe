"""What the published learned methods share: rewards, baseline, attention in pieces, seeds and budgets."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.planners.catalog import PLANNERS, load_planner
from gnnplace.planners.papers import coloc_rl, learning, spotlight
from gnnplace.planners.papers.hierarchical.networks import Placer
from gnnplace.planners.papers.learning import (
    MovingAverage,
    landing_devices,
    relative_runtime,
    single_device_s,
    which_ran,
)
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.op_groups import op_groups
from gnnplace.planners.solution import Budget
from gnnplace.policy.network import seeded
from tests.problems import MeasuredLike, full_mesh, problem_of, random_layers, two_chains

PAPERS = [name for name, entry in PLANNERS.items() if entry.module.startswith("papers.")]


def test_a_measured_placement_ran_if_its_seconds_are_finite_and_a_simulated_one_if_it_has_no_penalty() -> None:
    problem = two_chains(2)
    worst_s = problem.worst_case_s
    seconds = np.array([1.0, worst_s, 3.0 * worst_s, np.inf])
    assert which_ran(problem, seconds).tolist() == [True, True, False, False]
    assert which_ran(replace(problem, evaluator=MeasuredLike(problem)), seconds).tolist() == [True, True, True, False]


def test_relative_runtimes_are_multiples_of_the_best_single_device_and_bounded_where_a_placement_does_not_fit() -> None:
    problem = two_chains(length=2)
    assert single_device_s(problem) == 4.0
    seconds = np.array([4.0, 1.0, 1.5 * problem.worst_case_s, np.inf])
    assert relative_runtime(problem, seconds, 4.0).tolist() == [1.0, 0.25, 30.0, 40.0]


def test_compressed_long_runtimes_keep_their_order_below_placements_that_do_not_fit() -> None:
    problem = two_chains(length=2)
    found = relative_runtime(problem, np.array([1.0, 1.25, 2.0, 4.0]), 0.1)
    np.testing.assert_allclose(found, [10.0, 12.0, 15.0, 17.5])  # 20 - 100 / x above 10
    rising = relative_runtime(problem, np.linspace(0.01, 3.0 * problem.worst_case_s, 500), 0.01)
    assert (np.diff(rising[:100]) > 0.0).all()
    assert (np.diff(rising) >= 0.0).all()
    assert rising[np.linspace(0.01, 3.0, 500) < 1.0].max() < 20.0


def test_a_unit_lands_on_the_device_that_it_is_sent_to_or_on_the_fastest_that_may_run_it() -> None:
    graph = OpGraph.build("bound", [Op("a"), Op("b", devices=("d1", "d2"))])
    times = np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 2.0]])
    assert landing_devices(problem_of(graph, full_mesh(3), times)).tolist() == [[0, 1, 2], [2, 1, 2]]


def test_advantages_are_rewards_less_the_moving_average_before_their_batch() -> None:
    baseline = MovingAverage(decay=0.9)
    for batch, expected, after in (
        ([-1.0, -3.0], [1.0, -1.0], -2.0),  # the first batch has its own mean as baseline
        ([-1.0], [1.0], -1.9),
        ([-0.9, -0.9], [1.0, 1.0], -1.8),
    ):
        np.testing.assert_allclose(baseline.advantages(np.array(batch)), expected)
        assert baseline.value == pytest.approx(after)
    assert MovingAverage(0.9, -3.0).advantages(np.array([-1.0])).tolist() == [2.0]


def seq2seq() -> tuple[torch.nn.Module, torch.Tensor]:
    """A small policy, and its log probabilities of three placements."""
    with seeded(0):
        policy = Seq2SeqPolicy(op_groups(random_layers(num_ops=12)), Seq2SeqConfig(3, 2, 2))
    return policy, policy.log_probs(policy.sample(3, torch.Generator().manual_seed(0)))


def placer() -> tuple[torch.nn.Module, torch.Tensor]:
    """A small placer, and its log probabilities of two placements."""
    with seeded(0):
        network = Placer(5, 2, 4, 10.0, 5.0)
    keys, state = network.encode(torch.ones(2, 3, 5), 1)
    mask = torch.ones(2, 3, 2, dtype=torch.bool)
    return network, network.log_probs(keys, state, mask, torch.tensor([[1, 0, 1], [0, 0, 1]]))


@pytest.mark.parametrize(("sequence_model", "few"), [(seq2seq, 1000), (placer, 50)])
def test_attention_in_pieces_gives_the_same_probabilities_and_gradients(
    sequence_model: Callable[[], tuple[torch.nn.Module, torch.Tensor]], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for numbers in (1 << 26, few):
        monkeypatch.setattr(learning, "_ATTENTION_NUMBERS", numbers)
        network, log_probs = sequence_model()
        log_probs[..., 0].sum().backward()
        results.append([log_probs.detach(), *(p.grad for p in network.parameters())])
    for whole, pieces in zip(*results, strict=True):
        torch.testing.assert_close(whole, pieces)


PUBLISHED_SIZES = [
    partial(coloc_rl.plan, config=coloc_rl.PAPER),
    partial(spotlight.plan, config=replace(spotlight.PAPER, update_epochs=2)),
]


@pytest.mark.parametrize("planner", [*map(load_planner, (*PAPERS, "gnn")), *PUBLISHED_SIZES])
def test_the_same_seed_gives_the_same_search_and_leaves_torch_as_it_was(planner: Any) -> None:
    problem, evaluations = (random_layers(3), 130) if planner not in PUBLISHED_SIZES else (random_layers(2, 10), 24)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    first, second, other = (planner(problem, Budget(evaluations), seed) for seed in (5, 5, 6))
    assert first.placement.assignment.tolist() == second.placement.assignment.tolist()
    assert [row[::2] for row in first.history] == [row[::2] for row in second.history]
    assert [row[::2] for row in first.history] != [row[::2] for row in other.history]
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["coloc-rl", "spotlight"])
def test_the_sequence_model_learns_to_put_two_towers_on_two_devices(name: str) -> None:
    # 2 of 65,536 placements are the best ones.
    assert load_planner(name)(two_chains(8), Budget(300), 0).objective_s == 8.0


@pytest.mark.parametrize("name", [*PAPERS, "gnn", "annealing"])
def test_a_budget_of_seconds_ends_the_search(name: str) -> None:
    solution = load_planner(name)(random_layers(), Budget(evaluations=None, seconds=1.0), 0)
    assert solution.evaluations >= 10
    assert not solution.interrupted
