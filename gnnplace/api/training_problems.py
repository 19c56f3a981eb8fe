"""Endless problems to train on: random graphs and the zoo's training families, on random device sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gnnplace.api.setting import Setting, setting_of
from gnnplace.api.workload import Workload
from gnnplace.arrays import IntArray
from gnnplace.cost.per_type import PerTypeCost
from gnnplace.cost.roofline import RooflineCost
from gnnplace.devices.sampled import DeviceRanges, limit_memory, sample_devices
from gnnplace.evaluation import Problem, WalkRequest
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.heuristic.annealing import AnnealingConfig
from gnnplace.training.problems import TrainingProblem

__all__ = ["ProblemRanges", "SampledProblems", "training_families", "training_graphs"]

_TEMPERATURES = (1e-3, 1e-5)
"""First and last of a walk, as fractions of the seconds that it begins with."""


@dataclass(frozen=True)
class ProblemRanges:
    """What training problems are drawn from."""

    min_units: int = 20
    max_units: int = 500
    growth: int = 4000
    """Problems until the largest ones are `max_units`, half of a run with defaults on two cores; the limit grows by the same factor each time."""
    zoo_share: float = 0.35
    """Of the problems, those on networks of the zoo; the others are on random graphs."""
    max_zoo_ops: int = 4000
    """Networks with more ops are left out: reading one takes seconds, simulating it op by op milliseconds."""
    type_spread: float = 0.6
    """Largest standard deviation of the logarithm of what op types cost more or less on a kind of device; from 0."""
    num_envs: int = 8
    """Episodes of each problem that are rolled out together."""
    portfolio_evaluations: int = 12
    """List schedules under varied transfer costs, of which the best is one of the starts."""
    worst_base: float = 4.0
    """A base that takes so many times longer than the best one is no start: all accelerators are better than it."""
    annealed_share: float = 0.6
    """Of the starts, those that annealing has improved: what is worth a visit differs between good and poor placements."""
    annealing_evaluations: tuple[int, int] = (30, 5000)
    """How long it did, uniform in the logarithm."""
    perturbed_share: float = 0.25
    """Of the starts, those in which some units were moved at random."""
    perturbed_units: tuple[float, float] = (0.02, 0.5)
    """The part of the units that were moved, uniform in its logarithm."""
    devices: DeviceRanges = DeviceRanges()

    def unit_limit(self, number: int) -> float:
        """The most units that problem `number` is drawn with."""
        return float(self.min_units * (self.max_units / self.min_units) ** min(1.0, number / max(1, self.growth)))


@dataclass(frozen=True)
class SampledProblems:
    """A source of problems: problem `number` follows from the seed and that number alone.

    >>> problems = SampledProblems(seed=0)
    >>> problems(3).name == problems(3).name, problems(3).starts.shape[0]
    (True, 8)
    """

    seed: int
    ranges: ProblemRanges = ProblemRanges()

    def __call__(self, number: int) -> TrainingProblem:
        """A graph on devices, with starts of several kinds; rewards are fractions of the best one that was built in one go."""
        rng = np.random.default_rng([self.seed, number])
        limit = self.ranges.unit_limit(number)
        units = round(float(np.exp(rng.uniform(np.log(self.ranges.min_units), np.log(limit)))))
        setting = _setting(_graph(rng, units, self.ranges), units, rng, self.ranges)
        problem = setting.problem()
        bases, base_s = _bases(problem, self.ranges, int(rng.integers(2**31)))
        starts = _starts(problem, bases, self.ranges, rng)
        return TrainingProblem(
            name=f"{setting.workload.name} on {setting.topology.name}",
            problem=problem,
            starts=starts,
            start_s=problem.penalised_batch_s(problem.evaluator.evaluate_batch(starts)),
            reference_s=max(base_s, 1e-12),
        )


def training_families() -> tuple[str, ...]:
    """The families that training problems are drawn from, generated ones too; those of the test split are none of them."""
    from models_zoo.networks.catalog import FAMILIES

    return tuple(name for name, family in FAMILIES.items() if family.split == "train")


@cache
def training_graphs(max_ops: int) -> Mapping[str, Sequence[str]]:
    """The networks of the zoo to train on, by family, that have at most that many ops."""
    from models_zoo.networks.catalog import GENERATED
    from models_zoo.networks.shipped import has_structure, manifest

    allowed = set(training_families()) - GENERATED
    rows = [row for row in manifest() if row.family in allowed and row.ops <= max_ops and has_structure(row.key)]
    return {family: [row.key for row in rows if row.family == family] for family in sorted({r.family for r in rows})}


def _graph(rng: np.random.Generator, units: int, ranges: ProblemRanges) -> OpGraph:
    """A random graph of that many ops, or a network of the zoo, whatever its size: it will be coarsened."""
    from models_zoo.networks.generated.sampling import sample_graph

    if rng.random() >= ranges.zoo_share:
        return sample_graph(rng, units)
    graphs = training_graphs(ranges.max_zoo_ops)
    keys = graphs[str(rng.choice(list(graphs)))]
    return _structure(str(rng.choice(keys)))


@cache
def _structure(key: str) -> OpGraph:
    from models_zoo.networks.shipped import read_structure

    return read_structure(key)


def _setting(graph: OpGraph, units: int, rng: np.random.Generator, ranges: ProblemRanges) -> Setting:
    topology = sample_devices(rng, ranges.devices)
    cost = PerTypeCost(RooflineCost(), int(rng.integers(2**31)), rng.uniform(0.0, ranges.type_spread))
    setting = replace(setting_of(Workload(graph), topology, cost, max_groups=units), num_threads=1)
    host = topology.num_devices - 1
    alone = setting.simulator.evaluate(Placement(np.full(graph.num_ops, host)))
    needed_bytes = int(alone.peak_memory_bytes[host])
    return replace(setting, topology=limit_memory(topology, needed_bytes, rng, ranges.devices))


def _bases(problem: Problem, ranges: ProblemRanges, seed: int) -> tuple[IntArray, float]:
    """Best single device, HEFT and the best of a few list schedules, as far as they are good; seconds of the best."""
    budget = Budget(evaluations=ranges.portfolio_evaluations)
    solutions = [load_planner(name)(problem, budget, seed) for name in ("single", "heft", "heft-portfolio")]
    solutions.sort(key=lambda solution: solution.objective_s)
    best_s = solutions[0].objective_s
    good = [solution for solution in solutions if solution.objective_s <= ranges.worst_base * best_s]
    return np.array([solution.placement.assignment for solution in good]), best_s


def _starts(problem: Problem, bases: IntArray, ranges: ProblemRanges, rng: np.random.Generator) -> IntArray:
    """`[B, N]` bases, what annealing makes of the best one, and some of both with units moved at random."""
    starts: IntArray = bases[rng.integers(len(bases), size=ranges.num_envs)]
    annealed = np.flatnonzero(rng.random(ranges.num_envs) < ranges.annealed_share)
    fewest, most = np.log(ranges.annealing_evaluations)
    lengths = np.sort(np.exp(rng.uniform(fewest, most, size=len(annealed))).astype(np.int64))
    starts[annealed] = _annealed(problem, bases[0], lengths, rng)
    for row in np.flatnonzero(rng.random(ranges.num_envs) < ranges.perturbed_share).tolist():
        starts[row] = _perturbed(problem, starts[row], ranges, rng)
    return starts


def _annealed(problem: Problem, start: IntArray, lengths: IntArray, rng: np.random.Generator) -> IntArray:
    """`[L, N]` the best placement after so many evaluations each, `lengths` rising, one walk going on from the other."""
    search, proposals = problem.estimator.local_search(problem), AnnealingConfig().proposals
    rows = []
    for length in np.diff(lengths, prepend=0).tolist():
        value_s = float(problem.penalised_batch_s(problem.evaluator.evaluate_batch(start[None]))[0])
        warm_s, cold_s = (temperature * value_s for temperature in _TEMPERATURES)
        start = search.walk(WalkRequest(start, length, warm_s, cold_s, proposals), rng).best
        rows.append(start)
    return np.array(rows, dtype=np.int64).reshape(len(lengths), problem.graph.num_ops)


def _perturbed(problem: Problem, start: IntArray, ranges: ProblemRanges, rng: np.random.Generator) -> IntArray:
    """`[N]` a start with a part of its units moved anywhere they may go."""
    share = np.exp(rng.uniform(*np.log(ranges.perturbed_units)))
    moved = rng.random(problem.num_units) < share
    scores = np.where(problem.action_mask, rng.random(problem.action_mask.shape), -1.0)
    devices = scores.argmax(axis=1)
    return np.where(moved[problem.unit_of_op], devices[problem.unit_of_op], start)
