"""Odds of every single move of the current placement, from the scores of the policy; draws from them are compiled."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import Timing
from gnnplace.planners.gnn.builds import LEAST_SAMPLES, sample_budget
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, Decider, empty_trace
from gnnplace.planners.gnn.decision_tables import (
    DecisionTables,
    Reference,
    decision_tables,
    no_reference,
    write_reference,
)
from gnnplace.planners.search import Search
from gnnplace.policy.checkpoint import Policy
from gnnplace.policy.decisions import DecisionParts
from gnnplace.policy.features import sweep_features
from gnnplace.policy.network import PolicyInputs, PolicyParts
from gnnplace.policy.pair_features import PAIR, budget_feature, pair_features
from gnnplace.policy.pair_scores import pair_scores
from gnnplace.training.search_trace import SearchTrace

ROOMY = 0.5
"""Share of a device's memory in use that stands for enough room."""
_LEAST_TOTAL = 1e-200
"""Sum of odds below which a table is scaled up."""


@dataclass(frozen=True, eq=False)
class PolicySearch:
    """A search and the policy that guides it."""

    search: Search
    inputs: PolicyInputs
    network: Policy
    rng: np.random.Generator
    trace: SearchTrace | None = None
    """Record of the policy's inputs and moves, for learning from them; None records nothing."""


@dataclass(frozen=True)
class OddsConfig:
    """Use of the policy's scores as odds."""

    repeat_penalty: float = 1.0
    """Reduction of a move's log odds with every draw of it from the same scores."""
    encode_every: int = 50
    """Placements scored with one encoding of the graph."""


class OddsTable(NamedTuple):
    """Odds of moving over staying, as multiples of the highest odds."""

    likely: FloatArray  # [U, D] 0 on the present device, and where the unit may not go
    by_unit: FloatArray  # [U] sums


class Odds(NamedTuple):
    """Odds of all moves of one placement; every draw makes the drawn move less likely."""

    devices: IntArray  # [U] present device of each unit
    table: OddsTable
    with_room: OddsTable
    """Odds as if no memory were full, for moves with which other units make room; `table` itself where no memory is full."""
    is_roomy: bool
    """No memory is full."""
    peak_bytes: FloatArray  # [D]


