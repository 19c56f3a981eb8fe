"""A record of one search: the placements that the policy scored, the moves that it drew and their seconds.

From it, PPO computes the probabilities of the same draws under other weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.policy.network import CandidateMoves


@dataclass(frozen=True, eq=False)
class ScoredPlacement:
    """A placement for which the policy scored every unit on every device."""

    encoding: int
    """Index of the graph encoding that the scores used."""
    pair: Tensor  # [U, D, F]
    context: Tensor  # [U, F]
    mask: Tensor  # [U, D]
    devices: Tensor  # [U] present device of each unit


@dataclass(frozen=True)
class DrawnMove:
    """One draw from the policy's move probabilities."""

    state: int
    """Index of the placement that was current."""
    move: int
    """Unit times number of devices, plus device."""
    log_prob: float
    evaluations: int
    """Evaluations of the search before the one of this draw."""


class SearchTrace:
    """A record that a search writes while it runs, also of evaluations of placements that the policy did not draw."""

    def __init__(self) -> None:
        self.encodings: list[tuple[Tensor, Tensor]] = []
        """Node features `[U, 1, F]` and edge features `[E, 1, F]` of every encoding of the graph."""
        self.states: list[ScoredPlacement] = []
        self.draws: list[DrawnMove] = []
        self.seconds: list[float] = []
        """Penalised seconds of every evaluation."""
        self.was_drawn: list[bool] = []
        """For every evaluation, whether the policy drew its placement."""
        self._drawn = False
        self._proposed: list[bool] = []

    def note_encoding(self, nodes: Tensor, edges: Tensor) -> None:
        """The policy encoded the graph anew from these features."""
        self.encodings.append((nodes, edges))

    def note_scores(self, pair: Float32Array, context: Float32Array, mask: BoolArray, devices: IntArray) -> None:
        """The policy scored a placement; the arrays are copied."""
        copies = (torch.from_numpy(array.copy()) for array in (pair, context, mask, devices))
        self.states.append(ScoredPlacement(len(self.encodings) - 1, *copies))

    def note_draw(self, move: int, log_prob: float) -> None:
        """The search drew a move from the latest scores."""
        before = len(self.seconds) + len(self._proposed)
        self.draws.append(DrawnMove(len(self.states) - 1, move, log_prob, before))
        self._drawn = True

    def note_proposal(self, is_new: bool) -> None:
        """The search proposed a placement; it evaluates new ones in the order of their proposals, and known ones not at all."""
        if is_new:
            self._proposed.append(self._drawn)
        self._drawn = False

    def note_evaluations(self, seconds: Sequence[float]) -> None:
        """The search evaluated all new proposals since the last call."""
        self.seconds.extend(seconds)
        self.was_drawn.extend(self._proposed)
        self._proposed.clear()

    @property
    def moves(self) -> CandidateMoves:
        """Every unit of every scored placement, placements outermost; `rows` are indices of encodings."""
        units = len(self.states[0].devices)
        return CandidateMoves(
            torch.tensor([state.encoding for state in self.states]).repeat_interleave(units),
            torch.arange(units).repeat(len(self.states)),
            torch.cat([state.pair for state in self.states]),
            torch.cat([state.context for state in self.states]),
            torch.cat([state.mask for state in self.states]),
        )

    def repeats(self, num_moves: int) -> Tensor:
        """`[draws, moves]` how often each move had been drawn before from the same scores."""
        counts = torch.zeros(len(self.draws), num_moves)
        earlier: dict[int, list[int]] = {}
        for number, draw in enumerate(self.draws):
            before = earlier.setdefault(draw.state, [])
            if before:
                counts[number] = torch.bincount(torch.tensor(before), minlength=num_moves)
            before.append(draw.move)
        return counts

    def drawn(self, evaluations: int) -> BoolArray:
        """`[evaluations]` true for evaluations of placements that the policy drew."""
        drawn = np.array(self.was_drawn[:evaluations], dtype=np.bool_)
        return np.pad(drawn, (0, evaluations - len(drawn)))

    def best_s(self, start_s: float, evaluations: int) -> FloatArray:
        """`[evaluations + 1]` the least seconds before the first evaluation and after each; constant after a search that ended early."""
        best = np.minimum.accumulate(np.array([start_s, *self.seconds]))[: evaluations + 1]
        return np.pad(best, (0, evaluations + 1 - len(best)), mode="edge")
