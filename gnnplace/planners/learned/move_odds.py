"""How likely each single move is worth making, by the policy, for one current placement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.timing import Timing, empty_timing, refresh
from gnnplace.planners.learned.policy_search import PolicySearch
from gnnplace.policy.features import Float32Array, sweep_features
from gnnplace.policy.network import Questions
from gnnplace.policy.pair_features import PAIR_FEATURES, pair_features

__all__ = ["MoveOdds", "OddsConfig"]

_MEMORY_AFTER, _FITS = PAIR_FEATURES.index("memory_after"), PAIR_FEATURES.index("fits")
_ROOMY = 0.5
"""Share of a device's memory that is in use where there is room."""


@dataclass(frozen=True)
class OddsConfig:
    """How the policy's answers become odds."""

    repeat_penalty: float = 1.0
    """Taken off a move's log odds each time it was tried in vain."""
    encode_every: int = 50
    """Placements that are asked about between two encodings of the graph."""


class MoveOdds:
    """Log odds of every single move over staying, for one current placement."""

    def __init__(self, policy_search: PolicySearch, config: OddsConfig) -> None:
        """Without odds; `update` asks for them."""
        self._problem, self._config = policy_search.search.problem, config
        self._inputs, self._network = policy_search.inputs, policy_search.network
        self._trace = policy_search.trace
        self._units = np.arange(self._problem.num_units)
        self._first_op = self._inputs.tables.unit_ops[self._inputs.tables.unit_offsets[:-1]]
        self._timing: Timing = empty_timing(self._problem, 1)
        self._embeddings: torch.Tensor | None = None
        self._since_encoding = 0
        self.devices: IntArray = np.zeros(self._problem.num_units, dtype=np.int64)
        """`[U]` where the units are."""
        self.log_odds: FloatArray = np.zeros((0, 0))
        """`[U, D]`; minus infinity where a unit is, and where it may not go."""
        self.log_odds_with_room: FloatArray = np.zeros((0, 0))
        """The same as if no memory were full: of moves for which other units make room."""

    def update(self, assignment: IntArray) -> None:
        """Asks the policy anew, for an assignment `[N]` whose evaluation is already counted."""
        refresh(self._problem, self._inputs.tables, self._timing, 0, assignment)
        self._encode()
        self.devices = assignment[self._first_op]
        rows, capacity = np.zeros_like(self._units), self._problem.topology.memory_bytes
        pair, context, mask = pair_features(
            self._inputs.features, self._inputs.tables, self._timing, rows, self._units, capacity
        )
        seen = torch.from_numpy(context), torch.from_numpy(mask)
        if self._trace is not None:
            self._trace.asked(pair, *seen, self.devices)
        self.log_odds = self._answer(pair, *seen)
        self.log_odds_with_room = self.log_odds
        if not pair[:, :, _FITS].all():
            pair[:, :, _FITS] = 1.0
            pair[:, :, _MEMORY_AFTER] = np.minimum(pair[:, :, _MEMORY_AFTER], _ROOMY)
            self.log_odds_with_room = self._answer(pair, *seen)

    def draw(self, rng: np.random.Generator, with_room: bool = False) -> tuple[int, int] | None:
        """A unit and another device for it; each draw makes the same one less likely. None when nothing can move."""
        log_odds = self.log_odds_with_room if with_room else self.log_odds
        highest = log_odds.max(initial=-np.inf)
        if highest == -np.inf:
            return None
        total = np.cumsum(np.exp(log_odds - highest))
        move = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        unit, device = divmod(min(move, total.size - 1), log_odds.shape[1])
        if self._trace is not None and log_odds is self.log_odds:
            log_prob = log_odds[unit, device] - highest - np.log(total[-1])
            self._trace.drew(unit * log_odds.shape[1] + device, float(log_prob))
        log_odds[unit, device] -= self._config.repeat_penalty
        return unit, device

    def missing_bytes(self, unit: int, device: int) -> float:
        """What a device lacks to take a unit in, by weights and the present peak; 0 or less where it fits."""
        tables, capacity = self._inputs.tables, self._problem.topology.memory_bytes
        peak = self._timing.peak_memory_bytes[0, device]
        return float(peak + tables.unit_memory_bytes[unit] - capacity[device])

    def _encode(self) -> None:
        if self._embeddings is None or self._since_encoding >= self._config.encode_every:
            nodes, edges = sweep_features(self._inputs.features, self._inputs.tables, self._timing)
            seen = torch.from_numpy(nodes), torch.from_numpy(edges)
            if self._trace is not None:
                self._trace.encoded(*seen)
            with torch.no_grad():
                self._embeddings = self._network.encode(self._inputs, *seen)
            self._since_encoding = 0
        self._since_encoding += 1

    def _answer(self, pair: Float32Array, context: torch.Tensor, mask: torch.Tensor) -> FloatArray:
        rows, units = torch.zeros(len(pair), dtype=torch.int64), torch.from_numpy(self._units)
        assert self._embeddings is not None
        with torch.no_grad():
            questions = Questions(rows, units, torch.from_numpy(pair), context, mask)
            logits = self._network.logits(self._inputs, self._embeddings, questions).numpy().astype(np.float64)
        log_odds: FloatArray = logits - logits[self._units, self.devices][:, None]
        log_odds[self._units, self.devices] = -np.inf
        return log_odds
