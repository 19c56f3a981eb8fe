"""Lessons from one problem: schedules that the policy builds and revises, and what to imitate before it can do either."""

from dataclasses import dataclass, field

import numpy as np
import torch

from gnnplace.arrays import BoolArray, Float32Array, FloatArray, IntArray
from gnnplace.env.timing import Timing, empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.graph.units import draw_region
from gnnplace.interruption import deferred_interrupts
from gnnplace.local_search import WalkRequest
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.gnn.builds import LEAST_SAMPLES, MOST_SAMPLES, sample_budget
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, DecisionTrace, decide, empty_trace
from gnnplace.planners.gnn.decision_tables import (
    MEMORY_SHARES,
    Reference,
    decision_tables,
    for_sample,
    no_reference,
    reference_to,
)
from gnnplace.policy.decisions import DecisionParts
from gnnplace.policy.features import sweep_features, unplaced_features
from gnnplace.policy.network import Decisions, PolicyInputs, PolicyNetwork
from gnnplace.policy.pair_features import budget_feature, pair_features
from gnnplace.random_numbers import log_uniform
from gnnplace.training.lessons import DecisionLesson, Lesson, MoveLesson, group_advantages
from gnnplace.training.search_ppo import TrainingProblem
from gnnplace.training.search_trace import SearchTrace


@dataclass(frozen=True)
class TeachingConfig:
    """Amount and kind of lessons from one problem."""

    samples: int = 16
    """Schedules of a group that are built from nothing."""
    best_of: tuple[int, ...] = (LEAST_SAMPLES, 4, MOST_SAMPLES)
    """Equally likely numbers of samples of which the best counts; the policy sees the number."""
    revised_in_part: int = 3
    """Annealed placements of which a region is decided anew; only what improves them counts. All units are decided anew of three
    others: the best that was built, an annealed one, and the best of that first revision."""
    revision_samples: int = 12
    region: tuple[int, int] = (2, 40)
    """Fewest and most units that are decided anew."""
    explored: tuple[float, ...] = (1.0, 2.0)
    """Equally likely temperatures at which a group is drawn. Where all samples are alike at 1, none of them teaches anything."""
    walked: tuple[int, int] = (20, 600)
    """Fewest and most evaluations of annealing before a placement is revised; uniform in the logarithm."""
    ent_coef: float = 0.012
    imitated_evaluations: int = 1500
    """Evaluations of annealing that lead to a placement to imitate."""
    most_moves: int = 1200
    """Single moves of a problem, of which all are evaluated to find the targets of moves; with more there are none."""
    temperatures: tuple[float, float] = (2e-3, 1e-4)
    """First and last temperature of annealing, as fractions of the start."""


def lessons_of(
    network: PolicyNetwork,
    inputs: PolicyInputs,
    training: TrainingProblem,
    rng: np.random.Generator,
    imitates: bool,
    config: TeachingConfig = TeachingConfig(),
) -> list[Lesson]:
    """Lessons from one problem: to imitate annealed placements and improving moves, or from the policy's own samples."""
    group = _Groups(network, inputs, training.problem, rng, config)
    with deferred_interrupts():
        return group.imitation(training) if imitates else group.practice()


