"""How likely each single move is worth making, by the policy, for one current placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import Timing, empty_timing, refresh
from gnnplace.planners.policy_search import PolicySearch
from gnnplace.policy.features import sweep_features
from gnnplace.policy.pair_features import PAIR_FEATURES, pair_features
from gnnplace.policy.pair_scores import KnownParts, known_parts, pair_scores

__all__ = ["MoveOdds", "Odds", "OddsConfig", "OddsTable", "draw_pair"]


_MEMORY_AFTER, _FITS = PAIR_FEATURES.index("memory_after"), PAIR_FEATURES.index("fits")
_ROOMY = 0.5
"""Share of a device's memory that is in use where there is room."""
_LEAST_TOTAL = 1e-200


@dataclass(frozen=True)
class OddsConfig:
    """How the policy's answers become odds."""

    repeat_penalty: float = 1.0
    """Taken off a move's log odds each time it was tried in vain."""
    encode_every: int = 50
    """Placements that are asked about between two encodings of the graph."""


class OddsTable(NamedTuple):
    """Odds of moves over staying, as multiples of the highest ones."""

    likely: FloatArray  # [U, D] 0 where a unit is, and where it may not go
    by_unit: FloatArray  # [U] sums


class Odds(NamedTuple):
    """What the policy says of one placement; draws make what was drawn less likely.

    >>> placed_twice = OddsTable(np.array([[0.0, 1.0], [0.5, 0.0]]), np.array([1.0, 0.5]))
    >>> odds = Odds(np.array([0, 1]), placed_twice, placed_twice, is_roomy=True, peak_bytes=np.zeros(2))
    >>> unit, device, _ = draw_pair(odds.table, 1.0, np.random.default_rng(0))
    >>> int(odds.devices[unit]) != device
    True
    """

    devices: IntArray  # [U] where the units are
    table: OddsTable
    with_room: OddsTable
    """As if no memory were full: of moves for which other units make room. The table itself where none is."""
    is_roomy: bool
    """No memory is full."""
    peak_bytes: FloatArray  # [D]


class MoveOdds:
    """Odds of every single move, for one current placement.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.planners.search import Search
    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> search = Search(diamond(), Budget(40), "example", seed=0)
    >>> asked = PolicySearch(search, policy_inputs(search.problem), build_policy(0), np.random.default_rng(0))
    >>> odds = MoveOdds(asked, OddsConfig())
    >>> odds.update(np.array([0, 0, 0, 0]))
    >>> odds.odds.table.likely[:, 0].tolist(), float(odds.odds.table.likely[:, 1].max())  # no unit stays; the best move is 1
    ([0.0, 0.0, 0.0, 0.0], 1.0)
    """

    def __init__(self, policy_search: PolicySearch, config: OddsConfig) -> None:
        """Without odds; `update` asks for them."""
        self._problem, self._config = policy_search.search.problem, config
        self._inputs, self._network = policy_search.inputs, policy_search.network
        self._trace = policy_search.trace
        self._units = np.arange(self._problem.num_units)
        self._rows = np.zeros_like(self._units)
        self._first_op = self._inputs.tables.unit_ops[self._inputs.tables.unit_offsets[:-1]]
        self._timing: Timing = empty_timing(self._problem, 1)
        self._parts: KnownParts | None = None
        self._since_encoding = 0
        nothing = OddsTable(np.zeros((0, 0)), np.zeros(0))
        self.odds = Odds(np.zeros(0, dtype=np.int64), nothing, nothing, True, np.zeros(0))

    def update(self, assignment: IntArray) -> None:
        """Asks the policy anew, for an assignment `[N]` whose evaluation is already counted."""
        refresh(self._problem, self._inputs.tables, self._timing, 0, assignment)
        parts = self._encoded()
        devices = assignment[self._first_op]
        pair, context, mask = pair_features(
            self._inputs.features, self._inputs.tables, self._timing, self._rows, self._units,
            self._problem.topology.memory_bytes,
        )  # fmt: skip
        if self._trace is not None:
            self._trace.asked(pair, context, mask, devices)
        table = with_room = _table(pair_scores(parts, pair, context), mask, devices)
        is_roomy = bool(pair[:, :, _FITS].all())
        if not is_roomy:
            pair[:, :, _FITS] = 1.0
            pair[:, :, _MEMORY_AFTER] = np.minimum(pair[:, :, _MEMORY_AFTER], _ROOMY)
            with_room = _table(pair_scores(parts, pair, context), mask, devices)
        self.odds = Odds(devices, table, with_room, is_roomy, self._timing.peak_memory_bytes[0])

    def _encoded(self) -> KnownParts:
        if self._parts is None or self._since_encoding >= self._config.encode_every:
            nodes, edges = sweep_features(self._inputs.features, self._inputs.tables, self._timing)
            seen = torch.from_numpy(nodes), torch.from_numpy(edges)
            if self._trace is not None:
                self._trace.encoded(*seen)
            with torch.no_grad():
                embeddings = self._network.encode(self._inputs, *seen)
                self._parts = known_parts(self._network, self._inputs, embeddings)
            self._since_encoding = 0
        self._since_encoding += 1
        return self._parts


@njit(cache=True, nogil=True, error_model="numpy")
def draw_pair(table: OddsTable, keep: float, rng: np.random.Generator) -> tuple[int, int, float]:
    """A unit, another device for it and the logarithm of how likely that was; a unit of -1 when nothing can move.

    What is drawn becomes less likely by the factor `keep`.

    >>> table = OddsTable(np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([0.0, 1.0]))
    >>> draw_pair(table, 0.5, np.random.default_rng(0)), table.by_unit.tolist()
    ((1, 1, 0.0), [0.0, 0.5])
    """
    total = table.by_unit.sum()
    if total < _LEAST_TOTAL:
        highest = table.likely.max() if table.likely.size else 0.0
        if highest == 0.0:
            return -1, -1, 0.0
        for unit in range(len(table.by_unit)):
            table.likely[unit] /= highest
            table.by_unit[unit] = table.likely[unit].sum()
        total = table.by_unit.sum()
    left, unit = rng.random() * total, -1
    for candidate in range(len(table.by_unit)):
        if table.by_unit[candidate] > 0.0:
            unit = candidate
            if left < table.by_unit[candidate]:
                break
            left -= table.by_unit[candidate]
    device = -1
    for candidate in range(table.likely.shape[1]):
        if table.likely[unit, candidate] > 0.0:
            device = candidate
            if left < table.likely[unit, candidate]:
                break
            left -= table.likely[unit, candidate]
    log_prob = np.log(table.likely[unit, device] / total)
    table.likely[unit, device] *= keep
    table.by_unit[unit] = table.likely[unit].sum()
    return unit, device, log_prob


@njit(cache=True, nogil=True)
def _table(scores: FloatArray, mask: BoolArray, devices: IntArray) -> OddsTable:
    """Odds from logits `[U, D]`."""
    likely = np.full(scores.shape, -np.inf)
    highest = -np.inf
    for unit in range(len(scores)):
        for device in range(scores.shape[1]):
            if mask[unit, device] and device != devices[unit]:
                likely[unit, device] = scores[unit, device] - scores[unit, devices[unit]]
                highest = max(highest, likely[unit, device])
    by_unit = np.zeros(len(scores))
    for unit in range(len(scores)):
        for device in range(scores.shape[1]):
            if likely[unit, device] == -np.inf:
                likely[unit, device] = 0.0
            else:
                likely[unit, device] = np.exp(likely[unit, device] - highest)
                by_unit[unit] += likely[unit, device]
    return OddsTable(likely, by_unit)
