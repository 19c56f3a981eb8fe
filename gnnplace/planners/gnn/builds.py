"""Schedules that the policy builds from nothing, and placements that it builds again, as starts of searches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import empty_timing, write_times
from gnnplace.evaluation import Problem
from gnnplace.interruption import deferred_interrupts
from gnnplace.planners.classical.estimates import estimated_peak_bytes
from gnnplace.planners.classical.heft_portfolio import noisy_costs
from gnnplace.planners.classical.list_schedule import ListSchedule, rank_order
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, Decided, decide, empty_trace
from gnnplace.planners.gnn.decision_tables import (
    DecisionTables,
    Reference,
    decision_tables,
    for_sample,
    no_reference,
    reference_to,
)
from gnnplace.policy.decisions import DecisionParts
from gnnplace.policy.features import sweep_features, unplaced_features
from gnnplace.policy.network import PolicyNetwork, policy_inputs
from gnnplace.random_numbers import log_uniform

LEAST_SAMPLES, MOST_SAMPLES = 2, 12
"""Samples of which the best counts, at least and at most, when the policy is trained."""
_MOST_PAIRS = 8_000_000  # units times devices of all schedules together; a pair takes about half a microsecond
_TEMPERATURES = (1.0, 2.0)  # of the scores when a placement is decided again
_LEAST_STRETCH = 2
_CRITICAL_SLACK = 0.01  # of the makespan
_WHOLE, _STRETCHES = 1, 3  # placements at each temperature in which all units, or those of a stretch, are decided again
DECIDED_AGAIN = len(_TEMPERATURES) * (_WHOLE + _STRETCHES)
"""Revisions of a placement by the policy."""


def sample_budget(samples: float) -> float:
    """The budget as a feature of a decision: 0 if a single sample counts, 1 if the best of `MOST_SAMPLES` or more counts."""
    return math.log(min(max(1.0, samples), MOST_SAMPLES)) / math.log(MOST_SAMPLES)


def decision_positions(unit_of_op: IntArray, order: IntArray) -> IntArray:
    """`[U]` positions of the units in the order in which they are decided, that of their first ops in `order` `[N]`.

    >>> decision_positions(np.array([0, 0, 1, 2]), np.array([2, 0, 3, 1])).tolist()
    [1, 0, 2]
    """
    _, first = np.unique(unit_of_op[order], return_index=True)
    return np.argsort(np.argsort(first))


def critical_stretch(position: IntArray, slack: FloatArray, rng: np.random.Generator) -> BoolArray:
    """`[U]` a stretch of random length, short ones as likely as long ones, around a unit on the critical path.

    `position` `[U]` orders the units; `slack` `[U]` is a share of the makespan.
    """
    length = int(log_uniform(rng, _LEAST_STRETCH, max(_LEAST_STRETCH, len(position))))
    centre = position[rng.choice(np.flatnonzero(slack <= max(_CRITICAL_SLACK, slack.min())))]
    first = max(0, centre - length // 2)
    stretch: BoolArray = (position >= first) & (position < first + length)
    return stretch


@dataclass(eq=False)
class PolicyBuilder:
    """Builds schedules of one problem by one policy: from nothing, or again, with a placement as reference.

    A reference tells the policy slack, loads, and what lies ahead of each decision. Schedules are compared by estimates, nothing
    is simulated. On large problems fewer schedules are built.
    """

    problem: Problem
    policy: PolicyNetwork
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self._tables, self._inputs = decision_tables(self.problem), policy_inputs(self.problem)
        self._untraced = empty_trace(0, self.problem.topology.num_devices)
        self._left = max(1, _MOST_PAIRS // max(1, self.problem.num_units * self.problem.topology.num_devices))

    def schedules(self, count: int) -> Iterator[ListSchedule]:
        """At most `count` schedules from nothing: the one of the highest scores, then samples."""
        count = min(count, self._left)
        parts, reference, budget = self._unplaced, no_reference(self._tables), sample_budget(count)
        for number in range(count):
            choice = Choice(float(number > 0), budget, NO_TEACHER)
            yield _schedule(self._decide(parts, reference, choice, for_sample(self._tables, number)))

    def revisions(self, assignment: IntArray) -> Iterator[IntArray]:
        """Assignments `[N]` in which the policy has decided units of `assignment` again, all of them or a stretch of random length.

        Each revision draws a new order of ranks with noise, and one of several temperatures. Yields nothing where `assignment` cannot run.
        """
        if self._left <= DECIDED_AGAIN:
            return
        kept = self._kept(assignment)
        if not np.isfinite(kept.end_s).all():  # an op is on a device that cannot run it, or that none can reach
            return
        parts, reference = self._referenced(kept)
        position = decision_positions(self.problem.unit_of_op, self._tables.order)
        for number in range(_WHOLE + _STRETCHES):
            for sample, temperature in enumerate(_TEMPERATURES):
                if number >= _WHOLE:
                    reference.free[:] = critical_stretch(position, reference.slack, self.rng)
                choice = Choice(temperature, sample_budget(LEAST_SAMPLES), NO_TEACHER)
                order = rank_order(self.problem, *noisy_costs(self.problem, self.rng))
                tables = for_sample(self._tables, sample)._replace(order=order)
                yield self._decide(parts, reference, choice, tables).assignment

    def _decide(self, parts: DecisionParts, reference: Reference, choice: Choice, tables: DecisionTables) -> Decided:
        self._left -= 1
        with deferred_interrupts():
            return decide(tables, reference, parts, choice, self._untraced, self.rng)

    def _kept(self, assignment: IntArray) -> Decided:
        """The estimated schedule of an assignment `[N]`."""
        reference = no_reference(self._tables)
        reference.devices[:], reference.free[:] = self.problem.unit_devices(assignment), False
        return self._decide(self._unplaced, reference, Choice(0.0, 0.0, NO_TEACHER), for_sample(self._tables, 0))

    def _referenced(self, decided: Decided) -> tuple[DecisionParts, Reference]:
        """A schedule as a reference in which all units are free, and the policy for it."""
        problem, tables, timing = self.problem, self._inputs.tables, empty_timing(self.problem, 1)
        producer = problem.graph.tensor_producer
        arrival_s: FloatArray = decided.arrival_s.copy()
        arrival_s[np.arange(len(producer)), decided.assignment[producer]] = decided.end_s[producer]
        times = decided.assignment, decided.start_s, decided.end_s, arrival_s
        write_times(tables, timing, 0, times, float(decided.end_s.max(initial=0.0)))
        peak_bytes = estimated_peak_bytes(problem, _schedule(decided))
        timing.peak_memory_bytes[0] = peak_bytes[problem.topology.memory_home]
        reference = reference_to(problem, self._tables, self._inputs, timing)
        return self._encoded(sweep_features(self._inputs.features, tables, timing)), reference

    @cached_property
    def _unplaced(self) -> DecisionParts:
        return self._encoded(unplaced_features(self._inputs.features))

    def _encoded(self, features: tuple[np.ndarray, np.ndarray]) -> DecisionParts:
        """The policy for compiled code, from features of nodes and edges."""
        nodes, edges = features
        with torch.no_grad():
            return self.policy.parts(self._inputs, torch.from_numpy(nodes), torch.from_numpy(edges)).decisions


def _schedule(decided: Decided) -> ListSchedule:
    return ListSchedule(decided.assignment, decided.start_s, decided.end_s, decided.connected)