@dataclass(eq=False)
class _Groups:
    """Groups of samples of one problem; each has an encoding of the graph, and all become one lesson."""

    network: PolicyNetwork
    inputs: PolicyInputs
    problem: Problem
    rng: np.random.Generator
    config: TeachingConfig
    _nodes: list[torch.Tensor] = field(default_factory=list)
    _edges: list[torch.Tensor] = field(default_factory=list)
    _traces: list[tuple[DecisionTrace, int]] = field(default_factory=list)
    _weights: list[FloatArray] = field(default_factory=list)
    _temperatures: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tables = decision_tables(self.problem)
        self._timing = empty_timing(self.problem, 1)
        self._units = np.arange(self.problem.num_units)

    def practice(self) -> list[Lesson]:
        """Builds a group from nothing and revises some placements; where nothing differs there is no lesson."""
        rng, config = self.rng, self.config
        built, gains = self._group(
            no_reference(self._tables), self._encoded(None), config.samples, int(rng.choice(config.best_of))
        )
        best = built[gains.argmax()], float(gains.max())
        best = self._revised_whole(*best)
        self._revised_whole(*self._annealed(*self._any_of(built, gains)))
        self._revised_whole(*best)
        for turn in range(config.revised_in_part):
            self._revise_in_part(*self._annealed(*(best if turn % 2 else self._any_of(built, gains))))
        return self._lesson()

    def _any_of(self, built: IntArray, gains: FloatArray) -> tuple[IntArray, float]:
        chosen = int(self.rng.integers(len(built)))
        return built[chosen], float(gains[chosen])

    def _annealed(self, devices: IntArray, gain: float) -> tuple[IntArray, float]:
        """The placement `[U]` after a walk of random length, so that many are near good ones; as it is where it does not fit."""
        if not self._fits(gain):
            return devices, gain
        found, seconds = self._walked(devices, float(np.exp(-gain)), self.config.walked)
        return found, -float(np.log(seconds))

    def _fits(self, gain: float) -> bool:
        return float(np.exp(-gain)) < self.problem.worst_case_s

    def _revised_whole(self, devices: IntArray, gain: float) -> tuple[IntArray, float]:
        """The best of a group in which all units of a placement `[U]` are decided anew, or the placement itself."""
        if not self._fits(gain):
            return devices, gain
        best_of = int(self.rng.choice(self.config.best_of[:2]))
        revised, gains = self._group(*self._referenced(devices), self.config.revision_samples, best_of)
        return (revised[gains.argmax()], float(gains.max())) if gains.max() > gain else (devices, gain)

    def _revise_in_part(self, devices: IntArray, gain: float) -> None:
        """A group in which a region of a placement `[U]` is decided anew."""
        if self._fits(gain):
            reference, encoded = self._referenced(devices)
            reference.free[:] = self._region()
            best_of = int(self.rng.choice(self.config.best_of[:2]))
            self._group(reference, encoded, self.config.revision_samples, best_of, improves=float(np.exp(-gain)))

    def imitation(self, training: TrainingProblem) -> list[Lesson]:
        """An annealed placement, built from nothing and revised from a damaged one; and the moves that improve three others."""
        problem, rng = self.problem, self.rng
        start = problem.unit_devices(training.start)
        most = self.config.imitated_evaluations
        target, _ = self._walked(start, training.start_s, (most, most))
        other = np.array([rng.choice(np.flatnonzero(row)) for row in problem.action_mask])
        damaged = np.where(rng.random(problem.num_units) < rng.uniform(0.1, 0.6), other, target)
        for reference, encoded in (
            (no_reference(self._tables), self._encoded(None)),
            self._referenced(damaged),
        ):
            trace = empty_trace(problem.num_units, problem.topology.num_devices)
            choice = Choice(1.0, float(rng.random()), target)
            decide(self._tables, reference, encoded, choice, trace, rng)
            count = int(trace.used[0])
            if count:
                self._traces.append((trace, len(self._nodes) - 1))
                self._weights.append(np.full(count, 1.0 / count))
                self._temperatures.append(1.0)
        found = self._lesson()
        if problem.num_moves <= self.config.most_moves:
            few, _ = self._walked(start, training.start_s, (20, most))
            found += self._improving_moves([damaged, start, few])
        return found

    def _group(
        self, reference: Reference, encoded: DecisionParts, samples: int, best_of: int, improves: float | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Samples `[G, U]` and their gains `[G]`, negative logarithms of seconds, and notes the decisions with their advantages.

        With `improves`, only samples that take fewer seconds than that have a gain.
        """
        problem = self.problem
        trace = empty_trace(samples * int(reference.free.sum()), problem.topology.num_devices)
        temperature = float(self.rng.choice(self.config.explored))
        choice = Choice(temperature, sample_budget(best_of), NO_TEACHER)
        rows, ends = [], [0]
        # One share of memory for the group: the advantages of its samples are those of their decisions.
        tables = for_sample(self._tables, int(self.rng.integers(len(MEMORY_SHARES))) if reference.free.all() else 0)
        for _ in range(samples):
            rows.append(decide(tables, reference, encoded, choice, trace, self.rng).devices.copy())
            ends.append(int(trace.used[0]))
        devices = np.array(rows)
        seconds = problem.penalised_batch_s(problem.evaluator.evaluate_batch(devices[:, problem.unit_of_op]))
        gains = -np.log(np.clip(seconds, 1e-12, 1e12))
        counted = gains if improves is None else np.maximum(0.0, gains + np.log(improves))
        advantages = group_advantages(counted, best_of)
        if advantages.any():
            per_sample = max(1.0, ends[-1] / samples)
            self._traces.append((trace, len(self._nodes) - 1))
            self._weights.append(np.repeat(advantages, np.diff(ends)) / (per_sample * samples))
            self._temperatures.append(temperature)
        return devices, gains

    def _lesson(self) -> list[Lesson]:
        if not self._traces:
            return []

        def joined(name: str) -> torch.Tensor:
            return torch.cat([torch.from_numpy(getattr(trace, name)[: trace.used[0]]) for trace, _ in self._traces])

        rows = torch.cat([torch.full((int(trace.used[0]),), row) for trace, row in self._traces])
        decisions = Decisions(
            rows, joined("units"), joined("pair"), joined("context"), joined("mask"), joined("chosen")
        )
        weights = torch.from_numpy(np.concatenate(self._weights).astype(np.float32))
        shares = torch.cat([torch.full((len(group),), 1.0 / max(1, len(group))) for group in self._weights])
        drawn = zip(self._weights, self._temperatures, strict=True)
        temperatures = torch.cat([torch.full((len(group),), temperature) for group, temperature in drawn])
        nodes, edges = torch.cat(self._nodes, dim=1), torch.cat(self._edges, dim=1)
        ent_coef = self.config.ent_coef
        return [DecisionLesson(self.inputs, nodes, edges, decisions, temperatures, weights, shares, ent_coef)]

    def _encoded(self, timing: Timing | None) -> DecisionParts:
        """The policy for compiled code, for a schedule or for nothing; its features are kept for the lesson."""
        features = self.inputs.features
        arrays = unplaced_features(features) if timing is None else sweep_features(features, self.inputs.tables, timing)
        nodes, edges = (torch.from_numpy(array) for array in arrays)
        self._nodes.append(nodes)
        self._edges.append(edges)
        with torch.no_grad():
            return self.network.parts(self.inputs, nodes, edges).decisions

    def _scheduled(self, devices: IntArray) -> Timing:
        refresh(self.problem, self.inputs.tables, self._timing, 0, devices[self.problem.unit_of_op])
        return self._timing

    def _referenced(self, devices: IntArray) -> tuple[Reference, DecisionParts]:
        """The placement `[U]` as a reference in which all units are free, and the policy for it."""
        timing = self._scheduled(devices)
        return reference_to(self.problem, self._tables, self.inputs, timing), self._encoded(timing)

    def _pair_features(self, timing: Timing, budget: float) -> tuple[Float32Array, Float32Array, BoolArray]:
        tables, memory_bytes = self.inputs.tables, self.problem.topology.memory_bytes
        rows = np.zeros_like(self._units)
        return pair_features(self.inputs.features, tables, timing, rows, self._units, memory_bytes, budget)

    def _walked(self, devices: IntArray, seconds: float, evaluations: tuple[int, int]) -> tuple[IntArray, float]:
        """The best placement of an annealing search of random length from `devices` `[U]`, and its seconds."""
        count = round(log_uniform(self.rng, *evaluations))
        warm_s, cold_s = (temperature * seconds for temperature in self.config.temperatures)
        start = devices[self.problem.unit_of_op]
        request = WalkRequest(start, count, warm_s, cold_s, AnnealingConfig().proposals)
        walk = self.problem.local_search.walk(request, self.rng)
        return self.problem.unit_devices(walk.best), walk.best_s

    def _region(self) -> BoolArray:
        """`[U]` true for units to decide anew."""
        units, rng = self.problem.num_units, self.rng
        size = int(log_uniform(rng, *self.config.region))
        first, free = int(rng.integers(units)), np.zeros(units, dtype=np.bool_)
        draw_region(self.problem.unit_graph, first, size, free, np.zeros(units, dtype=np.int64), rng)
        return free

    def _improving_moves(self, placements: list[IntArray]) -> list[Lesson]:
        """The single moves that improve each placement, in proportion to what they save."""
        problem, trace, targets = self.problem, SearchTrace(), []
        units, devices = (axis.ravel() for axis in np.indices(problem.action_mask.shape))
        for placement in placements:
            moved = np.tile(placement, (len(units), 1))
            moved[np.arange(len(units)), units] = devices
            is_move = problem.action_mask[units, devices] & (devices != placement[units])
            rows = np.concatenate([placement[None], moved[is_move]])
            seconds = problem.penalised_batch_s(problem.evaluator.evaluate_batch(rows[:, problem.unit_of_op]))
            gains = np.zeros(len(units))
            gains[is_move] = np.maximum(0.0, np.log(seconds[0] / seconds[1:]))
            timing = self._scheduled(placement)
            left = float(np.exp(self.rng.uniform(-4.0, 4.0))) * problem.num_moves
            pair, context, mask = self._pair_features(timing, budget_feature(left, problem.num_moves))
            gains[~mask.ravel()] = 0.0
            if gains.sum() > 0.0:
                nodes, edges = sweep_features(self.inputs.features, self.inputs.tables, timing)
                trace.note_encoding(torch.from_numpy(nodes), torch.from_numpy(edges))
                trace.note_scores(pair, context, mask, placement)
                targets.append(torch.from_numpy((gains / gains.sum()).astype(np.float32)))
        return [MoveLesson(self.inputs, trace, torch.stack(targets))] if targets else []
