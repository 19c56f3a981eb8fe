"""Advantages."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.training.advantage import generalised_advantages, returns_to_go


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.floats(0, 1), st.floats(0, 1), st.integers(0, 1000))
def test_advantages_equal_the_sum_of_their_definition(
    steps: int, batch: int, gamma: float, gae_lambda: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(steps, batch, generator=generator, dtype=torch.float64)
    values = torch.randn(steps, batch, generator=generator, dtype=torch.float64)
    advantages = generalised_advantages(rewards, values, gamma, gae_lambda)
    for row in range(batch):
        for step in range(steps):
            expected = 0.0
            for later in range(step, steps):
                following = float(values[later + 1, row]) if later + 1 < steps else 0.0
                delta = float(rewards[later, row]) + gamma * following - float(values[later, row])
                expected += (gamma * gae_lambda) ** (later - step) * delta
            assert abs(float(advantages[step, row]) - expected) < 1e-9


def test_returns_of_a_hand_computed_episode() -> None:
    rewards = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 2.0]])
    assert returns_to_go(rewards, gamma=1.0).tolist() == [[0.0, 4.0], [-1.0, 4.0], [-1.0, 2.0]]
