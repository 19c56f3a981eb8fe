"""Placement by proximal policy optimisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.planners.budget import Budget
from gnnplace.planners.papers import spotlight
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy, build_policy
from gnnplace.planners.papers.seq2seq.op_groups import op_groups
from gnnplace.planners.papers.seq2seq.sampling import Rewards
from gnnplace.planners.papers.spotlight import (
    PAPER,
    SpotlightConfig,
    SpotlightUpdate,
    next_kl_coef,
    plan,
    proximal_update,
    ratio_and_divergence,
)
from tests.policy.conftest import one_thread
from tests.toy_problems import full_mesh, problem_on, random_layers, two_chains

__all__ = ["one_thread"]

TINY = Seq2SeqConfig(hidden=8, attention_width=4, type_width=2)


def updated(kl_coef: float, advantages: list[float], epochs: int = 4) -> tuple[SpotlightUpdate, np.ndarray, float]:
    """What an update did, how much likelier it made each of its placements, and how far it went from where it began."""
    policy = build_policy(op_groups(random_layers()), 2, TINY)
    decisions = policy.sample(len(advantages), torch.Generator().manual_seed(0))
    before = policy.log_probs(decisions).detach()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    config = SpotlightConfig(update_epochs=epochs)
    update = proximal_update(policy, optimizer, (decisions, torch.tensor(advantages)), kl_coef, config)
    after = policy.log_probs(decisions).detach()
    gain = (after - before).gather(-1, decisions[..., None]).sum(dim=0)[:, 0]
    return update, gain.numpy(), float(ratio_and_divergence(after, before, decisions)[1].mean())


def test_the_ratio_is_one_before_the_first_update() -> None:
    update, _, _ = updated(1.0, [1.0, -1.0, 0.5])
    assert update.first_ratio == 1.0
    assert update.kl > 0.0
    assert updated(1.0, [1.0, -1.0], epochs=1)[0] == SpotlightUpdate(1.0, 0.0)


def test_ratio_and_divergence_are_those_computed_by_hand() -> None:
    # One stage, two placements; the third device is forbidden.
    drawn = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]]).log()
    now = torch.tensor([[[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]]]).log()
    ratio, divergence = ratio_and_divergence(now, drawn, torch.tensor([[1, 0]]))
    np.testing.assert_allclose(ratio.numpy(), [[1.5, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(divergence.numpy(), [[0.5 * np.log(2) + 0.5 * np.log(2 / 3), 0.0]], atol=1e-7)


@given(st.integers(0, 2**31), st.integers(1, 5))
def test_no_divergence_is_negative_and_that_from_itself_is_zero(seed: int, devices: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, other = (torch.randn(2, 3, devices, generator=generator).log_softmax(dim=-1) for _ in range(2))
    decisions = torch.zeros(2, 3, dtype=torch.int64)
    assert (ratio_and_divergence(one, other, decisions)[1] >= -1e-6).all()
    assert (ratio_and_divergence(one, one, decisions)[1] == 0.0).all()


def test_an_update_makes_good_placements_likelier_and_bad_ones_less_likely() -> None:
    assert updated(0.1, [1.0])[1] > 0.0
    assert updated(0.1, [-1.0])[1] < 0.0
    _, (good, bad), _ = updated(0.1, [1.0, -1.0])
    assert good > bad


def test_the_penalty_keeps_the_policy_near_the_one_that_drew() -> None:
    assert updated(100.0, [1.0, -1.0])[2] < updated(0.0, [1.0, -1.0])[2]


@pytest.mark.parametrize(("kl", "expected"), [(0.0151, 4.0), (0.0149, 2.0), (0.0067, 2.0), (0.0066, 1.0)])
def test_the_penalty_doubles_or_halves_outside_of_a_band_around_the_target(kl: float, expected: float) -> None:
    assert next_kl_coef(2.0, kl, 0.01) == expected


def test_the_first_batch_is_judged_by_its_own_mean_and_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def recorded(
        policy: Seq2SeqPolicy,
        optimizer: torch.optim.Optimizer,
        batch: tuple[torch.Tensor, torch.Tensor],
        kl_coef: float,
        config: SpotlightConfig,
    ) -> SpotlightUpdate:
        seen.append(batch)
        return proximal_update(policy, optimizer, batch, kl_coef, config)

    monkeypatch.setattr(spotlight, "proximal_update", recorded)
    plan(random_layers(), Budget(40), 0, SpotlightConfig(sampling=replace(SpotlightConfig().sampling, network=TINY)))
    assert [len(advantages) for _, advantages in seen] == [10, 10, 10, 10]
    first = seen[0][1].numpy()
    assert first.mean() == pytest.approx(0.0, abs=1e-5)
    assert first.std() == pytest.approx(1.0, rel=1e-5)


def test_placements_that_are_all_alike_teach_nothing_however_far_they_are_from_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def untouched(*_: object) -> SpotlightUpdate:
        raise AssertionError("an update without anything to learn from")

    batches = iter([[-0.1] * 10, [-0.3] * 9 + [-0.3 + 1e-16], [-1.7] * 10])

    def alike(*_: object) -> np.ndarray:
        return np.array(next(batches))

    monkeypatch.setattr(spotlight, "proximal_update", untouched)
    monkeypatch.setattr(Rewards, "of", alike)
    assert plan(random_layers(), Budget(30), 0).evaluations == 30


def test_placements_that_all_fail_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def untouched(*_: object) -> SpotlightUpdate:
        raise AssertionError("an update without anything to learn from")

    monkeypatch.setattr(spotlight, "proximal_update", untouched)
    graph = OpGraph.build("big", [Op("a", memory_bytes=100), Op("b", memory_bytes=100)])
    solution = plan(problem_on(graph, full_mesh(2, memory_bytes=50)), Budget(30), 0)
    assert solution.evaluations == 30


def test_it_learns_to_put_two_towers_on_two_devices() -> None:
    # 2 of 65,536 placements are the best ones.
    assert plan(two_chains(8), Budget(300), 0).objective_s == 8.0


@pytest.mark.parametrize("config", [SpotlightConfig(), replace(PAPER, update_epochs=2)])
def test_the_same_seed_gives_the_same_answer(config: SpotlightConfig) -> None:
    first, second = (plan(random_layers(2, num_ops=10), Budget(24), 5, config) for _ in range(2))
    np.testing.assert_array_equal(first.placement.assignment, second.placement.assignment)
    assert first.history[-1][2] == second.history[-1][2]
    assert first.evaluations == second.evaluations == 24
