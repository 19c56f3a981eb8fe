"""Learning, while a local search runs, which moves help: logistic regression on the outcomes of the moves it tried.

A move of unit `u` from its device to `d` has the log odds `logit[u, d] - logit[u, here]`, plus an offset for how rarely moves help at
all. Labels are whether the objective fell. This is the one-step, off-policy counterpart of the policy gradient: every evaluated
move is a lesson, whichever policy drew it, so nothing of the budget goes into learning alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnplace.policy.network import PolicyNetwork

__all__ = ["MoveOddsConfig", "MoveOddsTrainer", "TriedMove"]


@dataclass(frozen=True)
class MoveOddsConfig:
    """How the outcomes of moves are learned."""

    learning_rate: float = 3e-3
    learn_every: int = 32
    """Tried moves between two updates."""
    minibatch_size: int = 128
    update_steps: int = 4
    """Gradient steps per update."""
    memory: int = 2048
    """The last moves that are remembered."""
    max_grad_norm: float = 0.5


@dataclass(frozen=True, eq=False)
class TriedMove:
    """One move, what the policy saw of it, and whether it helped."""

    unit: Tensor  # [H] embedding
    graph: Tensor  # [H]
    pair: Tensor  # [D, F]
    context: Tensor  # [F]
    mask: Tensor  # [D]
    here: int
    there: int
    helped: bool


class MoveOddsTrainer:
    """Remembers tried moves and trains the head of a network on them, in place."""

    def __init__(self, network: PolicyNetwork, devices: Tensor, config: MoveOddsConfig, generator: torch.Generator) -> None:
        """`devices` `[D, F]` are the device features of the problem."""
        self._network, self._devices, self._config, self._generator = network, devices, config, generator
        self._offset = nn.Parameter(torch.tensor(-2.0))
        trained = [*network.head.parameters(), self._offset]
        self._optimizer = torch.optim.Adam(trained, lr=config.learning_rate, weight_decay=0.0)
        self._moves: deque[TriedMove] = deque(maxlen=config.memory)
        self._fresh = 0

    def note(self, move: TriedMove) -> bool:
        """Remembers a move; every so often learns, and then says true."""
        self._moves.append(move)
        self._fresh += 1
        if self._fresh < self._config.learn_every:
            return False
        self._fresh = 0
        for _ in range(self._config.update_steps):
            self._step()
        return True

    def _step(self) -> None:
        size = min(self._config.minibatch_size, len(self._moves))
        picks = torch.randperm(len(self._moves), generator=self._generator)[:size].tolist()
        moves = [self._moves[pick] for pick in picks]
        logits, _ = self._network.head(
            torch.stack([move.unit for move in moves]),
            torch.stack([move.graph for move in moves]),
            self._devices,
            torch.stack([move.pair for move in moves]),
            torch.stack([move.context for move in moves]),
            torch.stack([move.mask for move in moves]),
        )
        rows = torch.arange(size)
        here, there = torch.tensor([move.here for move in moves]), torch.tensor([move.there for move in moves])
        odds = logits[rows, there] - logits[rows, here] + self._offset
        helped = torch.tensor([float(move.helped) for move in moves])
        loss = nn.functional.binary_cross_entropy_with_logits(odds, helped)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.head.parameters(), self._config.max_grad_norm)
        self._optimizer.step()
