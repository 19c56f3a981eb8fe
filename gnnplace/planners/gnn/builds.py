"""Schedules that the policy builds from nothing, as starts of searches."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from gnnplace.evaluation import Problem
from gnnplace.interruption import deferred_interrupts
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, decide, empty_trace
from gnnplace.planners.gnn.decision_tables import decision_tables, no_reference
from gnnplace.policy.features import unplaced_features
from gnnplace.policy.network import PolicyNetwork, policy_inputs

LEAST_SAMPLES, MOST_SAMPLES = 2, 12
"""Samples of which the best counts, at least and at most, when the policy is trained."""
_MOST_PAIRS = 2_000_000  # units times devices of all schedules together; a pair takes about two microseconds


def sample_budget(samples: float) -> float:
    """The budget as a feature of a decision: 0 if a single sample counts, 1 if the best of `MOST_SAMPLES` or more counts."""
    return math.log(min(max(1.0, samples), MOST_SAMPLES)) / math.log(MOST_SAMPLES)


def policy_schedules(
    problem: Problem, policy: PolicyNetwork, count: int, rng: np.random.Generator
) -> Iterator[ListSchedule]:
    """At most `count` schedules, fewer on large problems: the one of the highest scores, then samples."""
    inputs, tables = policy_inputs(problem), decision_tables(problem)
    reference, untraced = no_reference(tables), empty_trace(0, problem.topology.num_devices)
    nodes, edges = (torch.from_numpy(array) for array in unplaced_features(inputs.features))
    with torch.no_grad():
        parts = policy.parts(inputs, nodes, edges).decisions
    affordable = max(1, _MOST_PAIRS // max(1, problem.num_units * problem.topology.num_devices))
    for number in range(min(count, affordable)):
        choice = Choice(0.0 if number == 0 else 1.0, sample_budget(count), NO_TEACHER)
        with deferred_interrupts():
            found = decide(tables, reference, parts, choice, untraced, rng)
        yield ListSchedule(found.assignment, found.start_s, found.end_s, found.connected)
