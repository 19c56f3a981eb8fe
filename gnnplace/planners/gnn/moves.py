"""Proposals of the guided search: moves of one unit, of a cluster, exchanges, rebuilt stretches, and units decided anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.typed import Dict
from numpy.typing import NDArray

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.graph.units import UnitGraph, draw_region, first_above, grow_cluster
from gnnplace.interruption import deferred_interrupts
from gnnplace.planners.gnn.deciding import Choice, Decider, decide
from gnnplace.planners.gnn.odds import MoveOdds, Odds, OddsConfig, PolicySearch, draw_pair, drawn_index
from gnnplace.planners.gnn.stretch import PULL, StretchTables, rebuild, stretch_tables

HashArray = NDArray[np.uint64]
KnownSeconds = Any
"""A Numba dictionary from the hash of a placement to its seconds."""

KINDS = ("one unit", "cluster", "exchange", "stretch", "revision")
"""Kinds of moves, in the order of `MovesConfig.shares`."""
_CLUSTER, _EXCHANGE, _STRETCH, _REVISION = 1, 2, 3, 4  # positions in `KINDS`
_NOT_DRAWN, _NOTHING_MOVES = -1, -2


@dataclass(frozen=True)
class MovesConfig:
    """Distribution of the moves; the defaults were measured on generated graphs."""

    shares: tuple[float, float, float, float, float] = (0.25, 0.25, 0.25, 0.25, 0.25)
    """Initial weight of each kind: one unit; a unit with neighbours on the same device; exchanged units; a stretch rebuilt by list
    scheduling; units that the policy decides anew, which only policies do that can build schedules."""
    adaptation: float = 0.03
    """Weight of one move's outcome in the share of its kind."""
    least_share: float = 0.05
    """Least share of every kind, since a kind that fails now may succeed later."""
    costs: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 4.0, 8.0)
    """Relative seconds of one proposal of each kind with its evaluation. With policies that can build schedules, they apply only where
    evaluations are many."""
    mean_cluster: float = 3.0
    """Mean number of units in a cluster."""
    max_window: int = 20
    """Half of the longest stretch, in ops."""
    pull: float = PULL
    """Factor by which other devices look slower outside of the stretch."""
    region: tuple[int, int] = (2, 40)
    """Fewest and most units that are decided anew, uniform in the logarithm: consecutive in topological order, or connected."""
    whole_share: float = 0.4
    """Share of revisions that decide all units anew."""
    temperatures: tuple[float, float] = (0.3, 1.0)
    """Least and highest temperature of the scores in a revision, uniform in the logarithm."""
    max_idle: int = 300
    """Consecutive draws of known placements after which the search expects no new ones."""
    odds: OddsConfig = OddsConfig()


@dataclass(frozen=True, eq=False)
class Candidates:
    """Proposals drawn from one placement."""

    devices: IntArray  # [C, U] distinct placements that are not known yet
    kinds: IntArray  # [C]
    hashes: HashArray  # [C]
    log_probs: FloatArray  # [C] log probability of the move in the policy's odds; NaN for moves drawn otherwise
    better_devices: IntArray | None
    """`[U]` a known placement that is better than the current one, when the search returns from a detour."""
    better_s: float

    def rows(self, rows: IntArray) -> Candidates:
        """The candidates in these rows."""
        return Candidates(self.devices[rows], self.kinds[rows], self.hashes[rows], self.log_probs[rows], None, np.inf)


