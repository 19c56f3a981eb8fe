"""Search of large graphs: coarse groups first, then refinement, in which ever smaller clusters of ops move."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.graph.units import coarsen_units, joined_units
from gnnplace.local_search import Proposals, WalkRequest
from gnnplace.planners.classical.estimates import best_estimated
from gnnplace.planners.classical.expert import expert_assignment
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.heft_portfolio import held_shares, plain_options
from gnnplace.planners.classical.list_schedule import ScheduleOptions, list_schedule, on_all_cores
from gnnplace.planners.classical.neighbourhoods import neighbourhood_schedules
from gnnplace.planners.search import Search

_FIRST_ROUND = 50  # of a full round
_NEAR = 8  # list schedules on each set of near devices, at most
_NEAR_PAIRS = 2_000_000  # ops times devices of these; a pair takes 20 to 50 nanoseconds


@dataclass(frozen=True)
class MultilevelConfig:
    """Levels of the search, each of which ends at its share of the whole budget, and walks that move clusters."""

    more_ops_than: int = 512
    """Ops above which a graph is searched level by level."""
    schedules_share: float = 0.2
    coarsest_groups: int = 512
    coarsest_share: float = 0.75
    whole_units: int = 2_000
    """Most units that are all searched after the coarsest level, as groups were there; more are refined in clusters. Fifteen graphs of 600
    to 2,000 ops, compared with groups alone: 3.2 % shorter after 2 s and 3.1 % after 10 s, from 23 % shorter to 4 % longer. On fourteen and
    twelve of them 3.1 and 1.3 %; without the coarsest level 3.2 and 1.5 %, but up to 5 % longer; in clusters 2.6 and 1.0 %; all units annealed
    without the policy 2.0 and 0.9 % (one thread, one seed)."""
    coarsest_share_of_whole: float = 0.3
    clusters: tuple[int, ...] = (2_048, 8_192, 32_768)
    """Most clusters at each level between the coarsest one and the units themselves."""
    num_walks: int = 4
    """Simultaneous walks, each at clusters of its own, so that their gains add up; the same number on any machine, for equal answers."""
    ops_per_round: int = 10_000_000
    """Ops that each walk simulates before the walks are merged."""
    inner_weight: float = 0.05
    """Weight of a cluster whose neighbours are all on its device, against 1 for a cluster at the boundary."""
    proposals: Proposals = Proposals(follow_neighbour=0.8, cluster_share=0.5, mean_cluster=3.0)


def clustered(problem: Problem, assignment: IntArray, most: int) -> Problem:
    """The problem with at most about `most` units, each of ops on one device; the same problem where it has no more units."""
    if problem.num_units <= most:
        return problem
    return replace(problem, clusters=joined_units(problem.graph, problem.unit_of_op, most, assignment))


def refine(
    search: Search, start: tuple[IntArray, float], rng: np.random.Generator, config: MultilevelConfig
) -> tuple[IntArray, float]:
    """Descends from `start` (an assignment `[N]` and its seconds) until the budget ends or the walks find nothing better.

    In each round several walks begin at the same placement, each in its own part of the clusters. Then all their moves are tried
    together; the next round begins at the best of that and of the walks. Where the budget limits seconds, a short first round shows
    how many evaluations the others may have.
    """
    problem, (assignment, value), limit_s = search.problem, start, search.budget.seconds
    most = max(1, config.ops_per_round // max(1, problem.local_search.ops_per_evaluation))
    per_round = most if limit_s is None else max(1, most // _FIRST_ROUND)
    while search.remaining and problem.num_moves:
        begin_s = search.wall_s
        requests = [
            WalkRequest(assignment, per_round, 0.0, 0.0, replace(config.proposals, unit_weights=weights))
            for weights in _shares(problem, assignment, rng, config)
        ]
        walks = search.walk_side_by_side(requests, rng)
        found = sorted(((walk.best_s, walk.best) for walk in walks), key=lambda pair: pair[0])
        together = assignment.copy()
        for _, moved in reversed(found):  # moves of the best walk override the others
            together = np.where(moved != assignment, moved, together)
        before = value
        if search.remaining:
            found.append((float(search.evaluate_batch(together[None])[0]), together))
        value, assignment = min(found, key=lambda pair: pair[0])
        if value >= before and per_round == most:
            break
        if limit_s is not None:
            share = max(0.0, limit_s - search.wall_s) / max(1e-9, search.wall_s - begin_s)
            per_round = max(1, int(min(most, share * per_round)))
    return assignment, value


def _shares(
    problem: Problem, assignment: IntArray, rng: np.random.Generator, config: MultilevelConfig
) -> list[FloatArray]:
    """`[U]` weights for each walk: a stretch of the units, which are in topological order, from a random first one."""
    source, target = problem.graph.edges
    cut = assignment[source] != assignment[target]
    weights = np.full(problem.num_units, config.inner_weight)
    weights[problem.unit_of_op[source[cut]]] = 1.0
    weights[problem.unit_of_op[target[cut]]] = 1.0
    shifted = (np.arange(problem.num_units) + int(rng.integers(problem.num_units))) % problem.num_units
    walk_of_unit = shifted * config.num_walks // problem.num_units
    return [np.where(walk_of_unit == walk, weights, 0.0) for walk in range(config.num_walks)]


def search_levels(
    search: Search,
    rng: np.random.Generator,
    improve: Callable[[Search, np.random.Generator], None],
    search_all: Callable[[Search, np.random.Generator], None],
    config: MultilevelConfig,
) -> None:
    """Searches until the budget ends; the best placement is kept in `search`, whose problem has all ops.

    Coarsening with heavy edges, a search at the coarsest level and refinement on the way back is multilevel partitioning
    (Hendrickson and Leland 1995; Karypis and Kumar 1998), here with the objective of whole schedules. The levels below the coarsest
    are clusters of the best placement so far, as in iterated multilevel search (Walshaw 2004): on graphs without structure, where
    a list schedule beats the coarse graph, refinement begins at the list schedule. `improve` searches the coarsest level, for as
    long as the search that it is passed lasts. On graphs with few enough units `search_all` follows, and no clusters.
    """
    _schedules(search, config.schedules_share)
    if search.best is None:  # the seconds of the share were over before its first evaluation
        search.evaluate_batch(search.problem.single_device_assignments[:1])
    search.stage("schedules")
    is_small = search.problem.num_units <= config.whole_units
    coarsening = coarsen_units(search.problem.graph, config.coarsest_groups)
    coarse = search.problem.over_groups(coarsening)
    share = config.coarsest_share_of_whole if is_small else config.coarsest_share
    with search.part(coarse, share, coarsening) as part:
        assert search.best is not None
        part.evaluate_batch(coarsening.project(search.best.assignment)[None])
        improve(part, rng)
    search.stage("coarsest")
    if is_small:
        search_all(search, rng)
        return
    sizes = [most for most in config.clusters if most < search.problem.num_units] + [search.problem.num_units]
    for number, most in enumerate(sizes, start=1):
        share = config.coarsest_share + (1.0 - config.coarsest_share) * number / len(sizes)
        assert search.best is not None
        problem = clustered(search.problem, search.best.assignment, most)
        with search.part(problem, share) as part:
            refine(part, (search.best.assignment, search.best_s), rng, config)
        search.stage(f"{problem.num_units} units")


def _schedules(search: Search, end_share: float) -> None:
    """Evaluates the best single device, HEFT, whole layers, list schedules with several prices of transfers, and those on near devices.

    With fewer evaluations than these, it begins with the best by the estimates of `best_estimated`.
    """
    problem = search.problem
    options, singles = list(plain_options(held_shares(problem))), problem.single_device_assignments
    schedules = (each.assignment for each in on_all_cores(problem, partial(list_schedule, problem), options))
    built = chain(
        schedules, neighbourhood_schedules(problem, max(1, min(_NEAR, _NEAR_PAIRS // problem.op_time_s.size)))
    )
    with search.part(problem, end_share) as part:
        if part.remaining < len(singles) + 1 + len(options) and part.budget.seconds is None:
            heft = list_schedule(problem, ScheduleOptions(memory_share=None)).assignment
            for assignment in best_estimated(part, chain([heft], built, singles)):
                part.evaluate_batch(assignment[None])
        part.evaluate_batch(singles)
        evaluate_heft(part)
        if (problem.graph.stages >= 0).any():
            part.evaluate_batch(expert_assignment(problem)[None])
        for assignment in built:  # nothing is left of them where the loop above evaluated them
            part.evaluate_batch(assignment[None])
