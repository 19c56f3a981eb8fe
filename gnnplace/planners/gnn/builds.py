"""Schedules that the policy builds from nothing, and revises by its own estimates, as starts of searches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.timing import empty_timing, write_times
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.estimates import Estimated, estimate, ranked
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, Decided, decide, empty_trace
from gnnplace.planners.gnn.decision_tables import Reference, decision_tables, no_reference, write_reference
from gnnplace.policy.decisions import DecisionParts
from gnnplace.policy.features import sweep_features, unplaced_features
from gnnplace.policy.network import PolicyInputs, PolicyNetwork
from gnnplace.policy.pair_features import pair_features

MOST_SAMPLES = 12
"""Samples of which the best counts, at most, when the policy is trained."""
_MOST_PAIRS = 2_000_000  # units times devices of all schedules together; a pair takes about two microseconds


def sample_budget(samples: float) -> float:
    """The feature of a decision where the best of so many samples counts: 0 for one, 1 for `MOST_SAMPLES` and more."""
    return math.log(min(max(1.0, samples), MOST_SAMPLES)) / math.log(MOST_SAMPLES)


@dataclass(frozen=True)
class BuildConfig:
    """Amount of building before the first evaluation."""

    samples: int = 8
    """Least schedules that are built from nothing."""
    revised: int = 2
    """Schedules, the best by their own estimates, that are revised as a whole."""
    passes: int = 3
    """Times that each is revised, as long as its estimate improves."""
    revisions: int = 4
    """Samples of a revision, of which the best by its estimate counts; the first takes the highest scores."""
    temperature: float = 0.5
    """Of the other samples."""


def policy_schedules(
    problem: Problem,
    inputs: PolicyInputs,
    policy: PolicyNetwork,
    count: int,
    rng: np.random.Generator,
    config: BuildConfig = BuildConfig(),
) -> Iterator[ListSchedule]:
    """At most `count` schedules, fewer on large problems, and revisions of the best of them.

    The first schedule takes the highest scores, the others are samples.
    """
    builder = _Builder(problem, inputs, policy, rng)
    affordable = max(1, _MOST_PAIRS // max(1, problem.num_units * problem.topology.num_devices))
    count = min(count, affordable)
    parts, reference, budget = builder.encoded(None), no_reference(problem, builder.tables), sample_budget(count)
    found: list[tuple[Estimated, Decided]] = []
    for number in range(count):
        found.append(builder.decided(parts, reference, Choice(0.0 if number == 0 else 1.0, budget, NO_TEACHER)))
        yield found[-1][0].schedule
    if count * (1 + config.revised * config.passes) > affordable:
        return
    by_schedule = {id(each.schedule): decided for each, decided in found}
    for first in ranked(problem, [each for each, _ in found])[: config.revised]:
        current, decided = first, by_schedule[id(first.schedule)]
        for _ in range(config.passes):
            parts, reference = builder.referenced(decided, current.peak_bytes)
            revised = [
                builder.decided(parts, reference, Choice(config.temperature if number else 0.0, 0.0, NO_TEACHER))
                for number in range(config.revisions)
            ]
            choices = {id(each.schedule): decided for each, decided in revised}
            best = ranked(problem, [current, *(each for each, _ in revised)])[0]
            if best is current:
                break
            current, decided = best, choices[id(best.schedule)]
            yield current.schedule


class _Builder:
    """Schedules of one problem by one policy."""

    def __init__(self, problem: Problem, inputs: PolicyInputs, policy: PolicyNetwork, rng: np.random.Generator) -> None:
        self.tables = decision_tables(problem)
        self._problem, self._inputs, self._policy, self._rng = problem, inputs, policy, rng
        self._untraced = empty_trace(0, problem.topology.num_devices)
        self._timing = empty_timing(problem, 1)

    def decided(self, parts: DecisionParts, reference: Reference, choice: Choice) -> tuple[Estimated, Decided]:
        """A schedule with its estimates."""
        found = decide(self.tables, reference, parts, choice, self._untraced, self._rng)
        schedule = ListSchedule(found.assignment, found.start_s, found.end_s, found.connected)
        return estimate(self._problem, schedule), found

    def referenced(self, decided: Decided, peak_bytes: IntArray) -> tuple[DecisionParts, Reference]:
        """A schedule as a reference in which all units are free, and the policy for it."""
        problem, tables, timing = self._problem, self._inputs.tables, self._timing
        write_times(tables, timing, 0, self._times(decided), float(decided.end_s.max(initial=0.0)))
        timing.peak_memory_bytes[0] = peak_bytes[problem.topology.memory_home]
        reference, units = no_reference(problem, self.tables), np.arange(problem.num_units)
        pair, _, _ = pair_features(
            self._inputs.features, tables, timing, np.zeros_like(units), units, problem.topology.memory_bytes
        )
        write_reference(reference, problem.unit_of_op, decided.devices, timing, pair)
        return self.encoded(sweep_features(self._inputs.features, tables, timing)), reference

    def encoded(self, features: tuple[np.ndarray, np.ndarray] | None) -> DecisionParts:
        """The policy for compiled code, from features of nodes and edges; None: of nothing placed yet."""
        nodes, edges = unplaced_features(self._inputs.features) if features is None else features
        with torch.no_grad():
            return self._policy.parts(self._inputs, torch.from_numpy(nodes), torch.from_numpy(edges)).decisions

    def _times(self, decided: Decided) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Devices, starts, ends, and arrivals on every device, also on the producer's own."""
        producer = self._problem.graph.tensor_producer
        arrival_s = decided.arrival_s.copy()
        arrival_s[np.arange(len(producer)), decided.assignment[producer]] = decided.end_s[producer]
        return decided.assignment, decided.start_s, decided.end_s, arrival_s
