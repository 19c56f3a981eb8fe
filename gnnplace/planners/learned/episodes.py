"""Rollouts and training on the graph at hand, inside a share of the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.batch import EnvConfig, PlacementBatch
from gnnplace.planners.search import BudgetExhausted, Search
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.training.ppo import PpoConfig, PpoUpdate, train_ppo

__all__ = ["CountedRuntime", "EpisodesConfig", "ShareUsed", "train_on_graph", "used_share"]


class ShareUsed(Exception):
    """Ends a stage whose share of the budget is used up."""


@dataclass(frozen=True)
class EpisodesConfig:
    """How much is rolled out and learned."""

    num_envs: int = 8
    """Placements that are rolled out together."""
    lookahead: bool = False
    """Asking for the effect of every move before each step costs as many evaluations as there are other devices."""
    ppo: PpoConfig = PpoConfig(num_updates=30)


def used_share(search: Search) -> float:
    """Which share of the budget is gone, in evaluations or seconds, whichever is nearer its end."""
    evaluations, seconds = search.budget.evaluations, search.budget.seconds
    return max(
        0.0 if evaluations is None else search.evaluations / max(1, evaluations),
        0.0 if seconds is None else search.wall_s / max(1e-9, seconds),
    )


@dataclass(frozen=True, eq=False)
class CountedRuntime:
    """A search's evaluator for an environment: counts every evaluation, and ends a stage at a share of the budget.

    Lookahead is counted like everything else when the evaluator is simulated. When it is measured, lookahead comes from the
    estimator and costs nothing: only placements that the policy chose are executed.
    """

    search: Search
    end_share: float = 1.0

    @property
    def lookahead_is_exact(self) -> bool:
        """A move's seconds are those of the moved placement."""
        return self.search.problem.evaluator.kind == "simulated"

    def evaluate_batch(self, assignments: IntArray) -> FloatArray:
        """`[B]` penalised seconds.

        Raises:
            ShareUsed: the stage's share is used up.
            BudgetExhausted: the budget is.
        """
        self._check()
        return self._complete(self.search.evaluate_batch(assignments))

    def evaluate_moves(self, assignment: IntArray, units: IntArray, devices: IntArray) -> FloatArray:
        """`[M]` penalised seconds; see `evaluate_batch`."""
        if self.lookahead_is_exact:
            self._check()
            return self._complete(self.search.evaluate_moves(assignment, units, devices))
        problem = self.search.problem
        ops = problem.unit_of_op[None, :] == units[:, None]
        return problem.penalised_batch_s(problem.estimator.evaluate_moves(assignment, ops, devices))

    def _check(self) -> None:
        if used_share(self.search) >= self.end_share:
            raise ShareUsed

    def _complete(self, seconds: FloatArray) -> FloatArray:
        # Placements beyond the budget have not been run, and their infinity must not be learned from.
        if not np.isfinite(seconds).all() and not self.search.remaining:
            raise BudgetExhausted
        return seconds


def train_on_graph(
    search: Search,
    inputs: PolicyInputs,
    network: PolicyNetwork,
    starts: tuple[IntArray, FloatArray],
    reference_s: float,
    end_share: float,
    config: EpisodesConfig,
    generator: torch.Generator,
) -> list[PpoUpdate]:
    """Rolls out from the best starts, again and again, and trains after each batch; gives what the updates saw.

    `starts` are assignments `[S, N]` and their seconds `[S]`, best first. Each batch begins at the best of the starts and of
    what the batches before it found. Ends without a word when the stage's share of the budget is used up; the steps of an
    unfinished batch count as search, but are not learned from.
    """
    runtime = CountedRuntime(search, end_share)
    env_config = EnvConfig(lookahead=config.lookahead)
    env = PlacementBatch(search.problem, env_config, runtime, inputs.tables, max(reference_s, 1e-12))
    pool, pool_s = starts

    def episodes(index: int) -> tuple[PlacementBatch, PolicyInputs]:
        nonlocal pool, pool_s
        if index:
            pool, pool_s = np.concatenate([pool, env.best_assignments]), np.concatenate([pool_s, env.best_seconds])
        _, first = np.unique(pool, axis=0, return_index=True)
        order = first[np.argsort(pool_s[first], kind="stable")][: config.num_envs]
        pool, pool_s = pool[order], pool_s[order]
        rows = np.arange(config.num_envs) % len(pool)
        return env.reset(pool[rows], pool_s[rows]), inputs

    updates: list[PpoUpdate] = []
    try:
        train_ppo(network, episodes, config.ppo, generator, lambda _, update: updates.append(update))
    except ShareUsed:
        pass
    return updates
