"""Local search in compiled code: requests, results, and the functions of a simulator that compiled loops call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from gnnplace.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Proposals:
    """The distribution of random moves: a unit, sometimes neighbours on its device, and another device for all of them."""

    follow_neighbour: float
    """Probability that the move goes to the device of a neighbour of the unit, instead of any other device."""
    cluster_share: float
    """Fraction of moves that include a random connected set of units on the same device, where the mask allows."""
    mean_cluster: float
    """Mean number of further units in such a move; at least 1."""
    unit_weights: FloatArray | None = None
    """`[U]` weights of the unit that a move begins at; None: equal."""
    device_weights: FloatArray | None = None
    """`[U, D]` weights of the devices of a move that follows no neighbour; None: equal."""
    exchange_share: float = 0.0
    """Fraction of moves in which units of the other device make room: they go the other way."""


@dataclass(frozen=True, eq=False)
class WalkRequest:
    """A segment of simulated annealing; the temperature falls geometrically from the first evaluation to the last.

    >>> from gnnplace.sim.example import diamond
    >>> moves = Proposals(follow_neighbour=0.8, cluster_share=0.5, mean_cluster=3.0)
    >>> downhill = WalkRequest(np.array([0, 0, 0, 0]), 20, 0.0, 0.0, moves)
    >>> walk = diamond().local_search.walk(downhill, np.random.default_rng(0))
    >>> [round(seconds, 3) for _, seconds in walk.improvements], round(walk.best_s, 3), walk.evaluations
    ([4.002, 4.001], 4.001, 20)
    """

    assignment: IntArray
    """`[N]` the start, which does not count as an evaluation."""
    evaluations: int
    first_temperature_s: float
    last_temperature_s: float
    """With both temperatures zero, the walk accepts no worse placement."""
    proposals: Proposals


@dataclass(frozen=True, eq=False)
class Walk:
    """The last and the best placement of a walk, in penalised seconds (`Problem.penalised_batch_s`).

    >>> from gnnplace.sim.example import diamond
    >>> request = WalkRequest(np.array([0, 0, 0, 0]), 20, 0.0, 0.0, Proposals(0.8, 0.5, 3.0))
    >>> walk = diamond().local_search.walk(request, np.random.default_rng(0))
    >>> [round(seconds, 3) for _, seconds in walk.improvements], round(walk.value_s, 3)
    ([4.002, 4.001], 4.001)
    """

    assignment: IntArray  # [N]
    value_s: float
    best: IntArray  # [N] the start if no placement was better
    best_s: float
    evaluations: int
    """The requested number; 0 if no unit may move."""
    improvements: tuple[tuple[int, float], ...]
    """Number, from 1, and seconds of each evaluation that improved on all before it."""


class LocalSearch(Protocol):
    """Random moves of units, drawn and simulated in compiled code, thousands per call."""

    @property
    def ops_per_evaluation(self) -> int:
        """Number of ops simulated per evaluation, a measure of its duration."""

    @property
    def num_threads(self) -> int:
        """Walks that really run at the same time."""

    def propose(self, assignment: IntArray, proposals: Proposals, rng: np.random.Generator) -> IntArray:
        """`[N]` the assignment after one random move, not evaluated; unchanged if no unit may move."""

    def walk(self, request: WalkRequest, rng: np.random.Generator) -> Walk:
        """Metropolis moves from an assignment (Kirkpatrick, Gelatt and Vecchi 1983).

        Each move counts as one evaluation, even if its simulation stops early. The same request and state of `rng` give the
        same walk.
        """

    def walk_side_by_side(self, requests: Sequence[WalkRequest], rng: np.random.Generator) -> list[Walk]:
        """Independent walks on all threads; the result does not depend on the number of threads."""


class CompiledSimulator(NamedTuple):
    """Functions that other compiled code can call, with their first arguments, which one thread uses at a time.

    Compiled code that is handed functions, instead of importing them, can be kept on disk only with explicit types: see
    `planners/gnn/compiled_loop.py`.
    """

    run: Any
    """`(whole, devices [U]) -> seconds` as in `Problem.penalised_batch_s`."""
    whole: Any
    schedule: Any
    """`(groups, devices [U], op_s [2, N], hops [2, K], hop_end_s [K], peak_bytes [D]) -> number of hops`, or -1 if a route is missing."""
    groups: Any
    most_hops: int
    """`K`."""
