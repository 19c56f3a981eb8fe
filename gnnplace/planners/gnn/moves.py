"""Changes of the current placement that the policy's search draws from: of one unit, of a cluster, an exchange, a stretch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.graph.unit_graph import UnitGraph, first_above, grow_cluster
from gnnplace.interruption import interrupts_held
from gnnplace.planners.gnn.known import HashArray, Known, note, nothing_known, placement_hash, recall, unit_hashes
from gnnplace.planners.gnn.odds import MoveOdds, Odds, OddsConfig, draw_pair
from gnnplace.planners.gnn.stretch import StretchTables, rebuild, stretch_tables
from gnnplace.planners.policy_search import PolicySearch
from gnnplace.training.search_trace import SearchTrace

__all__ = ["KINDS", "Candidates", "Moves", "MovesConfig"]


KINDS = ("one unit", "cluster", "exchange", "stretch")
"""Of moves, in the order of `MovesConfig.shares`."""
_CLUSTER, _EXCHANGE, _STRETCH = 1, 2, 3
"""Kinds of moves, as positions in `MovesConfig.shares`; 0 takes one unit."""
_NOT_DRAWN, _NOTHING_MOVES = -1, -2


@dataclass(frozen=True)
class MovesConfig:
    """How moves are drawn; set by measurement on generated graphs."""

    shares: tuple[float, float, float, float] = (0.25, 0.25, 0.25, 0.25)
    """How often, at first, a move takes one unit, takes neighbours on the same device along, exchanges units, rebuilds a stretch."""
    adaptation: float = 0.03
    """How fast the shares follow what succeeds: the weight of one move's outcome."""
    least_share: float = 0.05
    """No kind of move becomes rarer than that, since what fails now may work later."""
    mean_cluster: float = 3.0
    """Mean number of units that a move takes along."""
    max_window: int = 20
    """Half the length of the longest stretch, in ops."""
    pull: float = 1.5
    """How much slower other devices look outside of the stretch."""
    max_idle: int = 300
    """Draws of known placements in a row after which nothing new is expected."""
    odds: OddsConfig = OddsConfig()


@dataclass(frozen=True, eq=False)
class Candidates:
    """What was drawn from one placement."""

    devices: IntArray  # [C, U] of different placements that are not known yet
    kinds: IntArray  # [C]
    hashes: HashArray  # [C]
    log_probs: FloatArray  # [C] of what was drawn from the policy's own odds; NaN where they were not asked
    better_devices: IntArray | None
    """`[U]` a known placement that is better than the current one: back from a detour."""
    better_s: float


