"""A portfolio of list schedules under varied transfer costs and noise; the best one is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, cycle, product

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.heft import MEMORY_AND_ACTIVATION_SHARES, evaluate_heft
from gnnplace.planners.classical.list_schedule import ListScheduling, list_schedule
from gnnplace.planners.search import Search, Seen, Solution

__all__ = [
    "NOISE",
    "TRANSFER_FACTORS",
    "PortfolioConfig",
    "Shares",
    "held_shares",
    "noisy_schedules",
    "plain_schedules",
    "plan",
]


TRANSFER_FACTORS = tuple(np.geomspace(0.5, 20.0, 8).tolist())
"""Factors on transfer times; a larger one keeps more ops together, and the best one differs from graph to graph."""

NOISE = 0.2
"""Standard deviation of the logarithm of the factors on ranks and op times."""

Shares = tuple[tuple[float | None, float], ...]
"""Pairs of `ListScheduling.memory_share` and `activation_share`."""

_MEMORY_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5)


@dataclass(frozen=True)
class PortfolioConfig:
    """Use of the budget."""

    batch_size: int = 16
    """Schedules that are built before they are evaluated together."""
    unlimited_schedules: int = 100
    """Evaluations where the budget is unlimited."""
    patience: int = 200
    """Known schedules in a row that end the search."""


def plan(problem: Problem, budget: Budget, seed: int, config: PortfolioConfig = PortfolioConfig()) -> Solution:
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
        fitting, evaluated = evaluate_heft(search)
        shares = MEMORY_AND_ACTIVATION_SHARES[fitting:] if fitting else held_shares(problem)
        schedules = chain(plain_schedules(problem, shares), noisy_schedules(problem, rng, shares))
        candidates = _distinct(schedules, Seen(evaluated), config.patience)
        while not budget.is_unlimited or search.evaluations < config.unlimited_schedules:
            batch: list[IntArray] = []
            while len(batch) < min(config.batch_size, search.remaining):  # building takes time, so seconds may run out
                candidate = next(candidates, None)
                if candidate is None:
                    break
                batch.append(candidate)
            if not batch:
                break
            search.evaluate_batch(np.array(batch, dtype=np.int64))
    return search.solution()


def plain_schedules(problem: Problem, shares: Shares) -> Iterator[IntArray]:
    """`[N]` list schedules for every transfer factor, with and without channels, at every other of the memory shares."""
    for memory_share, activation_share in shares[::2]:
        for channels in (True, False):
            for factor in TRANSFER_FACTORS:
                scheduling = ListScheduling(
                    channels=channels, memory_share=memory_share, activation_share=activation_share
                )
                yield list_schedule(problem, factor, scheduling=scheduling)


def noisy_schedules(problem: Problem, rng: np.random.Generator, shares: Shares) -> Iterator[IntArray]:
    """`[N]` list schedules without end: a random transfer factor, and noise on ranks and finish times."""
    ops, devices = problem.op_time_s.shape
    for channels, (memory_share, activation_share) in cycle(product((True, False), shares)):
        scheduling = ListScheduling(
            channels=channels,
            memory_share=memory_share,
            activation_share=activation_share,
            finish_noise=np.exp(NOISE * rng.normal(size=(ops, devices))),
        )
        factor = float(np.exp(rng.uniform(np.log(TRANSFER_FACTORS[0]), np.log(TRANSFER_FACTORS[-1]))))
        yield list_schedule(problem, factor, np.exp(NOISE * rng.normal(size=ops)), scheduling)


def held_shares(problem: Problem) -> Shares:
    """Shares of memory for weights; only 1 where weights and all activations fit on every device.

    A list schedule does not know how much memory its activations will need.
    """
    everything = problem.graph.total_weight_bytes + int(problem.graph.tensor_bytes.sum())
    is_tight = everything > problem.topology.memory_bytes.min()
    return tuple((share, 0.0) for share in (_MEMORY_SHARES if is_tight else _MEMORY_SHARES[:1]))


def _distinct(candidates: Iterator[IntArray], seen: Seen, patience: int) -> Iterator[IntArray]:
    """The new candidates, each once; ends after `patience` known ones in a row."""
    repeats = 0
    for candidate in candidates:
        if seen.add(candidate):
            repeats = 0
            yield candidate
        else:
            repeats += 1
        if repeats >= patience:
            return
