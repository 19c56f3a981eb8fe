"""Refinement of a placement of many ops: clusters of ops on one device move, large ones first, at its boundaries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem, Proposals, WalkRequest
from gnnplace.graph.units import joined_units
from gnnplace.planners.search import Search

__all__ = ["RefinementConfig", "clustered", "refine"]


@dataclass(frozen=True)
class RefinementConfig:
    """How clusters move."""

    num_walks: int = 4
    """Side by side, each at clusters of its own, so that what they gain adds up. As many on any machine, so that all find the same."""
    ops_per_round: int = 10_000_000
    """Simulated by each walk before the walks meet."""
    inner_weight: float = 0.05
    """How likely a move begins at a cluster whose neighbours are all on its device, against one at the boundary."""
    proposals: Proposals = Proposals(follow_neighbour=0.8, cluster_share=0.5, mean_cluster=3.0)


def clustered(problem: Problem, assignment: IntArray, most: int) -> Problem:
    """The problem with at most about `most` units, each of ops on one device; as it is where it has no more than that.

    >>> from gnnplace.sim.example import diamond
    >>> clustered(diamond(), np.array([0, 0, 1, 0]), most=2).unit_of_op.tolist()
    [0, 0, 1, 0]
    """
    if problem.num_units <= most:
        return problem
    return replace(problem, clusters=joined_units(problem.graph, problem.unit_of_op, most, assignment))


def refine(
    search: Search, start: tuple[IntArray, float], rng: np.random.Generator, config: RefinementConfig
) -> tuple[IntArray, float]:
    """Goes down from `start` (an assignment `[N]` and its seconds) until the budget ends or the walks find nothing.

    In each round several walks begin at the same placement, each at its own stretch of the clusters. Then what all of them
    have moved is tried at once; the best of that and of the walks is where the next round begins.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> everything_here = np.zeros(4, dtype=np.int64)
    >>> with Search(diamond(), Budget(100), "refinement", 0) as search:
    ...     _, seconds = refine(search, (everything_here, 6.0), np.random.default_rng(0), RefinementConfig(ops_per_round=40))
    >>> round(seconds, 3)
    4.001
    """
    problem, (assignment, value) = search.problem, start
    per_round = max(1, config.ops_per_round // max(1, problem.local_search.ops_per_evaluation))
    while search.remaining and problem.num_moves:
        requests = [
            WalkRequest(assignment, per_round, 0.0, 0.0, replace(config.proposals, unit_weights=weights))
            for weights in _shares(problem, assignment, rng, config)
        ]
        walks = search.walk_side_by_side(requests, rng)
        found = sorted(((walk.best_s, walk.best) for walk in walks), key=lambda pair: pair[0])
        together = assignment.copy()
        for _, moved in reversed(found):  # the best walk has the last word
            together = np.where(moved != assignment, moved, together)
        before = value
        if search.remaining:
            found.append((float(search.evaluate_batch(together[None])[0]), together))
        value, assignment = min(found, key=lambda pair: pair[0])
        if value >= before:
            break
    return assignment, value


def _shares(
    problem: Problem, assignment: IntArray, rng: np.random.Generator, config: RefinementConfig
) -> list[FloatArray]:
    """`[U]` weights for each walk: a stretch of the units, which stand in topological order, from a random first one."""
    source, target = problem.graph.edges
    cut = assignment[source] != assignment[target]
    weights = np.full(problem.num_units, config.inner_weight)
    weights[problem.unit_of_op[source[cut]]] = 1.0
    weights[problem.unit_of_op[target[cut]]] = 1.0
    turned = (np.arange(problem.num_units) + int(rng.integers(problem.num_units))) % problem.num_units
    walk_of_unit = turned * config.num_walks // problem.num_units
    return [np.where(walk_of_unit == walk, weights, 0.0) for walk in range(config.num_walks)]