class MoveOdds:
    """Odds of every single move, kept for one current placement."""

    def __init__(self, policy_search: PolicySearch, config: OddsConfig) -> None:
        """Without odds until `update`."""
        self._problem, self._config = policy_search.search.problem, config
        self._inputs, self._network = policy_search.inputs, policy_search.network
        self._trace = policy_search.trace
        self._units = np.arange(self._problem.num_units)
        self._rows = np.zeros_like(self._units)
        self._parts: PolicyParts | None = None
        self._since_encoding = 0
        nothing = OddsTable(np.zeros((0, 0)), np.zeros(0))
        self.odds = Odds(np.zeros(0, dtype=np.int64), nothing, nothing, True, np.zeros(0))

    @property
    def decider(self) -> Decider:
        """The inputs for deciding units again, for the placement that was scored last."""
        assert self._parts is not None
        return self.new_decider(self._parts.decisions)

    def new_decider(self, parts: DecisionParts) -> Decider:
        """The same from these parts of the policy."""
        tables, reference = self.decision_arrays
        choice = Choice(1.0, sample_budget(LEAST_SAMPLES), NO_TEACHER)
        return Decider(tables, parts, reference, choice, empty_trace(0, len(reference.load)))

    @cached_property
    def decision_arrays(self) -> tuple[DecisionTables, Reference]:
        """Tables of the problem, and the reference that `update` writes."""
        tables = decision_tables(self._problem)
        return tables, no_reference(tables)

    def update(self, devices: IntArray, timing: Timing, evaluations_left: float = np.inf) -> None:
        """Scores a placement with the units' devices `[U]`, whose schedule is the first of `timing`."""
        parts = self._encoded(timing).moves
        pair, context, mask = pair_features(
            self._inputs.features, self._inputs.tables, timing, self._rows, self._units,
            self._problem.topology.memory_bytes, budget_feature(evaluations_left, self._problem.num_moves),
        )  # fmt: skip
        if self._network.decides:
            write_reference(self.decision_arrays[1], self._inputs.tables.unit_of_op, devices, timing, pair)
        if self._trace is not None:
            self._trace.note_scores(pair, context, mask, devices)
        table = with_room = _table(pair_scores(parts, pair, context), mask, devices)
        is_roomy = bool(pair[:, :, PAIR.fits].all())
        if not is_roomy:
            pair[:, :, PAIR.fits] = 1.0
            pair[:, :, PAIR.memory_after] = np.minimum(pair[:, :, PAIR.memory_after], ROOMY)
            with_room = _table(pair_scores(parts, pair, context), mask, devices)
        self.odds = Odds(devices, table, with_room, is_roomy, timing.peak_memory_bytes[0].copy())

    def _encoded(self, timing: Timing) -> PolicyParts:
        if self._parts is None or self._since_encoding >= self._config.encode_every:
            self._parts, self._since_encoding = self.encode(timing), 0
        self._since_encoding += 1
        return self._parts

    def encode(self, timing: Timing) -> PolicyParts:
        """The policy for compiled code, from the first schedule of `timing`."""
        nodes, edges = sweep_features(self._inputs.features, self._inputs.tables, timing)
        seen = torch.from_numpy(nodes), torch.from_numpy(edges)
        if self._trace is not None:
            self._trace.note_encoding(*seen)
        with torch.no_grad():
            return self._network.parts(self._inputs, *seen)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_pair(table: OddsTable, keep: float, rng: np.random.Generator) -> tuple[int, int, float]:
    """A unit, another device for it and the log probability of this draw; a unit of -1 when nothing can move.

    The draw scales the odds of the drawn move by the factor `keep`.
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
    unit, left = drawn_index(table.by_unit, rng.random() * total)
    device, _ = drawn_index(table.likely[unit], left)
    log_prob = np.log(table.likely[unit, device] / total)
    table.likely[unit, device] *= keep
    table.by_unit[unit] = table.likely[unit].sum()
    return unit, device, log_prob


@njit(cache=True, nogil=True, error_model="numpy")
def drawn_index(weights: FloatArray, left: float) -> tuple[int, float]:
    """The index at which cumulative weights exceed `left`, else the last positive one, and the rest of `left` before it."""
    drawn = -1
    for index in range(len(weights)):
        if weights[index] > 0.0:
            drawn = index
            if left < weights[index]:
                break
            left -= weights[index]
    return drawn, left


def _table(scores: FloatArray, mask: BoolArray, devices: IntArray) -> OddsTable:
    """Odds from logits `[U, D]`."""
    table = empty_table(scores.shape)
    write_odds(scores, mask, devices, table)
    return table


def empty_table(shape: tuple[int, int]) -> OddsTable:
    """A table for `[U, D]` odds."""
    return OddsTable(np.zeros(shape), np.zeros(shape[0]))


@njit(cache=True, nogil=True)
def write_odds(scores: FloatArray, mask: BoolArray, devices: IntArray, table: OddsTable) -> None:
    """Writes the odds that follow from logits `[U, D]`."""
    likely, by_unit = table.likely, table.by_unit
    likely[:], by_unit[:] = -np.inf, 0.0
    highest = -np.inf
    for unit in range(len(scores)):
        for device in range(scores.shape[1]):
            if mask[unit, device] and device != devices[unit]:
                likely[unit, device] = scores[unit, device] - scores[unit, devices[unit]]
                highest = max(highest, likely[unit, device])
    for unit in range(len(scores)):
        for device in range(scores.shape[1]):
            if likely[unit, device] == -np.inf:
                likely[unit, device] = 0.0
            else:
                likely[unit, device] = np.exp(likely[unit, device] - highest)
                by_unit[unit] += likely[unit, device]
