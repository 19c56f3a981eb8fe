"""Returns."""

import torch

from gnnplace.training.search_ppo import returns_to_go


def test_returns_of_a_hand_computed_episode() -> None:
    rewards = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 2.0]])
    assert returns_to_go(rewards, gamma=1.0).tolist() == [[0.0, 4.0], [-1.0, 4.0], [-1.0, 2.0]]


def test_what_comes_later_counts_less() -> None:
    assert returns_to_go(torch.tensor([[0.0], [0.0], [8.0]]), gamma=0.5).flatten().tolist() == [2.0, 4.0, 8.0]
