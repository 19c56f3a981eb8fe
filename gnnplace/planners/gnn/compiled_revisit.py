"""The guided search with its steps in compiled code, a few milliseconds per call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.timing import empty_timing, refresh
from gnnplace.errors import InvalidPlacement
from gnnplace.interruption import deferred_interrupts
from gnnplace.local_search import CompiledSimulator
from gnnplace.planners.gnn.compiled_loop import (
    ENCODE,
    GOES_ON,
    NO_ROUTE,
    NOTHING_NEW,
    SINCE_ENCODING,
    Log,
    Loop,
    Settings,
    Tables,
    Task,
    improvements,
    loop_of,
    new_current,
    new_log,
)
from gnnplace.planners.gnn.moves import KINDS, Moves, revision_rules
from gnnplace.planners.gnn.odds import PolicySearch
from gnnplace.planners.metropolis import SearchClock
from gnnplace.planners.search import CompiledPart, ShareUsed
from gnnplace.planners.solution import Change, Step
from gnnplace.policy.network import PolicyParts

if TYPE_CHECKING:
    from gnnplace.planners.gnn.search import RevisitConfig

_STEPS_PER_CALL = 120_000, 30_000
"""Ops simulated and pairs of a unit and a device scored in one call of the loop: some 80 ms, or 20 where seconds are limited."""


class Stage(NamedTuple):
    """The limits of the search."""

    clock: SearchClock
    end_share: float
    """Share of the budget at which the search ends."""
    warmth: float
    """0 for few evaluations to 1 for many."""


def revisit_compiled(
    policy_search: PolicySearch,
    simulator: CompiledSimulator,
    start: tuple[IntArray, float],
    stage: Stage,
    config: RevisitConfig,
) -> None:
    """Searches as `search.revisit` does, from the same random numbers to the same placements.

    Between calls of the loop it looks at the budget, encodes the graph anew where that is due, and notes improvements.

    Raises:
        ShareUsed: the search has used its share of the budget.
    """
    search, problem, clock = policy_search.search, policy_search.search.problem, stage.clock
    moves, timing = Moves(policy_search, config.moves, config.lookahead, stage.warmth), empty_timing(problem, 1)
    devices = problem.unit_devices(start[0])
    moves.note(devices, start[1])
    refresh(problem, policy_search.inputs.tables, timing, 0, start[0])
    tables, settings = _tables(policy_search, moves), _settings(policy_search, moves.costs, stage.warmth, config)
    seconds = np.array([start[1], start[1], search.best_s])
    most = config.remembered_rises, simulator.most_hops
    now, log = new_current(devices, seconds, moves.weights, timing, most), new_log(problem.num_units)
    steps = problem.local_search.ops_per_evaluation + problem.num_units * problem.topology.num_devices
    steps_per_call = _STEPS_PER_CALL[search.budget.seconds is not None]
    chunk = max(config.lookahead, steps_per_call // max(1, steps))
    parts, status = moves.move_odds.encode(timing), GOES_ON
    loop: Loop | None = None

    def run(count: int, parts: PolicyParts) -> CompiledPart:
        nonlocal status, loop
        made, used = clock.evaluations_made - count, clock.share_of_seconds  # `count` evaluations are claimed already
        limits = min(chunk, count), count
        progress = made, clock.max_evaluations or 0, used, used / made if made else 0.0
        decider = moves.move_odds.new_decider(parts.decisions)
        task = Task(tables, settings, parts.moves, decider, moves.drawn, limits, progress)
        changed = task, moves.known, now, log, policy_search.rng
        loop = loop or loop_of(simulator, *changed)
        with deferred_interrupts():
            status = loop(*changed)
        return CompiledPart(int(log.counts[2]), list(improvements(log, problem.unit_of_op)))

    while status != NOTHING_NEW and clock.share_done < 1.0:
        if search.used_share >= stage.end_share:
            raise ShareUsed
        if status == ENCODE:
            parts, now.counters[SINCE_ENCODING] = moves.move_odds.encode(timing), 0
        before = search.evaluations
        count = min(chunk + config.lookahead - 1, clock.evaluations_left)
        search.evaluate_compiled(count, partial(run, parts=parts))
        search.steps.extend(_logged_steps(log, before, problem.num_moves))
        if status == NO_ROUTE:
            raise InvalidPlacement("the placement needs a transfer between devices that no link or host connects")


def _tables(policy_search: PolicySearch, moves: Moves) -> Tables:
    problem, units = policy_search.search.problem, np.arange(policy_search.search.problem.num_units)
    capacity_bytes = np.maximum(1.0, problem.topology.memory_bytes.astype(np.float64))
    order = problem.graph.topological_order
    return Tables(policy_search.inputs.tables, moves.tables, order, capacity_bytes, units, np.zeros_like(units))


def _settings(policy_search: PolicySearch, costs: FloatArray, warmth: float, config: RevisitConfig) -> Settings:
    moves, odds = config.moves, config.moves.odds
    return Settings(
        config.lookahead, moves.mean_cluster, moves.max_window, moves.pull, revision_rules(moves),
        float(np.exp(-odds.repeat_penalty)),
        moves.max_idle, moves.adaptation, moves.least_share, costs, odds.encode_every, config.cold, config.hot, warmth,
        policy_search.search.problem.worst_case_s, policy_search.inputs.features.mean_unit_s,
        policy_search.search.problem.num_moves, policy_search.network.decides,
    )  # fmt: skip


def _logged_steps(log: Log, before: int, num_moves: int) -> Iterator[Step]:
    """The steps that a call of the loop has logged, after `before` evaluations of the search."""
    for at in range(int(log.counts[1])):
        log_prob, (best_s, after_s) = float(log.step_log_prob[at]), log.step_s[at].tolist()
        change = Change.between(*log.step_devices[at].copy())
        probability = None if math.isnan(log_prob) else math.exp(log_prob)
        yield Step(
            before + int(log.step_at[at]),
            KINDS[log.step_kind[at]],
            best_s,
            after_s,
            change,
            probability,
            1.0 / num_moves,
        )