class Moves:
    """Draws changes of the current placement, more often of the kinds that have succeeded.

    The shares of the kinds adapt as in adaptive large neighbourhood search (Ropke and Pisinger 2006, section 3.4).
    """

    def __init__(self, policy_search: PolicySearch, config: MovesConfig, most: int, thrift: float = 0.0) -> None:
        """Draws at most `most` candidates at a time; `thrift`, 0 to 1, says how much the costs of kinds count."""
        problem, tables = policy_search.search.problem, policy_search.inputs.tables
        units, devices = problem.num_units, problem.topology.num_devices
        self.move_odds = MoveOdds(policy_search, config.odds)
        self._rng, self._config, self._trace = policy_search.rng, config, policy_search.trace
        self.known = Dict.empty(types.uint64, types.float64)
        self.tables = MoveTables(
            graph=problem.unit_graph,
            unit_bytes=tables.unit_memory_bytes,
            capacity_bytes=problem.topology.memory_bytes.astype(np.float64),
            hashes=unit_hashes(units, devices),
            stretch=stretch_tables(problem),
            first_op=problem.unit_devices(np.arange(problem.graph.num_ops)),
        )
        draws = most * (config.max_idle + 1)
        self.drawn = Drawn(
            np.empty((most, units), dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most, dtype=np.uint64),
            np.empty(draws, dtype=np.int64), np.empty(draws), np.empty(draws, dtype=np.bool_),
            np.empty((3, units), dtype=np.int64),
        )  # fmt: skip
        self.num_kinds = len(KINDS) if policy_search.network.decides else _REVISION
        self.weights = np.array(config.shares[: self.num_kinds])
        self.costs = np.array(config.costs[: self.num_kinds]) ** (thrift if policy_search.network.decides else 0.0)

    def note(self, devices: IntArray, seconds: float) -> None:
        """Notes the seconds of a placement `[U]`."""
        hashes = np.array([placement_hash(self.tables.hashes, devices)], dtype=np.uint64)
        _note_seconds(self.known, hashes, np.array([seconds]))

    def draw(self, count: int, current_s: float) -> Candidates:
        """Up to `count` candidates, each of a kind drawn by its share; fewer after too many draws of known placements."""
        shares = kind_shares(self.weights, self.costs, self._config.least_share)
        config, drawn, keep = self._config, self.drawn, float(np.exp(-self._config.odds.repeat_penalty))
        now = Now(
            self.tables, self.move_odds.odds, self.move_odds.decider, np.cumsum(shares), config.mean_cluster,
            config.max_window, config.pull, revision_rules(config), keep, count, config.max_idle, current_s,
        )  # fmt: skip
        with deferred_interrupts():
            found, draws, better_s = draw_candidates(now, self.known, drawn, self._rng)
        if self._trace is not None:
            columns = (drawn.moves, drawn.log_probs, drawn.is_fresh)
            for move, log_prob, is_fresh in zip(*(column[:draws].tolist() for column in columns), strict=True):
                if move >= 0:
                    self._trace.note_draw(move, log_prob)
                self._trace.note_proposal(is_fresh)
        better = drawn.devices[0].copy() if np.isfinite(better_s) else None
        fresh = np.flatnonzero(drawn.is_fresh[:draws])[:found]
        log_probs = np.where(drawn.moves[fresh] >= 0, drawn.log_probs[fresh], np.nan)
        return Candidates(
            drawn.devices[:found].copy(), drawn.kinds[:found].copy(), drawn.hashes[:found].copy(), log_probs, better, better_s
        )  # fmt: skip

    def learn(self, candidates: Candidates, seconds: Sequence[float], current_s: float) -> None:
        """Notes the seconds of candidates, and adapts the shares of their kinds."""
        if self._trace is not None:
            self._trace.note_evaluations(seconds)
        for kind, after_s in zip(candidates.kinds.tolist(), seconds, strict=True):
            self.weights[kind] += self._config.adaptation * ((after_s < current_s) - self.weights[kind])
        _note_seconds(self.known, candidates.hashes, np.asarray(seconds))


def unit_hashes(num_units: int, num_devices: int) -> HashArray:
    """`[U, D]` random numbers, always the same; a placement's hash is their exclusive or (Zobrist 1970)."""
    return np.random.default_rng(0).integers(2**64, size=(num_units, num_devices), dtype=np.uint64)


@njit(cache=True, nogil=True)
def placement_hash(hashes: HashArray, devices: IntArray) -> np.uint64:
    """Hash of the placement with the units' devices `[U]`."""
    value = np.uint64(0)
    for unit in range(len(devices)):
        value ^= hashes[unit, devices[unit]]
    return value


@njit(cache=True, nogil=True)
def _note_seconds(known: KnownSeconds, hashes: HashArray, seconds: FloatArray) -> None:
    for entry in range(len(hashes)):
        known[hashes[entry]] = seconds[entry]


class MoveTables(NamedTuple):
    """Arrays of one problem that moves are drawn from."""

    graph: UnitGraph
    unit_bytes: FloatArray  # [U]
    capacity_bytes: FloatArray  # [D]
    hashes: HashArray  # [U, D]
    stretch: StretchTables
    first_op: IntArray  # [U]


class RevisionRules(NamedTuple):
    """See `MovesConfig`."""

    log_region: tuple[float, float]
    whole_share: float
    log_temperatures: tuple[float, float]


def revision_rules(config: MovesConfig) -> RevisionRules:
    """The rules for compiled code."""
    (fewest, most), (least, highest) = config.region, config.temperatures
    return RevisionRules((math.log(fewest), math.log(most)), config.whole_share, (math.log(least), math.log(highest)))


class Now(NamedTuple):
    """Inputs of a draw, except random numbers and known placements."""

    tables: MoveTables
    odds: Odds
    decider: Decider
    cumulative_shares: FloatArray  # [K]
    mean_cluster: float
    max_window: int
    pull: float
    revisions: RevisionRules
    keep: float
    wanted: int
    max_idle: int
    current_s: float


