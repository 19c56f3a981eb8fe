"""Graphs of thousands of ops: list schedules of all ops, the policy on a coarse graph, then ever smaller clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gnnplace.devices.detect import allowed_cores
from gnnplace.evaluation import Problem
from gnnplace.graph.units import coarsen_units
from gnnplace.planners.heuristic.heft import evaluate_heft
from gnnplace.planners.heuristic.heft_portfolio import TRANSFER_FACTORS, held_shares
from gnnplace.planners.heuristic.list_schedule import ListScheduling, list_schedule
from gnnplace.planners.heuristic.refinement import RefinementConfig, clustered, refine
from gnnplace.planners.heuristic.single import single_device_assignments
from gnnplace.planners.learned.policy_search import ShareUsed
from gnnplace.planners.search import Search

__all__ = ["MultilevelConfig", "search_levels"]


@dataclass(frozen=True)
class MultilevelConfig:
    """How large graphs are searched; shares are of the whole budget, each stage ends at its own."""

    more_ops_than: int = 2_000
    """Graphs of more ops than that are searched so."""
    schedules_share: float = 0.2
    coarsest_groups: int = 512
    coarsest_share: float = 0.75
    clusters: tuple[int, ...] = (2_048, 8_192, 32_768)
    """How many there are at each level between the coarsest and the units themselves."""
    refinement: RefinementConfig = RefinementConfig()


def search_levels(
    search: Search,
    rng: np.random.Generator,
    improve: Callable[[Search, np.random.Generator], None],
    config: MultilevelConfig,
) -> None:
    """Searches until the budget ends; the best is kept in `search`.

    Coarsening with heavy edges, a search at the coarsest level and refinement on the way back is multilevel partitioning
    (Hendrickson and Leland 1995; Karypis and Kumar 1998), here with whole schedules as the measure. The levels below the coarsest
    are clusters of the best placement so far, as in iterated multilevel search (Walshaw 2004): where a list schedule beats
    the coarse graph, as on graphs without structure, it is what is refined.

    >>> from gnnplace.planners.budget import Budget
    >>> from gnnplace.sim.example import diamond
    >>> with Search(diamond(), Budget(60), "levels", 0) as search:
    ...     search_levels(search, np.random.default_rng(0), lambda part, rng: None, MultilevelConfig())
    >>> round(search.best_s, 3), [name for name, _ in search.stages]
    (4.001, ['schedules', 'coarsest', '4 units'])

    Args:
        search: over all ops.
        rng: source of chance.
        improve: searches the coarsest level, for as long as the search that it is given lasts.
        config: shares and sizes.
    """
    _schedules(search, config.schedules_share)
    search.stage("schedules")
    coarsening = coarsen_units(search.problem.graph, config.coarsest_groups)
    coarse = search.problem.over_groups(coarsening)
    with search.part(coarse, config.coarsest_share, coarsening) as part, suppress(ShareUsed):
        assert search.best is not None
        part.evaluate_batch(coarsening.project(search.best.assignment)[None])
        improve(part, rng)
    search.stage("coarsest")
    for share, most in _levels(search.problem, config):
        assert search.best is not None
        problem = clustered(search.problem, search.best.assignment, most)
        with search.part(problem, share) as part:
            refine(part, (search.best.assignment, search.best_s), rng, config.refinement)
        search.stage(f"{problem.num_units} units")


def _levels(problem: Problem, config: MultilevelConfig) -> Iterator[tuple[float, int]]:
    """(share of the budget at its end, most units) of each level."""
    sizes = [most for most in config.clusters if most < problem.num_units]
    sizes.append(problem.num_units)
    for number, most in enumerate(sizes, start=1):
        yield config.coarsest_share + (1.0 - config.coarsest_share) * number / len(sizes), most


def _schedules(search: Search, end_share: float) -> None:
    """Evaluates the best single device, HEFT, and list schedules with several prices of transfers."""
    problem = search.problem
    with search.part(problem, end_share) as part:
        part.evaluate_batch(single_device_assignments(problem))
        evaluate_heft(part)
        _ = problem.unit_of_op, problem.action_mask, problem.graph.input_tensors  # once, not in every thread
        schedulings, num_threads = _schedulings(problem), len(allowed_cores())
        with ThreadPoolExecutor(num_threads) as pool:
            while batch := list(islice(schedulings, num_threads)):
                built = list(pool.map(lambda each: list_schedule(problem, each[0], scheduling=each[1]), batch))
                part.evaluate_batch(np.array(built))


def _schedulings(problem: Problem) -> Iterator[tuple[float, ListScheduling]]:
    """Prices of transfers and how they are scheduled; those that wait on channels first."""
    for memory_share, activation_share in held_shares(problem):
        for channels in (True, False):
            for factor in TRANSFER_FACTORS:
                yield (
                    factor,
                    ListScheduling(channels=channels, memory_share=memory_share, activation_share=activation_share),
                )
