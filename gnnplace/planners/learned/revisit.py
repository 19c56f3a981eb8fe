"""A local search in which the policy says which units are worth revisiting and where they may go.

One move at a time is drawn from the policy's odds of moving over staying, over all units at once; it moves one unit, a cluster of
neighbours, or rebuilds a stretch of the placement. Acceptance is that of simulated annealing, at low temperatures.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.timing import Timing, empty_timing, refresh
from gnnplace.planners.learned.constructions import rebuild
from gnnplace.planners.learned.policy_search import CountedRuntime, PolicySearch, used_share
from gnnplace.planners.search import Search
from gnnplace.policy.features import sweep_features
from gnnplace.policy.network import PolicyInputs, Questions
from gnnplace.policy.pair_features import pair_features

__all__ = ["MoveOdds", "RevisitConfig", "revisit"]


@dataclass(frozen=True)
class RevisitConfig:
    """How moves are drawn and accepted; set by measurement on generated graphs."""

    move_shares: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)
    """How often, at first, a move takes one unit, takes neighbours on the same device along, swaps two units, or rebuilds a stretch."""
    adaptation: float = 0.03
    """How fast the shares follow what succeeds: the weight of one move's outcome."""
    least_share: float = 0.05
    """No kind of move becomes rarer than that, since what fails now may work later."""
    mean_cluster: float = 3.0
    """Mean number of units in a move with neighbours."""
    max_window: int = 20
    """Half the length of the longest stretch, in ops."""
    pull: float = 1.5
    """How much slower other devices look outside of the stretch."""
    temperature: float = 1.0
    """Divides the policy's log odds: larger draws more evenly."""
    repeat_penalty: float = 1.0
    """Taken off a move's log odds each time it was tried in vain."""
    encode_every: int = 50
    """Accepted moves between two encodings of the graph."""
    first_acceptance: tuple[float, float] = (1e-3, 0.2)
    """Chance that a typical worsening move is accepted at the start, where `evaluations_per_move` are few and where they are
    many; in between it rises geometrically. Typical is the median of the last worsening moves."""
    evaluations_per_move: tuple[float, float] = (0.5, 5.0)
    """Evaluations for each (unit, other device) there is: few are best spent on going down, many let a search climb first."""
    last_acceptance: float = 1e-3
    """The same at the end; the temperature falls geometrically in the share of the budget."""
    remembered_rises: int = 64
    """How many worsening moves that median is of."""
    screened: int = 16
    """Moves that the estimator ranks before one is executed, when evaluations are measured."""
    max_idle: int = 300
    """Draws of known placements in a row after which nothing new is expected."""


class MoveOdds:
    """Log odds of every single move over staying, for one current placement."""

    def __init__(self, policy_search: PolicySearch, config: RevisitConfig) -> None:
        """Without odds; `update` asks for them."""
        self._problem, self._config = policy_search.search.problem, config
        self._inputs, self._network = policy_search.inputs, policy_search.network
        self._units = np.arange(self._problem.num_units)
        self._first_op = self._inputs.tables.unit_ops[self._inputs.tables.unit_offsets[:-1]]
        self._timing: Timing = empty_timing(self._problem, 1)
        self._embeddings: torch.Tensor | None = None
        self._since_encoding = 0
        self.devices: IntArray = np.zeros(self._problem.num_units, dtype=np.int64)
        self.log_odds: FloatArray = np.zeros((0, 0))

    def update(self, assignment: IntArray) -> None:
        """Asks the policy anew, for an assignment `[N]` whose evaluation is already counted."""
        refresh(self._problem, self._inputs.tables, self._timing, 0, assignment)
        rows, inputs = np.zeros_like(self._units), self._inputs
        if self._embeddings is None or self._since_encoding >= self._config.encode_every:
            nodes, edges = sweep_features(inputs.features, inputs.tables, self._timing)
            with torch.no_grad():
                self._embeddings = self._network.encode(inputs, torch.from_numpy(nodes), torch.from_numpy(edges))
            self._since_encoding = 0
        self._since_encoding += 1
        capacity = self._problem.topology.memory_bytes
        seen = pair_features(inputs.features, inputs.tables, self._timing, rows, self._units, capacity)
        with torch.no_grad():
            questions = Questions(*(torch.from_numpy(array) for array in (rows, self._units, *seen)))
            logits = self._network.answer(inputs, self._embeddings, questions)[0].numpy().astype(np.float64)
        self.devices = assignment[self._first_op]
        self.log_odds = (logits - logits[self._units, self.devices][:, None]) / self._config.temperature
        self.log_odds[self._units, self.devices] = -np.inf

    def draw(self, rng: np.random.Generator) -> tuple[int, int] | None:
        """A unit and another device for it; each draw makes the same one less likely. None when nothing can move."""
        highest = self.log_odds.max(initial=-np.inf)
        if highest == -np.inf:
            return None
        total = np.cumsum(np.exp(self.log_odds - highest))
        move = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        unit, device = divmod(min(move, total.size - 1), self.log_odds.shape[1])
        self.log_odds[unit, device] -= self._config.repeat_penalty
        return unit, device


