"""A portfolio of list schedules: transfers made dearer or cheaper than they are, with a little noise; the best is kept."""

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
    "memory_shares",
    "noisy_schedules",
    "plain_schedules",
    "plan",
]


TRANSFER_FACTORS = tuple(np.geomspace(0.5, 20.0, 8).tolist())
"""Transfers made dearer than they are keep ops together; which factor is best differs from graph to graph."""

NOISE = 0.2
"""Spread of the logarithm of the factors by which ranks and op times are varied."""

Shares = tuple[tuple[float | None, float], ...]
"""Pairs of a device's memory that may be used, and of what ops produce that counts as weights; see `ListScheduling`."""

MEMORY_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5)
"""Of a device's memory for weights: list schedules do not know how much activations will need."""


@dataclass(frozen=True)
class PortfolioConfig:
    """How the budget is used."""

    batch_size: int = 16
    """Schedules that are built before they are evaluated together."""
    unlimited_schedules: int = 100
    """Where the budget knows no end."""
    patience: int = 200
    """So many schedules one after the other that were all there before end the search."""


def plan(problem: Problem, budget: Budget, seed: int, config: PortfolioConfig = PortfolioConfig()) -> Solution:
    """The best of HEFT's placement and list schedules of the same scheduler under other costs, over the whole budget.

    First every transfer factor without noise, with and without the channels' occupancy kept while deciding; then factors
    drawn from the same range, with noise on ranks and finish times, for as long as the budget lasts. Where HEFT fits only
    with regard to memory, all others have at least that regard. Each distinct placement is evaluated once. HEFT is
    Topcuoglu et al. 2002; varied costs are this project's.

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
            while len(batch) < min(config.batch_size, search.remaining):
                candidate = next(candidates, None)
                if candidate is None:
                    break
                batch.append(candidate)
            if not batch:
                break
            search.evaluate_batch(np.array(batch, dtype=np.int64))
    return search.solution()


def plain_schedules(problem: Problem, shares: Shares) -> Iterator[IntArray]:
    """`[N]` list schedules for every transfer factor, with and without channels, at every other of the memory shares.

    >>> from gnnplace.sim.example import diamond
    >>> found = [assignment.tolist() for assignment in plain_schedules(diamond(), ((1.0, 0.0),))]
    >>> len(found), found[0]
    (16, [0, 0, 1, 1])
    """
    for memory_share, activation_share in shares[::2]:
        for channels in (True, False):
            for factor in TRANSFER_FACTORS:
                scheduling = ListScheduling(
                    channels=channels, memory_share=memory_share, activation_share=activation_share
                )
                yield list_schedule(problem, factor, scheduling=scheduling)


def noisy_schedules(problem: Problem, rng: np.random.Generator, shares: Shares) -> Iterator[IntArray]:
    """`[N]` list schedules without end: a factor from the range, and noise on ranks and finish times.

    >>> from gnnplace.sim.example import diamond
    >>> schedules = noisy_schedules(diamond(), np.random.default_rng(0), ((1.0, 0.0),))
    >>> len({tuple(next(schedules).tolist()) for _ in range(20)})  # noise tells them apart
    8
    """
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

    >>> from gnnplace.sim.example import diamond
    >>> held_shares(diamond())
    ((1.0, 0.0),)
    """
    return tuple((share, 0.0) for share in memory_shares(problem))


def memory_shares(problem: Problem) -> tuple[float, ...]:
    """Only 1 where weights and all activations fit on every device.

    >>> from dataclasses import replace
    >>> from gnnplace.devices.topology import Device, Topology
    >>> from gnnplace.sim.example import diamond
    >>> tight = replace(diamond(), topology=Topology("tight", (Device("x", memory_bytes=9),)))
    >>> memory_shares(diamond()), memory_shares(tight)
    ((1.0,), (1.0, 0.9, 0.8, 0.65, 0.5))
    """
    everything = problem.graph.total_weight_bytes + int(problem.graph.tensor_bytes.sum())
    return MEMORY_SHARES if everything > problem.topology.memory_bytes.min() else MEMORY_SHARES[:1]


def _distinct(candidates: Iterator[IntArray], seen: Seen, patience: int) -> Iterator[IntArray]:
    """Those not seen before, each once; ends after `patience` repeats in a row."""
    repeats = 0
    for candidate in candidates:
        if seen.add(candidate):
            repeats = 0
            yield candidate
        else:
            repeats += 1
        if repeats >= patience:
            return
