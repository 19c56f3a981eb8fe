"""The grouper: a feed-forward network and a softmax over groups, for every op on its own."""

from __future__ import annotations

from torch import Generator, Tensor, multinomial, nn

__all__ = ["Chooser"]


class Chooser(nn.Module):
    """Draws one of several options for each row of its input: a group for each op, or in an ablation a device.

    Mirhoseini et al. 2018, the Grouper. Departure: a ReLU between the two layers, which the authors' code lacks.

    >>> import torch
    >>> mask = torch.tensor([[True, True], [False, True]])
    >>> drawn, log_probs = Chooser(3, 4, 2).draw(torch.zeros(2, 3), mask, 5, Generator().manual_seed(0))
    >>> drawn.shape, drawn[:, 1].tolist(), log_probs.shape
    (torch.Size([5, 2]), [1, 1, 1, 1, 1], torch.Size([5]))
    """

    def __init__(self, features: int, hidden: int, options: int) -> None:
        """Weights from torch's current generator."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, options))

    def draw(self, rows: Tensor, mask: Tensor, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """`count` draws `[count, U]` for rows `[U, F]`, and the log probability `[count]` of each whole draw.

        `mask` `[U, options]` is true where an option may be chosen.
        """
        log_probs = self.layers(rows).masked_fill(~mask, -1e9).log_softmax(dim=-1)
        drawn = multinomial(log_probs.detach().exp(), count, replacement=True, generator=generator)
        return drawn.T, log_probs.gather(1, drawn).sum(dim=0)