def revisit(
    policy_search: PolicySearch,
    start: tuple[IntArray, float],
    end_share: float,
    config: RevisitConfig,
    limit: int | None = None,
) -> None:
    """Searches from `start` (an assignment `[N]` and its seconds) until `end_share` of the budget, or `limit` evaluations, are gone."""
    search, rng = policy_search.search, policy_search.rng
    runtime = CountedRuntime(search, end_share)
    moves = _Moves(policy_search, config)
    (current, value), known, idle = start, _Known(), 0
    known.note(current, value)
    moves.odds.update(current)
    rises: deque[float] = deque(maxlen=config.remembered_rises)
    worst_s = search.problem.worst_case_s
    clock = _Clock(search, end_share, limit)
    hot, cold = -math.log(_first_acceptance(search, clock, config)), -math.log(config.last_acceptance)
    while (done := clock.share_done()) < 1.0 and idle < config.max_idle:
        candidate = moves.propose(current, 1 if runtime.lookahead_is_exact else config.screened)
        if candidate is None:
            return
        before = known.recall(candidate)
        if before is not None:
            idle += 1
            if before < value:  # back from a detour; walking among equals that are known would never end
                current, value = candidate, before
                moves.odds.update(current)
            continue
        idle = 0
        after = float(runtime.evaluate_batch(candidate[None])[0])
        moves.learn(after < value)
        known.note(candidate, after)
        if value < after <= worst_s:
            rises.append(after - value)
        temperature_s = (np.median(rises) if rises else 0.0) / (hot * (cold / hot) ** done)
        if after <= value or (temperature_s > 0 and rng.random() < math.exp((value - after) / temperature_s)):
            current, value = candidate, after
            moves.odds.update(current)


class _Clock:
    """Which part of the stage is over."""

    def __init__(self, search: Search, end_share: float, limit: int | None) -> None:
        self._search, self._first, self._begin_share, self._end_share = (
            search,
            search.evaluations,
            used_share(search),
            end_share,
        )
        whole = search.budget.evaluations
        left = None if whole is None else max(0, math.ceil(end_share * whole) - search.evaluations)
        self.evaluations = limit if left is None else left if limit is None else min(left, limit)
        """At most so many; None where only seconds count."""

    def share_done(self) -> float:
        """From 0 to 1."""
        share = (used_share(self._search) - self._begin_share) / max(1e-9, self._end_share - self._begin_share)
        if self.evaluations is not None:
            share = max(share, (self._search.evaluations - self._first) / max(1, self.evaluations))
        return min(1.0, share)


def _first_acceptance(search: Search, clock: _Clock, config: RevisitConfig) -> float:
    """See the configuration; a budget of seconds alone counts as many evaluations."""
    num_moves = int(np.maximum(0, search.problem.action_mask.sum(axis=1) - 1).sum())
    low, high = config.first_acceptance
    if clock.evaluations is None:
        return high
    few, many = config.evaluations_per_move
    each = clock.evaluations / max(1, num_moves)
    rank = math.log(min(max(each, few), many) / few) / math.log(many / few)
    return float(low * (high / low) ** rank)


