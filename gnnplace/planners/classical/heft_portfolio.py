"""A portfolio of list schedules under varied transfer costs and noise; the best one is kept."""

from collections.abc import Iterator
from itertools import chain, cycle, product

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.heft import MEMORY_AND_ACTIVATION_SHARES, evaluate_heft
from gnnplace.planners.classical.list_schedule import ScheduleOptions, list_schedule
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution
from gnnplace.random_numbers import log_uniform

TRANSFER_FACTORS = tuple(np.geomspace(0.5, 20.0, 8).tolist())
"""Factors on transfer times; a larger one keeps more ops together, and the best one differs from graph to graph."""

NOISE = 0.2
"""Standard deviation of the logarithm of the factors on ranks and op times."""

Shares = tuple[tuple[float | None, float], ...]
"""Pairs of `ScheduleOptions.memory_share` and `activation_share`."""

_MEMORY_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5)
_BATCH_SIZE = 16  # schedules that are built before they are evaluated together
_UNLIMITED_SCHEDULES = 100  # evaluations where the budget is unlimited
_PATIENCE = 200  # known schedules in a row that end the search


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best of HEFT's placement and list schedules of the same scheduler under other costs, over the whole budget.

    First every transfer factor without noise, with and without the occupancy of channels; then random factors from the
    same range with noise on ranks and finish times, until the budget ends. Where HEFT fits only with regard to memory,
    all other schedules have at least that regard. Each distinct placement is evaluated once. HEFT is Topcuoglu et al.
    2002; the varied costs are this project's.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "heft-portfolio", seed) as search:
        seen = Seen()
        fitting = evaluate_heft(search, seen)
        shares = MEMORY_AND_ACTIVATION_SHARES[fitting:] if fitting else held_shares(problem)
        options = chain(plain_options(shares[::2]), noisy_options(problem, rng, shares))
        candidates = _distinct((list_schedule(problem, each).assignment for each in options), seen)
        while not budget.is_unlimited or search.evaluations < _UNLIMITED_SCHEDULES:
            batch: list[IntArray] = []
            # Building takes time, so seconds may run out.
            while len(batch) < min(_BATCH_SIZE, search.remaining) and (new := next(candidates, None)) is not None:
                batch.append(new)
            if not batch:
                break
            search.evaluate_batch(np.array(batch, dtype=np.int64))
    return search.solution()


def plain_options(shares: Shares, channels: tuple[bool, ...] = (True, False)) -> Iterator[ScheduleOptions]:
    """Every transfer factor, first with and then without channels, at each of the memory shares."""
    for (memory_share, activation_share), occupied, factor in product(shares, channels, TRANSFER_FACTORS):
        yield ScheduleOptions(factor, occupied, memory_share, activation_share)


def noisy_options(
    problem: Problem, rng: np.random.Generator, shares: Shares, channels: tuple[bool, ...] = (True, False)
) -> Iterator[ScheduleOptions]:
    """Options without end: a random transfer factor, and noise on ranks and finish times."""
    for occupied, (memory_share, activation_share) in cycle(product(channels, shares)):
        finish_noise = np.exp(NOISE * rng.normal(size=problem.op_time_s.shape))
        factor, rank_noise = noisy_costs(problem, rng)
        yield ScheduleOptions(factor, occupied, memory_share, activation_share, rank_noise, finish_noise)


def noisy_costs(problem: Problem, rng: np.random.Generator) -> tuple[float, FloatArray]:
    """A random factor on transfers, and factors `[N]` on the ops' mean times, from which ranks are computed."""
    factor = log_uniform(rng, TRANSFER_FACTORS[0], TRANSFER_FACTORS[-1])
    return factor, np.exp(NOISE * rng.normal(size=problem.graph.num_ops))


def held_shares(problem: Problem) -> Shares:
    """Shares of memory for weights; only 1 where weights and all activations fit on every device.

    A list schedule does not know how much memory its activations will need.
    """
    everything = problem.graph.total_weight_bytes + int(problem.graph.tensor_bytes.sum())
    is_tight = everything > problem.topology.memory_bytes.min()
    return tuple((share, 0.0) for share in (_MEMORY_SHARES if is_tight else _MEMORY_SHARES[:1]))


def _distinct(candidates: Iterator[IntArray], seen: Seen) -> Iterator[IntArray]:
    """The new candidates, each once; ends after `_PATIENCE` known ones in a row."""
    repeats = 0
    for candidate in candidates:
        if seen.add(candidate):
            repeats = 0
            yield candidate
        else:
            repeats += 1
        if repeats >= _PATIENCE:
            return
