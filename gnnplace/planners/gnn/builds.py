"""Schedules that the policy builds from nothing, and the best of them built again, as starts of searches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gnnplace.arrays import FloatArray
from gnnplace.env.timing import empty_timing, write_times
from gnnplace.evaluation import Problem
from gnnplace.interruption import deferred_interrupts
from gnnplace.planners.classical.estimates import estimate, estimated_peak_bytes, ranked
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, Decided, decide, empty_trace
from gnnplace.planners.gnn.decision_tables import Reference, decision_tables, for_sample, no_reference, reference_to
from gnnplace.policy.decisions import DecisionParts
from gnnplace.policy.features import sweep_features, unplaced_features
from gnnplace.policy.network import PolicyNetwork, policy_inputs

LEAST_SAMPLES, MOST_SAMPLES = 2, 12
"""Samples of which the best counts, at least and at most, when the policy is trained."""
_MOST_PAIRS = 2_000_000  # units times devices of all schedules together; a pair takes about two microseconds
_REVISED, _REVISIONS = 8, 2  # schedules, the best by their own estimates, and how often each is built again
_TEMPERATURE = 0.5  # of the scores of the second one


def sample_budget(samples: float) -> float:
    """The budget as a feature of a decision: 0 if a single sample counts, 1 if the best of `MOST_SAMPLES` or more counts."""
    return math.log(min(max(1.0, samples), MOST_SAMPLES)) / math.log(MOST_SAMPLES)


def policy_schedules(
    problem: Problem, policy: PolicyNetwork, count: int, rng: np.random.Generator
) -> Iterator[ListSchedule]:
    """At most `count` schedules, fewer on large problems: the one of the highest scores, then samples; then revisions.

    A revision decides all units of one of the best schedules again and knows that schedule: slack, loads, and what lies ahead.
    Schedules are compared by their own estimates, nothing is simulated. On 53 development cases without limits of memory (two
    seeds), revisions shorten the result of `gnn` by 0.7 % with one evaluation and by 0.2 to 0.3 % with 20 and 50. More
    revisions, or revisions of revisions, did no better.
    """
    builder = _Builder(problem, policy, rng)
    affordable = max(1, _MOST_PAIRS // max(1, problem.num_units * problem.topology.num_devices))
    count = min(count, affordable)
    parts, reference, budget = builder.encoded(None), no_reference(builder.tables), sample_budget(count)
    found = dict[bytes, Decided]()
    for number in range(count):
        decided = builder.decide(parts, reference, Choice(float(number > 0), budget, NO_TEACHER), number)
        found.setdefault(decided.assignment.tobytes(), decided)
        yield _schedule(decided)
    if count + _REVISED * _REVISIONS > affordable:
        return
    estimates = [estimate(problem, each.assignment, _schedule(each)) for each in found.values()]
    for each in ranked(problem, estimates)[:_REVISED]:
        parts, reference = builder.referenced(found[each.assignment.tobytes()])
        for number in range(_REVISIONS):
            choice = Choice(_TEMPERATURE * (number > 0), sample_budget(LEAST_SAMPLES), NO_TEACHER)
            yield _schedule(builder.decide(parts, reference, choice, number))


def _schedule(decided: Decided) -> ListSchedule:
    return ListSchedule(decided.assignment, decided.start_s, decided.end_s, decided.connected)


@dataclass(eq=False)
class _Builder:
    """Builds schedules of one problem by one policy."""

    problem: Problem
    policy: PolicyNetwork
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.tables, self._inputs = decision_tables(self.problem), policy_inputs(self.problem)
        self._untraced = empty_trace(0, self.problem.topology.num_devices)

    def decide(self, parts: DecisionParts, reference: Reference, choice: Choice, number: int) -> Decided:
        """Sample `number` of the schedules."""
        with deferred_interrupts():
            return decide(for_sample(self.tables, number), reference, parts, choice, self._untraced, self.rng)

    def referenced(self, decided: Decided) -> tuple[DecisionParts, Reference]:
        """A schedule as a reference in which all units are free, and the policy for it."""
        problem, tables, timing = self.problem, self._inputs.tables, empty_timing(self.problem, 1)
        producer = problem.graph.tensor_producer
        arrival_s: FloatArray = decided.arrival_s.copy()
        arrival_s[np.arange(len(producer)), decided.assignment[producer]] = decided.end_s[producer]
        times = decided.assignment, decided.start_s, decided.end_s, arrival_s
        write_times(tables, timing, 0, times, float(decided.end_s.max(initial=0.0)))
        peak_bytes = estimated_peak_bytes(problem, _schedule(decided))
        timing.peak_memory_bytes[0] = peak_bytes[problem.topology.memory_home]
        reference = reference_to(problem, self.tables, self._inputs, timing)
        return self.encoded(sweep_features(self._inputs.features, tables, timing)), reference

    def encoded(self, features: tuple[np.ndarray, np.ndarray] | None) -> DecisionParts:
        """The policy for compiled code, from features of nodes and edges; None: of a graph without a schedule."""
        nodes, edges = unplaced_features(self._inputs.features) if features is None else features
        with torch.no_grad():
            return self.policy.parts(self._inputs, torch.from_numpy(nodes), torch.from_numpy(edges)).decisions