class _Moves:
    """Draws changes of the current placement, more often those of the kinds that have succeeded.

    The shares of the kinds adapt as in adaptive large neighbourhood search (Ropke and Pisinger 2006, section 3.4).
    """

    def __init__(self, policy_search: PolicySearch, config: RevisitConfig) -> None:
        self.odds = MoveOdds(policy_search, config)
        self._problem, self._rng, self._config = policy_search.search.problem, policy_search.rng, config
        self._neighbours = _neighbours(policy_search.inputs)
        self._kinds: tuple[Callable[[IntArray], IntArray | None], ...] = (
            self._one,
            self._cluster,
            self._swap,
            self._stretch,
        )
        self._weights = np.array(config.move_shares)
        self._proposed = 0

    def propose(self, current: IntArray, count: int) -> IntArray | None:
        """A candidate `[N]`: of `count`, the one that the estimator likes best. None when nothing can move."""
        shares = np.maximum(self._weights / self._weights.sum(), self._config.least_share)
        kinds = self._rng.choice(len(shares), size=count, p=shares / shares.sum())
        drawn = ((kind, self._kinds[kind](current)) for kind in kinds.tolist())
        candidates: list[tuple[int, IntArray]] = [(kind, moved) for kind, moved in drawn if moved is not None]
        if not candidates:
            return None
        at = 0
        if len(candidates) > 1:
            at = int(np.argmin([self._estimated_s(candidate) for _, candidate in candidates]))
        self._proposed, candidate = candidates[at]
        return candidate

    def learn(self, improved: bool) -> None:
        """Notes what became of the candidate that was proposed last."""
        rate = self._config.adaptation
        self._weights[self._proposed] += rate * (improved - self._weights[self._proposed])

    def _estimated_s(self, candidate: IntArray) -> float:
        """What the estimator says of a candidate: it is asked for the move of the first op to where it is."""
        first_op = np.zeros(1, dtype=np.int64)
        batch = self._problem.estimator.evaluate_moves(candidate, first_op, candidate[:1])
        return float(self._problem.penalised_batch_s(batch)[0])

    def _stretch(self, current: IntArray) -> IntArray:
        window = int(self._rng.integers(2, self._config.max_window + 1))
        return rebuild(self._problem, current, window, self._config.pull, self._rng)

    def _one(self, current: IntArray) -> IntArray | None:
        return self._moved(current, 1)

    def _cluster(self, current: IntArray) -> IntArray | None:
        return self._moved(current, 1 + int(self._rng.geometric(1.0 / self._config.mean_cluster)))

    def _swap(self, current: IntArray) -> IntArray | None:
        """A move that the policy likes, and a unit back: where memories are full, or loads even, neither helps alone."""
        move = self.odds.draw(self._rng)
        if move is None:
            return None
        unit, device = move
        home = self.odds.devices[unit]
        others = np.flatnonzero((self.odds.devices == device) & self._problem.action_mask[:, home])
        moved = current.copy()
        moved[self._problem.unit_ops[unit]] = device
        if len(others):
            # Gumbel noise on log odds: a draw by the odds of each moving there.
            drawn = np.argmax(self.odds.log_odds[others, home] + self._rng.gumbel(size=len(others)))
            moved[self._problem.unit_ops[others[drawn]]] = home
        return moved

    def _moved(self, current: IntArray, size: int) -> IntArray | None:
        """After a move that the policy likes, which takes a random connected set of up to `size` units along."""
        move = self.odds.draw(self._rng)
        if move is None:
            return None
        unit, device = move
        moved = current.copy()
        for member in _cluster(unit, size, self.odds.devices, self._neighbours, self._rng):
            if self._problem.action_mask[member, device]:
                moved[self._problem.unit_ops[member]] = device
        return moved


def _cluster(
    unit: int, size: int, devices: IntArray, neighbours: list[IntArray], rng: np.random.Generator
) -> list[int]:
    """A unit and a random connected set of units on its device, `size` in all where there are so many."""
    members, border = [unit], [unit]
    while border and len(members) < size:
        at = border.pop(int(rng.integers(len(border))))
        fresh = [v for v in neighbours[at].tolist() if devices[v] == devices[unit] and v not in members]
        fresh = fresh[: size - len(members)]
        members.extend(fresh)
        border.extend(fresh)
    return members


def _neighbours(inputs: PolicyInputs) -> list[IntArray]:
    """`[U]` the units that exchange data with each."""
    ends = np.concatenate([inputs.features.ends, inputs.features.ends[::-1]], axis=1)
    order = np.argsort(ends[0], kind="stable")
    return np.split(ends[1][order], np.searchsorted(ends[0][order], np.arange(1, len(inputs.features.nodes))))


class _Known:
    """Seconds of placements that this stage has evaluated: none is paid for twice."""

    def __init__(self) -> None:
        self._seconds: dict[bytes, float] = {}

    def note(self, assignment: IntArray, seconds: float) -> None:
        self._seconds[self._key(assignment)] = seconds

    def recall(self, assignment: IntArray) -> float | None:
        return self._seconds.get(self._key(assignment))

    def _key(self, assignment: IntArray) -> bytes:
        return hashlib.blake2b(assignment.tobytes(), digest_size=16).digest()