@njit(cache=True, nogil=True, error_model="numpy")
def kind_shares(weights: FloatArray, costs: FloatArray, least_share: float) -> FloatArray:
    """`[K]` the share of each kind by its success, relative to its cost; the least share too."""
    worth = weights / costs
    shares: FloatArray = np.maximum(worth / worth.sum(), least_share / costs)
    return shares


class Drawn(NamedTuple):
    """Candidates, and every draw in its order."""

    devices: IntArray  # [C, U]
    kinds: IntArray  # [C]
    hashes: HashArray  # [C]
    moves: IntArray  # [draws] unit times number of devices, plus device; -1 for moves not drawn from the policy's odds
    log_probs: FloatArray  # [draws]
    is_fresh: BoolArray  # [draws]
    scratch: IntArray  # [3, U]


@njit(cache=True, nogil=True, error_model="numpy")
def draw_candidates(now: Now, known: KnownSeconds, out: Drawn, rng: np.random.Generator) -> tuple[int, int, float]:
    """Number of candidates, number of draws, and the seconds of a better known placement in the first row (infinite: there is none)."""
    found, draws, idle = 0, 0, 0
    while found < now.wanted and idle < now.max_idle:
        moved = out.devices[found]
        moved[:] = now.odds.devices
        kind = first_above(now.cumulative_shares, rng.random() * now.cumulative_shares[-1])
        move, log_prob = _change(kind, now, out.scratch, moved, rng)
        if move == _NOTHING_MOVES:
            break
        value = placement_hash(now.tables.hashes, moved)
        before_s = float(known[value]) if value in known else np.nan
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
            if found == 0 and before_s < now.current_s:  # moves among equal known placements would never end
                return 0, draws, before_s
    return found, draws, np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def _change(kind: int, now: Now, scratch: IntArray, moved: IntArray, rng: np.random.Generator) -> tuple[int, float]:
    """Changes `moved` `[U]`; gives the move that was drawn from the policy's odds, and its log probability."""
    tables, odds = now.tables, now.odds
    if kind == _STRETCH:
        window = 2 + int(rng.random() * (now.max_window - 1))
        assignment = rebuild(tables.stretch, moved[tables.stretch.work.unit_of_op], window, now.pull, rng)
        moved[:] = assignment[tables.first_op]
        return _NOT_DRAWN, 0.0
    if kind == _REVISION:
        _revise(now, scratch[0], moved, rng)
        return _NOT_DRAWN, 0.0
    table = odds.with_room if kind == _EXCHANGE else odds.table
    unit, device, log_prob = draw_pair(table, now.keep, rng)
    if unit < 0:
        return _NOTHING_MOVES, 0.0
    count = 1
    scratch[0, 0] = unit
    if kind == _CLUSTER:
        count = grow_cluster(tables.graph, now.mean_cluster, odds.devices, rng, scratch)
    for index in range(count):
        if tables.graph.allowed[scratch[0, index], device]:
            moved[scratch[0, index]] = device
    if kind == _EXCHANGE:
        _make_room(unit, device, now, scratch, moved, rng)
        if not odds.is_roomy:
            return _NOT_DRAWN, 0.0
    return unit * tables.graph.allowed.shape[1] + device, log_prob


@njit(cache=True, nogil=True, error_model="numpy")
def _revise(now: Now, border: IntArray, moved: IntArray, rng: np.random.Generator) -> None:
    """Decides all units anew, or those around one that is drawn by the odds of its moves or, as often, from all units."""
    decider, rules, by_unit = now.decider, now.revisions, now.odds.table.by_unit
    free, (low, high) = decider.reference.free, rules.log_temperatures
    choice = Choice(np.exp(low + rng.random() * (high - low)), decider.choice.budget, decider.choice.teacher)
    free[:] = True
    if rng.random() >= rules.whole_share:
        low, high = rules.log_region
        size = int(np.exp(low + rng.random() * (high - low)))
        total, first = by_unit.sum(), int(rng.random() * len(free))
        if total > 0.0 and rng.random() < 0.5:
            first, _ = drawn_index(by_unit, rng.random() * total)
        draw_region(now.tables.graph, first, size, free, border, rng)
    decided = decide(decider.tables, decider.reference, decider.parts, choice, decider.untraced, rng)
    moved[:] = decided.devices


@njit(cache=True, nogil=True, error_model="numpy")
def _make_room(unit: int, device: int, now: Now, scratch: IntArray, moved: IntArray, rng: np.random.Generator) -> None:
    """Sends units from `device` to the present device of `unit`, drawn by their odds: enough to make room, but at least one.

    Where memories are full, or loads are even, a move in one direction alone does not help.
    """
    tables, odds = now.tables, now.odds
    home, others, count = odds.devices[unit], scratch[0], 0
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
