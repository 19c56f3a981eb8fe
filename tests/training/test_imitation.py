"""Learning what single moves gain, from exhaustive lookahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnplace.evaluation import Problem
from gnnplace.policy.network import PolicyConfig, build_policy, policy_inputs
from gnnplace.training.imitation import (
    Demonstration,
    ImitationConfig,
    demonstrate,
    imitation_update,
    move_gains,
    move_log_odds,
)
from gnnplace.training.problems import TrainingProblem
from tests.env.toy_problems import random_layers, two_chains

CONFIG = ImitationConfig(num_updates=1, learning_rate=1e-2)


def exercise(problem: Problem, starts: np.ndarray) -> TrainingProblem:
    seconds = problem.penalised_batch_s(problem.evaluator.evaluate_batch(starts))
    return TrainingProblem("toy", problem, starts, seconds, float(seconds.min()))


def drawn_starts(problem: Problem, count: int, seed: int = 0) -> np.ndarray:
    devices = np.random.default_rng(seed).integers(problem.topology.num_devices, size=(count, problem.num_units))
    return devices[:, problem.unit_of_op]


def test_the_gain_of_a_move_is_the_part_of_the_makespan_that_it_saves() -> None:
    problem = two_chains(length=2)  # a0 a1 and b0 b1: 4 s on one device
    tables = policy_inputs(problem).tables
    gains = move_gains(problem, tables, np.zeros(4, dtype=np.int64), 4.0, np.ones((4, 2), dtype=np.bool_))
    units = {problem.graph.op_names[op]: unit for op, unit in enumerate(problem.unit_of_op)}
    assert np.isnan(gains[:, 0]).all()  # all of them are there
    # On its own, the last op of a chain saves a second, less nothing: it starts at 1 + 0.5 + 5 / 10 = 2 s and ends at 3 s.
    assert gains[units["a1"], 1] == pytest.approx(0.25)
    for unit in range(4):
        moved = (problem.unit_of_op == unit).astype(np.int64)[None, :]
        after = problem.evaluator.evaluate_batch(moved).makespan_s[0]
        assert gains[unit, 1] == pytest.approx(1.0 - after / 4.0)


def test_a_demonstration_leaves_out_what_is_no_move() -> None:
    problem = random_layers(3)
    starts = drawn_starts(problem, 4)
    shown = demonstrate(exercise(problem, starts[[0, 1, 1, 2, 3]]), CONFIG, np.random.default_rng(0))
    assert shown.gains.shape == (4, problem.num_units, 3)  # a start that comes twice is shown once
    here = torch.zeros_like(shown.gains, dtype=torch.bool).scatter_(2, shown.devices[:, :, None], True)
    assert torch.equal(torch.isnan(shown.gains), here)
    few = demonstrate(
        exercise(problem, starts), replace(CONFIG, max_pairs=2 * problem.num_units * 3), np.random.default_rng(0)
    )
    assert len(few.gains) == 2


def test_an_infeasible_start_has_gains_that_are_bounded() -> None:
    problem = two_chains(length=2, memory_bytes=25)
    starts = np.array([[0, 0, 0, 0], [0, 1, 0, 1]])
    shown = demonstrate(exercise(problem, starts), CONFIG, np.random.default_rng(0))
    known = shown.gains[torch.isfinite(shown.gains)]
    assert known.min() >= -1.0
    assert known.max() <= 1.0
    assert known.max() > 0.0


def shown_layers(number: int) -> Demonstration:
    problem = random_layers(number)
    return demonstrate(exercise(problem, drawn_starts(problem, 6, number)), CONFIG, np.random.default_rng(number))


def test_it_learns_which_moves_help_on_graphs_that_it_has_not_seen() -> None:
    network = build_policy(0, PolicyConfig(hidden=16, rounds=2))
    with torch.no_grad():
        network.head.prior.weight.zero_()  # all that it knows in the end it has learned
    optimizer = torch.optim.Adam(network.parameters(), lr=CONFIG.learning_rate)
    unseen = [shown_layers(number) for number in range(100, 104)]
    looked = replace(CONFIG, update_epochs=1)
    frozen = torch.optim.SGD(network.parameters(), lr=0.0)
    before = imitation_update(network, frozen, unseen, looked)
    for number in range(0, 60, 2):
        imitation_update(network, optimizer, [shown_layers(number), shown_layers(number + 1)], CONFIG)
    after = imitation_update(network, frozen, unseen, looked)
    assert before.helping == after.helping
    assert before.drawn_helping == pytest.approx(before.helping, rel=0.15)  # it draws evenly
    assert after.drawn_helping > 1.4 * before.drawn_helping
    assert after.move_loss < before.move_loss
    assert after.list_loss < before.list_loss


def test_odds_are_against_staying() -> None:
    shown = shown_layers(5)
    log_odds = move_log_odds(build_policy(0, PolicyConfig(hidden=8, rounds=1)), shown)
    stays = log_odds.gather(2, shown.devices[:, :, None])
    assert torch.equal(stays, torch.zeros_like(stays))


def test_where_nothing_can_move_nothing_is_learned() -> None:
    problem = two_chains(length=2, num_devices=1)
    shown = demonstrate(exercise(problem, np.zeros((2, 4), dtype=np.int64)), CONFIG, np.random.default_rng(0))
    network = build_policy(0, PolicyConfig(hidden=8, rounds=1))
    result = imitation_update(network, torch.optim.Adam(network.parameters()), [shown], CONFIG)
    assert result.move_loss == result.list_loss == 0.0
