"""What a search asked its policy, which moves it drew and what came of them: enough to judge the same draws by other weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.policy.features import Float32Array
from gnnplace.policy.network import Questions

__all__ = ["AskedState", "DrawnMove", "SearchTrace"]


@dataclass(frozen=True, eq=False)
class AskedState:
    """A placement that the policy was asked about: every unit, on every device."""

    encoding: int
    """Which encoding of the graph its answers were given with."""
    pair: Tensor  # [U, D, F]
    context: Tensor  # [U, F]
    mask: Tensor  # [U, D]
    devices: Tensor  # [U] where the units are


@dataclass(frozen=True)
class DrawnMove:
    """One draw from the policy's odds."""

    state: int
    """The placement that was current."""
    move: int
    """Unit times number of devices, plus device."""
    log_prob: float
    evaluations: int
    """Evaluations of the search before its own."""


class SearchTrace:
    """Filled in by a search as it goes; evaluations of what the policy did not draw are noted too."""

    def __init__(self) -> None:
        """Of a search that has not begun."""
        self.encodings: list[tuple[Tensor, Tensor]] = []
        """Node features `[U, 1, F]` and edge features `[E, 1, F]`."""
        self.states: list[AskedState] = []
        self.draws: list[DrawnMove] = []
        self.seconds: list[float] = []
        """Penalised, of every evaluation."""
        self.was_drawn: list[bool] = []
        """Of every evaluation, whether its placement came from a draw."""
        self._drawn = False
        self._proposed: list[bool] = []

    def encoded(self, nodes: Tensor, edges: Tensor) -> None:
        """The graph was encoded anew."""
        self.encodings.append((nodes, edges))

    def asked(self, pair: Float32Array, context: Float32Array, mask: BoolArray, devices: IntArray) -> None:
        """The policy was asked about a placement; the arrays may be written to afterwards."""
        seen = (torch.from_numpy(array.copy()) for array in (pair, context, mask, devices))
        self.states.append(AskedState(len(self.encodings) - 1, *seen))

    def drew(self, move: int, log_prob: float) -> None:
        """A move was drawn from the answers to the last question."""
        before = len(self.seconds) + len(self._proposed)
        self.draws.append(DrawnMove(len(self.states) - 1, move, log_prob, before))
        self._drawn = True

    def recalled(self) -> None:
        """What was proposed is known already; it costs nothing."""
        self._drawn = False

    def proposed(self) -> None:
        """What was drawn will be evaluated, after all that was proposed before it."""
        self._proposed.append(self._drawn)
        self._drawn = False

    def evaluated(self, seconds: Sequence[float]) -> None:
        """All that was proposed since the last time was evaluated, in that order."""
        self.seconds.extend(seconds)
        self.was_drawn.extend(self._proposed)
        self._proposed.clear()

    @property
    def questions(self) -> Questions:
        """All states' questions, states outermost; `rows` are encodings."""
        units = len(self.states[0].devices)
        return Questions(
            torch.tensor([state.encoding for state in self.states]).repeat_interleave(units),
            torch.arange(units).repeat(len(self.states)),
            torch.cat([state.pair for state in self.states]),
            torch.cat([state.context for state in self.states]),
            torch.cat([state.mask for state in self.states]),
        )

    def tried(self, num_moves: int) -> Tensor:
        """`[draws, moves]` how often each move had been drawn from the same answers before."""
        counts = torch.zeros(len(self.draws), num_moves)
        earlier: dict[int, list[int]] = {}
        for number, draw in enumerate(self.draws):
            before = earlier.setdefault(draw.state, [])
            if before:
                counts[number] = torch.bincount(torch.tensor(before), minlength=num_moves)
            before.append(draw.move)
        return counts

    def drawn(self, evaluations: int) -> BoolArray:
        """`[evaluations]` which evaluations were of something that the policy had drawn."""
        drawn = np.array(self.was_drawn[:evaluations], dtype=np.bool_)
        return np.pad(drawn, (0, evaluations - len(drawn)))

    def best_s(self, start_s: float, evaluations: int) -> FloatArray:
        """`[evaluations + 1]` the least seconds after so many evaluations; a search that ended early stays where it was."""
        best = np.minimum.accumulate(np.array([start_s, *self.seconds]))[: evaluations + 1]
        return np.pad(best, (0, evaluations + 1 - len(best)), mode="edge")