class Moves:
    """Draws changes of the current placement, more often those of the kinds that have succeeded.

    The shares of the kinds adapt as in adaptive large neighbourhood search (Ropke and Pisinger 2006, section 3.4).

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.planners.search import Search
    >>> from gnnplace.policy.network import build_policy, policy_inputs
    >>> from gnnplace.sim.example import diamond
    >>> search, alone = Search(diamond(), Budget(40), "example", seed=0), np.array([0, 0, 0, 0])
    >>> asked = PolicySearch(search, policy_inputs(search.problem), build_policy(0), np.random.default_rng(0))
    >>> moves = Moves(asked, MovesConfig(), most=4)
    >>> moves.asked.update(alone)
    >>> moves.note(alone, seconds=6.0)
    >>> drawn = moves.draw(4, current_s=6.0)
    >>> len({tuple(row) for row in [alone, *drawn.devices]})  # the one at hand, and four that are not known
    5
    >>> moves.learn(drawn, search.evaluate_batch(drawn.devices).tolist(), current_s=6.0)
    """

    def __init__(self, policy_search: PolicySearch, config: MovesConfig, most: int) -> None:
        """For at most `most` candidates at a time."""
        problem = policy_search.search.problem
        units, devices = problem.num_units, problem.topology.num_devices
        self.asked = MoveOdds(policy_search, config.odds)
        self._rng, self._config, self._trace = policy_search.rng, config, policy_search.trace
        self._known = nothing_known()
        self._tables = _MoveTables(
            graph=problem.unit_graph,
            unit_bytes=policy_search.inputs.tables.unit_memory_bytes,
            capacity_bytes=problem.topology.memory_bytes.astype(np.float64),
            hashes=unit_hashes(units, devices),
            stretch=stretch_tables(problem),
            first_op=policy_search.inputs.tables.unit_ops[policy_search.inputs.tables.unit_offsets[:-1]],
        )
        self._drawn = _drawn(most, units, most * (config.max_idle + 1))
        self._weights = np.array(config.shares)

    def note(self, devices: IntArray, seconds: float) -> None:
        """The placement `[U]` is known to take so long."""
        value = placement_hash(self._tables.hashes, devices)
        note(self._known, np.array([value], dtype=np.uint64), np.array([seconds]))

    def draw(self, count: int, current_s: float) -> Candidates:
        """Up to `count` candidates, each of a kind that is drawn by its share; fewer where too many draws in a row bring nothing new."""
        shares = np.maximum(self._weights / self._weights.sum(), self._config.least_share)
        config, drawn = self._config, self._drawn
        rule = _Rule(
            np.cumsum(shares), config.mean_cluster, config.max_window, config.pull,
            float(np.exp(-config.odds.repeat_penalty)), count, config.max_idle, current_s,
        )  # fmt: skip
        now = _Now(self._tables, self.asked.odds, rule)
        with interrupts_held():
            found, draws, better_s = _draw(now, self._known, drawn, self._rng)
        if self._trace is not None:
            _write(self._trace, drawn, draws)
        better = drawn.devices[0].copy() if np.isfinite(better_s) else None
        fresh = np.flatnonzero(drawn.is_fresh[:draws])[:found]
        log_probs = np.where(drawn.moves[fresh] >= 0, drawn.log_probs[fresh], np.nan)
        return Candidates(
            drawn.devices[:found].copy(), drawn.kinds[:found].copy(), drawn.hashes[:found].copy(), log_probs, better, better_s
        )  # fmt: skip

    def learn(self, candidates: Candidates, seconds: Sequence[float], current_s: float) -> None:
        """Notes what became of candidates."""
        for kind, after_s in zip(candidates.kinds.tolist(), seconds, strict=True):
            self._weights[kind] += self._config.adaptation * ((after_s < current_s) - self._weights[kind])
        note(self._known, candidates.hashes, np.asarray(seconds))


def _write(trace: SearchTrace, drawn: _Drawn, draws: int) -> None:
    columns = (drawn.moves, drawn.log_probs, drawn.is_fresh)
    for move, log_prob, is_fresh in zip(*(column[:draws].tolist() for column in columns), strict=True):
        if move >= 0:
            trace.drew(move, log_prob)
        if is_fresh:
            trace.proposed()
        else:
            trace.recalled()


class _MoveTables(NamedTuple):
    graph: UnitGraph
    unit_bytes: FloatArray  # [U]
    capacity_bytes: FloatArray  # [D]
    hashes: HashArray  # [U, D]
    stretch: StretchTables
    first_op: IntArray  # [U]


class _Rule(NamedTuple):
    cumulative_shares: FloatArray  # [4]
    mean_cluster: float
    max_window: int
    pull: float
    keep: float
    wanted: int
    max_idle: int
    current_s: float


class _Now(NamedTuple):
    """All that a draw depends on but chance and what is known."""

    tables: _MoveTables
    odds: Odds
    rule: _Rule


class _Drawn(NamedTuple):
    """Candidates, and every draw in its order."""

    devices: IntArray  # [C, U]
    kinds: IntArray  # [C]
    hashes: HashArray  # [C]
    moves: IntArray  # [draws] unit times number of devices, plus device; -1 where the policy's own odds were not asked
    log_probs: FloatArray  # [draws]
    is_fresh: BoolArray  # [draws]
    room: IntArray  # [3, U] scratch


