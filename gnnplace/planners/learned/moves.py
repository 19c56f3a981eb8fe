"""Changes of the current placement that the policy's search draws from: of one unit, of a cluster, an exchange, a stretch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.planners.learned.constructions import rebuild
from gnnplace.planners.learned.move_odds import MoveOdds, OddsConfig
from gnnplace.planners.learned.policy_search import PolicySearch
from gnnplace.policy.network import PolicyInputs

__all__ = ["Moves", "MovesConfig", "Proposal"]


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
    """Mean number of units in a move with neighbours."""
    max_window: int = 20
    """Half the length of the longest stretch, in ops."""
    pull: float = 1.5
    """How much slower other devices look outside of the stretch."""
    odds: OddsConfig = OddsConfig()


@dataclass(frozen=True, eq=False)
class Proposal:
    """A candidate, and what kind of move leads there."""

    assignment: IntArray  # [N]
    kind: int


class Moves:
    """Draws changes of the current placement, more often those of the kinds that have succeeded.

    The shares of the kinds adapt as in adaptive large neighbourhood search (Ropke and Pisinger 2006, section 3.4).
    """

    def __init__(self, policy_search: PolicySearch, config: MovesConfig) -> None:
        self.odds = MoveOdds(policy_search, config.odds)
        self._problem, self._rng, self._config = policy_search.search.problem, policy_search.rng, config
        self._neighbours = _neighbours(policy_search.inputs)
        self._unit_bytes: FloatArray = policy_search.inputs.tables.unit_memory_bytes
        self._kinds: tuple[Callable[[IntArray], IntArray | None], ...] = (
            self._one,
            self._cluster,
            self._exchange,
            self._stretch,
        )
        self._weights = np.array(config.shares)

    def propose(self, current: IntArray) -> Proposal | None:
        """A candidate, of a kind that is drawn by its share; None when nothing can move."""
        shares = np.maximum(self._weights / self._weights.sum(), self._config.least_share)
        kind = int(self._rng.choice(len(shares), p=shares / shares.sum()))
        moved = self._kinds[kind](current)
        return None if moved is None else Proposal(moved, kind)

    def learn(self, kind: int, improved: bool) -> None:
        """Notes what became of a candidate of that kind."""
        self._weights[kind] += self._config.adaptation * (improved - self._weights[kind])

    def _stretch(self, current: IntArray) -> IntArray:
        window = int(self._rng.integers(2, self._config.max_window + 1))
        return rebuild(self._problem, current, window, self._config.pull, self._rng)

    def _one(self, current: IntArray) -> IntArray | None:
        return self._moved(current, 1)

    def _cluster(self, current: IntArray) -> IntArray | None:
        return self._moved(current, 1 + int(self._rng.geometric(1.0 / self._config.mean_cluster)))

    def _exchange(self, current: IntArray) -> IntArray | None:
        """A move that the policy would like if there were room, and units back: as many as make room, but at least one.

        Where memories are full, or loads even, neither way helps alone.
        """
        move = self.odds.draw(self._rng, with_room=True)
        if move is None:
            return None
        unit, device = move
        home, missing = self.odds.devices[unit], self.odds.missing_bytes(unit, device)
        others = np.flatnonzero((self.odds.devices == device) & self._problem.action_mask[:, home])
        # Gumbel noise on log odds: a draw without replacement by the odds of each moving there.
        keys = self.odds.log_odds_with_room[others, home] + self._rng.gumbel(size=len(others))
        back = others[np.argsort(-keys, kind="stable")]
        freed = np.cumsum(self._unit_bytes[back])
        moved = current.copy()
        moved[self._problem.unit_ops[unit]] = device
        for other in back[: 1 + int(np.searchsorted(freed, missing))].tolist():
            moved[self._problem.unit_ops[other]] = home
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
