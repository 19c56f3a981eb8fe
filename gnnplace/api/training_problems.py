"""Endless problems to train on: random graphs and the zoo's training families, on random device sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload
from gnnplace.cost.cost_model import PerTypeCost, RooflineCost
from gnnplace.devices.sampled import DeviceRanges, limit_memory, sample_devices
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import WalkRequest
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.gnn.constructions import evaluate_starts
from gnnplace.planners.search import Search
from gnnplace.training.search_ppo import TrainingProblem

__all__ = ["ProblemRanges", "SampledProblems", "training_families", "training_graphs"]

_TEMPERATURES = (2e-3, 1e-4)
"""First and last of a walk, as fractions of the seconds that it begins with."""


@dataclass(frozen=True)
class ProblemRanges:
    """What training problems are drawn from."""

    min_units: int = 40
    max_units: int = 250
    growth: int = 300
    """Problems until the largest ones are `max_units`, a quarter of a run with defaults on two cores; the limit grows by the same factor each time."""
    zoo_share: float = 0.35
    """Of the problems, those on networks of the zoo; the others are on random graphs."""
    max_zoo_ops: int = 4000
    """Networks with more ops are left out: reading one takes seconds, simulating it op by op milliseconds."""
    type_spread: float = 0.6
    """Largest standard deviation of the logarithm of what op types cost more or less on a kind of device; from 0."""
    max_pairs: int = 900
    """Units times devices: what a search of training costs grows with them. Larger problems are drawn again."""
    constructions: int = 40
    """Placements built in one go, of which the best is the start."""
    least_headroom: float = 0.01
    """On most problems searches end alike after a few hundred evaluations; they teach nothing, and are drawn again. This is by how
    much a longer walk from the start must at least beat a shorter one, in the logarithm of the seconds, each the best of two."""
    headroom_evaluations: tuple[int, int] = (300, 3000)
    """Of the shorter and the longer walk."""
    max_draws: int = 30
    """After so many problems the last one that fits is taken."""
    devices: DeviceRanges = DeviceRanges()

    def unit_limit(self, number: int) -> float:
        """The most units that problem `number` is drawn with."""
        return float(self.min_units * (self.max_units / self.min_units) ** min(1.0, number / max(1, self.growth)))


@dataclass(frozen=True)
class SampledProblems:
    """A source of problems: problem `number` follows from the seed and that number alone.

    >>> problems = SampledProblems(seed=0)
    >>> problems(3).name == problems(3).name
    True
    """

    seed: int
    ranges: ProblemRanges = ProblemRanges()

    def __call__(self, number: int) -> TrainingProblem:
        """A graph on devices where searches differ, with the best of a few constructions to start from."""
        fitting = None
        for draw in range(self.ranges.max_draws):
            exercise = self._drawn(number, np.random.default_rng([self.seed, number, draw]))
            if exercise is None:
                continue
            if _headroom(exercise, self.ranges) >= self.ranges.least_headroom:
                return exercise
            fitting = exercise
        if fitting is None:
            raise GnnplaceError(
                f"problem {number} of seed {self.seed}: none of {self.ranges.max_draws} draws is small enough and fits; choose another seed"
            )
        return fitting

    def _drawn(self, number: int, rng: np.random.Generator) -> TrainingProblem | None:
        """None where it is too large, or no start fits."""
        ranges = self.ranges
        units = round(float(np.exp(rng.uniform(np.log(ranges.min_units), np.log(ranges.unit_limit(number))))))
        setting = _setting(_graph(rng, units, ranges), units, rng, ranges)
        problem = setting.problem()
        if problem.num_units * problem.topology.num_devices > ranges.max_pairs:
            return None
        starts, start_s = np.zeros((0, problem.graph.num_ops), dtype=np.int64), np.zeros(0)
        with Search(problem, Budget(evaluations=ranges.constructions), "gnn", number) as search:  # HEFT may use up all
            starts, start_s = evaluate_starts(search, ranges.constructions, rng)
        if not len(starts) or not start_s[0] <= problem.worst_case_s:
            return None
        name = f"{setting.workload.name} on {setting.topology.name}"
        return TrainingProblem(name, problem, starts[0], float(start_s[0]))


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


def _setting(graph: OpGraph, units: int, rng: np.random.Generator, ranges: ProblemRanges) -> ProblemSetup:
    topology = sample_devices(rng, ranges.devices)
    cost = PerTypeCost(RooflineCost(), int(rng.integers(2**31)), rng.uniform(0.0, ranges.type_spread))
    setting = replace(
        ProblemSetup.build(Workload.of(graph), topology, cost, PlaceOptions(max_groups=units)), num_threads=1
    )
    host = topology.num_devices - 1
    alone = setting.simulator.evaluate(Placement(np.full(graph.num_ops, host)))
    needed_bytes = int(alone.peak_memory_bytes[host])
    return replace(setting, topology=limit_memory(topology, needed_bytes, rng, ranges.devices))


def _headroom(exercise: TrainingProblem, ranges: ProblemRanges) -> float:
    """See `ProblemRanges.least_headroom`."""
    search, proposals = exercise.problem.local_search, AnnealingConfig().proposals
    warm_s, cold_s = (temperature * exercise.start_s for temperature in _TEMPERATURES)
    shorter_s, longer_s = (
        min(
            search.walk(
                WalkRequest(exercise.start, evaluations, warm_s, cold_s, proposals), np.random.default_rng(seed)
            ).best_s
            for seed in range(2)
        )
        for evaluations in ranges.headroom_evaluations
    )
    return float(np.log(shorter_s / longer_s))