def _drawn(most: int, num_units: int, draws: int) -> _Drawn:
    return _Drawn(
        np.empty((most, num_units), dtype=np.int64),
        np.empty(most, dtype=np.int64),
        np.empty(most, dtype=np.uint64),
        np.empty(draws, dtype=np.int64),
        np.empty(draws),
        np.empty(draws, dtype=np.bool_),
        np.empty((3, num_units), dtype=np.int64),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(now: _Now, known: Known, out: _Drawn, rng: np.random.Generator) -> tuple[int, int, float]:
    """How many candidates and draws there are, and the seconds of a better placement in the first row; infinite where none is."""
    rule, found, draws, idle = now.rule, 0, 0, 0
    while found < rule.wanted and idle < rule.max_idle:
        moved = out.devices[found]
        moved[:] = now.odds.devices
        kind = first_above(rule.cumulative_shares, rng.random() * rule.cumulative_shares[-1])
        move, log_prob = _change(kind, now, out.room, moved, rng)
        if move == _NOTHING_MOVES:
            break
        value = placement_hash(now.tables.hashes, moved)
        before_s = recall(known, value)
        is_fresh = np.isnan(before_s)
        for earlier in range(found):
            is_fresh = is_fresh and out.hashes[earlier] != value
        out.moves[draws], out.log_probs[draws], out.is_fresh[draws] = move, log_prob, is_fresh
        draws += 1
        if is_fresh:
            out.kinds[found], out.hashes[found] = kind, value
            found += 1
            idle = 0
        else:
            idle += 1
            if found == 0 and before_s < rule.current_s:  # walking among equals that are known would never end
                return 0, draws, before_s
    return found, draws, np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def _change(kind: int, now: _Now, room: IntArray, moved: IntArray, rng: np.random.Generator) -> tuple[int, float]:
    """Changes `moved` `[U]`; gives what was drawn from the policy's own odds, and the logarithm of how likely that was."""
    tables, odds, rule = now
    if kind == _STRETCH:
        window = 2 + int(rng.random() * (rule.max_window - 1))
        assignment = rebuild(tables.stretch, moved[tables.stretch.work.unit_of_op], window, rule.pull, rng)
        moved[:] = assignment[tables.first_op]
        return _NOT_DRAWN, 0.0
    table = odds.with_room if kind == _EXCHANGE else odds.table
    unit, device, log_prob = draw_pair(table, rule.keep, rng)
    if unit < 0:
        return _NOTHING_MOVES, 0.0
    count = 1
    room[0, 0] = unit
    if kind == _CLUSTER:
        count = grow_cluster(tables.graph, rule.mean_cluster, odds.devices, rng, room)
    for index in range(count):
        if tables.graph.allowed[room[0, index], device]:
            moved[room[0, index]] = device
    if kind == _EXCHANGE:
        _make_room(unit, device, now, room, moved, rng)
        if not odds.is_roomy:
            return _NOT_DRAWN, 0.0
    return unit * tables.graph.allowed.shape[1] + device, log_prob


@njit(cache=True, nogil=True, error_model="numpy")
def _make_room(unit: int, device: int, now: _Now, room: IntArray, moved: IntArray, rng: np.random.Generator) -> None:
    """Sends units back to where `unit` comes from, drawn by the odds of each going there: as many as make room, but at least one.

    Where memories are full, or loads even, neither way helps alone.
    """
    tables, odds, _ = now
    home, others, count = odds.devices[unit], room[0], 0
    likely, total = odds.with_room.likely, 0.0
    for other in range(len(moved)):
        if odds.devices[other] == device and likely[other, home] > 0.0:
            others[count] = other
            count += 1
            total += likely[other, home]
    missing = odds.peak_bytes[device] + tables.unit_bytes[unit] - tables.capacity_bytes[device]
    while count > 0:
        left, chosen = rng.random() * total, count - 1
        for index in range(count):
            left -= likely[others[index], home]
            if left < 0.0:
                chosen = index
                break
        other = others[chosen]
        others[chosen] = others[count - 1]
        count -= 1
        total -= likely[other, home]
        moved[other] = home
        missing -= tables.unit_bytes[other]
        if missing <= 0.0:
            break
