"""Rollouts and training on the graph at hand, inside a share of the budget."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.batch import EnvConfig, PlacementBatch
from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.planners.learned.policy_search import CountedRuntime, PolicySearch, ShareUsed
from gnnplace.policy.network import PolicyInputs
from gnnplace.training.ppo import PpoConfig, PpoUpdate, train_ppo

__all__ = ["EpisodesConfig", "train_on_graph"]


@dataclass(frozen=True)
class EpisodesConfig:
    """How much is rolled out and learned."""

    num_envs: int = 4
    """Placements that are rolled out together."""
    visited_units: int = 32
    """An episode revisits that many units; which ones is drawn, those with little slack being likelier."""
    slack_scale: float = 0.1
    """A unit with this much slack, as a fraction of the makespan, is 1/e times as likely to be visited."""
    undo_losses: bool = True
    """Moves that turn out badly are taken back; their rewards teach all the same."""
    lookahead: bool = False
    """Asking for the effect of every move before each step costs as many evaluations as there are other devices."""
    ppo: PpoConfig = PpoConfig(num_updates=8)


def train_on_graph(
    policy_search: PolicySearch,
    starts: tuple[IntArray, FloatArray],
    reference_s: float,
    end_share: float,
    config: EpisodesConfig,
) -> list[PpoUpdate]:
    """Rolls out from the best starts, again and again, and trains after each batch; gives what the updates saw.

    `starts` are assignments `[S, N]` and their seconds `[S]`, best first. Each batch begins at the best of the starts and of
    what the batches before it found. Ends without a word when the stage's share of the budget is used up; the steps of an
    unfinished batch count as search, but are not learned from.
    """
    problem, inputs, rng = policy_search.search.problem, policy_search.inputs, policy_search.rng
    runtime = CountedRuntime(policy_search.search, end_share)
    env = PlacementBatch(
        problem,
        EnvConfig(undo_losses=config.undo_losses, lookahead=config.lookahead),
        runtime,
        inputs.tables,
        max(reference_s, 1e-12),
    )
    pool, pool_s = starts

    def episodes(index: int) -> tuple[PlacementBatch, PolicyInputs]:
        nonlocal pool, pool_s
        if index:
            pool, pool_s = np.concatenate([pool, env.best_assignments]), np.concatenate([pool_s, env.best_seconds])
        _, first = np.unique(pool, axis=0, return_index=True)
        order = first[np.argsort(pool_s[first], kind="stable")][: config.num_envs]
        pool, pool_s = pool[order], pool_s[order]
        rows = np.arange(config.num_envs) % len(pool)
        return env.reset(pool[rows], pool_s[rows], _worth_a_visit(problem, inputs, pool[0], config, rng)), inputs

    updates: list[PpoUpdate] = []
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    with contextlib.suppress(ShareUsed):
        train_ppo(policy_search.network, episodes, config.ppo, generator, lambda _, update: updates.append(update))
    return updates


def _worth_a_visit(
    problem: Problem, inputs: PolicyInputs, best: IntArray, config: EpisodesConfig, rng: np.random.Generator
) -> IntArray:
    """Units to be visited, in topological order, drawn by their slack in the best placement."""
    timing = empty_timing(problem, 1)
    refresh(problem, inputs.tables, timing, 0, best)
    slack_s = np.full(problem.num_units, np.inf)
    np.minimum.at(slack_s, inputs.tables.unit_of_op, timing.slack_s[0])
    scale_s = config.slack_scale * max(float(timing.makespan_s[0]), 1e-300)
    likely = -slack_s / scale_s + rng.gumbel(size=problem.num_units)
    movable = np.flatnonzero(problem.action_mask.sum(axis=1) > 1)
    return np.sort(movable[np.argsort(-likely[movable], kind="stable")[: config.visited_units]])
