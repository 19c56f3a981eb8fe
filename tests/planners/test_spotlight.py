"""Placement by proximal policy optimisation."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.planners.papers import spotlight
from gnnplace.planners.papers.learning import gradient_step
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.op_groups import op_groups
from gnnplace.planners.papers.seq2seq.sampling import Rewards
from gnnplace.planners.papers.spotlight import (
    SpotlightConfig,
    next_kl_coef,
    plan,
    proximal_update,
    ratio_and_divergence,
)
from gnnplace.planners.solution import Budget
from gnnplace.policy.network import seeded
from tests.problems import full_mesh, problem_of, random_layers

TINY = Seq2SeqConfig(hidden=8, attention_width=4, type_width=2)


def updated(kl_coef: float, advantages: list[float], epochs: int = 4) -> tuple[float, np.ndarray, float]:
    """An update's divergence before its last step, the gain in log probability of each placement, and the divergence after it."""
    with seeded(2):
        policy = Seq2SeqPolicy(op_groups(random_layers()), TINY)
    decisions = policy.sample(len(advantages), torch.Generator().manual_seed(0))
    before = policy.log_probs(decisions).detach()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    step = partial(gradient_step, policy, optimizer, max_grad_norm=1.0)
    kl = proximal_update(policy, step, (decisions, torch.tensor(advantages)), kl_coef, epochs)
    after = policy.log_probs(decisions).detach()
    gain = (after - before).gather(-1, decisions[..., None]).sum(dim=0)[:, 0]
    return kl, gain.numpy(), float(ratio_and_divergence(after, before, decisions)[1].mean())


def test_the_divergence_grows_from_zero_with_the_steps_of_an_update() -> None:
    assert updated(1.0, [1.0, -1.0], epochs=1)[0] == 0.0
    assert updated(1.0, [1.0, -1.0, 0.5])[0] > 0.0


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


def test_advantages_of_the_first_batch_have_mean_zero_and_deviation_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def recorded(policy: Seq2SeqPolicy, step: object, batch: tuple[torch.Tensor, torch.Tensor], *_: object) -> float:
        seen.append(batch[1])
        return 0.01

    monkeypatch.setattr(spotlight, "proximal_update", recorded)
    plan(random_layers(), Budget(40), 0, SpotlightConfig(TINY))
    assert [len(advantages) for advantages in seen] == [10, 10, 10, 10]
    assert float(seen[0].mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(seen[0].std(correction=0)) == pytest.approx(1.0, rel=1e-5)


def untouched(*_: object) -> float:
    raise AssertionError("an update without anything to learn from")


def test_no_update_follows_equal_rewards_even_if_they_are_far_from_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = iter([[-0.1] * 10, [-0.3] * 9 + [-0.3 + 1e-16], [-1.7] * 10])
    monkeypatch.setattr(spotlight, "proximal_update", untouched)
    monkeypatch.setattr(Rewards, "of", lambda *_: np.array(next(batches)))
    assert plan(random_layers(), Budget(30), 0).evaluations == 30


def test_no_update_follows_placements_that_all_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spotlight, "proximal_update", untouched)
    graph = OpGraph.build("big", [Op("a", memory_bytes=100), Op("b", memory_bytes=100)])
    assert plan(problem_of(graph, full_mesh(2, memory_bytes=50)), Budget(30), 0).evaluations == 30
