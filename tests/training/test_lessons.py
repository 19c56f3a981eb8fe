"""Advantages of groups, and steps over lessons."""

import signal
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from gnnplace.planners.gnn import teaching
from gnnplace.planners.gnn.builds import PolicyBuilder
from gnnplace.planners.gnn.deciding import decide
from gnnplace.planners.gnn.teaching import TeachingConfig, lessons_of
from gnnplace.policy.network import PolicyConfig, PolicyNetwork, build_policy, policy_inputs
from gnnplace.training.lessons import DecisionLesson, contributions, group_advantages, lesson_update
from tests.problems import random_layers, two_chains
from tests.training.conftest import on_first_device

GAINS = np.array([0.3, -1.0, 0.5, 0.1, 0.45, 0.3])
TINY = PolicyConfig(hidden=8, rounds=1, type_width=2, decision_width=16)


@pytest.mark.parametrize("best_of", [2, 3, 5])
def test_a_contribution_is_the_mean_rise_of_the_largest_gain_over_all_subsets(best_of: int) -> None:
    for index, found in enumerate(contributions(GAINS, best_of)):
        others = np.delete(GAINS, index)
        rises = [max(0.0, GAINS[index] - max(subset)) for subset in combinations(others, best_of - 1)]
        assert found == pytest.approx(np.mean(rises))


def test_advantages_have_mean_zero_and_shrink_where_samples_hardly_differ() -> None:
    for best_of in (1, 4):
        advantages = group_advantages(GAINS, best_of)
        assert advantages.mean() == pytest.approx(0.0, abs=1e-12)
        assert advantages.std() == pytest.approx(1.0)
        assert advantages.argmax() == GAINS.argmax()
        assert group_advantages(1e-4 * GAINS, best_of).std() < 0.1
    assert not group_advantages(np.full(5, 0.2), 4).any()
    assert (group_advantages(GAINS, 5) > 0).sum() < (group_advantages(GAINS, 1) > 0).sum()


def mean_seconds(network: PolicyNetwork, count: int = 40) -> float:
    """Of schedules that the policy draws for a problem that it does not learn from."""
    problem = random_layers(99)
    drawn = PolicyBuilder(problem, network, np.random.default_rng(0)).schedules(count)
    assignments = np.array([schedule.assignment for schedule in drawn])
    return float(problem.penalised_batch_s(problem.evaluator.evaluate_batch(assignments)).mean())


@pytest.mark.parametrize("imitates", [True, False])
def test_lessons_make_the_schedules_of_another_problem_shorter(imitates: bool) -> None:
    network, rng = build_policy(0, TINY), np.random.default_rng(0)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    before_s = mean_seconds(network)
    for number in range(30):
        training = on_first_device(random_layers(number))
        lessons = lessons_of(network, policy_inputs(training.problem), training, rng, imitates)
        assert np.isfinite(lesson_update(network, optimizer, lessons, 1.0).lesson_loss)
    assert mean_seconds(network) < 0.9 * before_s


def test_decisions_learn_at_the_temperature_at_which_they_were_drawn() -> None:
    network, training = build_policy(0, TINY), on_first_device(random_layers(1))
    inputs = policy_inputs(training.problem)
    config = TeachingConfig(explored=(2.5,), ent_coef=0.0)
    [lesson] = lessons_of(network, inputs, training, np.random.default_rng(0), False, config)
    assert isinstance(lesson, DecisionLesson)
    assert (lesson.temperatures == 2.5).all()
    logits = network.decision_logits(inputs, network.encode(inputs, lesson.nodes, lesson.edges), lesson.decisions)
    chosen = torch.log_softmax(logits / 2.5, dim=1)[torch.arange(len(logits)), lesson.decisions.chosen]
    loss, _ = lesson.loss(network)
    assert float(loss.detach()) == pytest.approx(-float((chosen * lesson.weights).sum().detach()), rel=1e-5)
    drawn = TeachingConfig(explored=(1.0, 4.0))
    [mixed] = lessons_of(network, inputs, training, np.random.default_rng(0), False, drawn)
    assert isinstance(mixed, DecisionLesson)
    assert set(mixed.temperatures.tolist()) == {1.0, 4.0}


def test_imitation_also_teaches_which_single_moves_improve_and_practice_leaves_those_weights() -> None:
    network, training = build_policy(0, TINY), on_first_device(random_layers(1))
    inputs, head = policy_inputs(training.problem), build_policy(0, TINY).head.linear.weight
    for imitates in (False, True):
        lessons = lessons_of(network, inputs, training, np.random.default_rng(0), imitates)
        lesson_update(network, torch.optim.Adam(network.parameters(), lr=1e-3), lessons, 1.0)
        assert torch.equal(network.head.linear.weight, head) is not imitates


def test_a_problem_without_a_choice_gives_no_lesson_and_no_lesson_changes_no_weight() -> None:
    training = on_first_device(two_chains(num_devices=1))
    network, inputs = build_policy(0, TINY), policy_inputs(training.problem)
    assert lessons_of(network, inputs, training, np.random.default_rng(0), False) == []
    before = [parameter.clone() for parameter in network.parameters()]
    lesson_update(network, torch.optim.Adam(network.parameters()), [], 1.0)
    assert all(torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True))


@pytest.mark.parametrize("imitates", [True, False])
def test_an_interrupt_waits_until_a_lesson_is_complete(imitates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[bool] = []

    def decide_interrupted(*arguments: Any) -> Any:
        if not decided:
            signal.raise_signal(signal.SIGINT)
        found = decide(*arguments)
        decided.append(True)
        return found

    monkeypatch.setattr(teaching, "decide", decide_interrupted)
    network, training = build_policy(0, TINY), on_first_device(random_layers(1))
    with pytest.raises(KeyboardInterrupt):
        lessons_of(network, policy_inputs(training.problem), training, np.random.default_rng(0), imitates)
    assert len(decided) > 1
