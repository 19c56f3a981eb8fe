"""Endless problems for training: random graphs and the zoo's training families, on random device sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import numpy as np

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload
from gnnplace.arrays import IntArray
from gnnplace.cost.cost_model import PerTypeCost, RooflineCost
from gnnplace.devices.sampled import DeviceRanges, limit_memory, sample_devices
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph
from gnnplace.local_search import WalkRequest
from gnnplace.placement import Placement
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.classical.constructions import list_schedules
from gnnplace.planners.classical.list_schedule import list_schedule
from gnnplace.random_numbers import log_uniform
from gnnplace.training.search_ppo import TrainingProblem
from models_zoo.networks.catalog import FAMILIES, GENERATED
from models_zoo.networks.generated.sampling import sample_graph
from models_zoo.networks.shipped import has_structure, manifest, read_structure

_structure = cache(read_structure)
_TEMPERATURES = (2e-3, 1e-4)
"""First and last temperature of a walk, as fractions of the seconds of its start."""


@dataclass(frozen=True)
class ProblemRanges:
    """The distribution of training problems."""

    min_units: int = 40
    max_units: int = 250
    growth: int = 300
    """Number of problems until the largest ones have `max_units`, a quarter of a default run on two cores; the limit grows
    geometrically."""
    zoo_share: float = 0.35
    """Fraction of problems on networks of the zoo; the others are on random graphs."""
    max_zoo_ops: int = 4000
    """Maximum ops of these networks; reading a larger one takes seconds, and simulating it op by op milliseconds."""
    type_spread: float = 0.6
    """Maximum standard deviation of the logarithm of an op type's cost factor on a kind of device; the minimum is 0."""
    max_pairs: int = 900
    """Maximum units times devices, which determines the cost of a training search; larger problems are drawn again."""
    constructions: int = 40
    """Number of list schedules; the best of them and of single devices is the start. With 0 it is HEFT's, or one device where that
    does not fit."""
    least_headroom: float = 0.01
    """Minimum advantage of a longer over a shorter walk from the start, in the logarithm of the seconds, each the best of two.
    On most problems all searches end alike after a few hundred evaluations; such problems teach a search nothing and are drawn again.
    0: every problem is taken."""
    headroom_evaluations: tuple[int, int] = (300, 3000)
    """Evaluations of the shorter and of the longer walk."""
    max_draws: int = 30
    """Number of draws after which the last problem that fits is taken."""
    devices: DeviceRanges = DeviceRanges()

    def unit_limit(self, number: int) -> float:
        """Maximum units of problem `number`."""
        return float(self.min_units * (self.max_units / self.min_units) ** min(1.0, number / max(1, self.growth)))


LESSON_RANGES = ProblemRanges(
    min_units=30,
    max_units=600,
    zoo_share=0.4,
    type_spread=0.8,
    max_pairs=2400,
    constructions=0,
    least_headroom=0.0,
    devices=DeviceRanges(num_devices=(2, 4, 5, 7, 8, 9, 10, 12, 20, 32), binding_share=0.2, binding_memory=(0.6, 1.6)),
)
"""Problems whose schedules the policy builds and revises: more and larger ones than searches could learn from in the same time."""


@dataclass(frozen=True)
class SampledProblems:
    """A source of problems; the seed and the number alone determine a problem."""

    seed: int
    ranges: ProblemRanges = ProblemRanges()

    def __call__(self, number: int) -> TrainingProblem:
        """A graph on devices on which searches differ, with the best of a few constructions as its start."""
        fitting = None
        for draw in range(self.ranges.max_draws):
            problem = self._drawn(number, np.random.default_rng([self.seed, number, draw]))
            if problem is None:
                continue
            if self.ranges.least_headroom == 0.0 or _headroom(problem, self.ranges) >= self.ranges.least_headroom:
                return problem
            fitting = problem
        if fitting is None:
            raise GnnplaceError(
                f"problem {number} of seed {self.seed}: none of {self.ranges.max_draws} draws is small enough and fits; choose another seed"
            )
        return fitting

    def _drawn(self, number: int, rng: np.random.Generator) -> TrainingProblem | None:
        """None if the problem is too large or no start fits."""
        ranges = self.ranges
        units = round(log_uniform(rng, ranges.min_units, ranges.unit_limit(number)))
        setup = _set_up(_graph(rng, units, ranges), units, rng, ranges)
        problem = setup.problem()
        if problem.num_units * problem.topology.num_devices > ranges.max_pairs:
            return None
        start, start_s = _start(problem, rng, ranges)
        if not start_s <= problem.worst_case_s:
            return None
        return TrainingProblem(f"{setup.workload.name} on {setup.topology.name}", problem, start, start_s)


def training_families() -> tuple[str, ...]:
    """The families of training problems, also the generated ones; no family of the test split is among them."""
    return tuple(name for name, family in FAMILIES.items() if family.split == "train")


@cache
def training_graphs(max_ops: int) -> Mapping[str, Sequence[str]]:
    """The zoo's training networks with at most `max_ops` ops, by family."""
    allowed = set(training_families()) - GENERATED
    rows = [row for row in manifest() if row.family in allowed and row.ops <= max_ops and has_structure(row.key)]
    return {family: [row.key for row in rows if row.family == family] for family in sorted({r.family for r in rows})}


def _graph(rng: np.random.Generator, units: int, ranges: ProblemRanges) -> OpGraph:
    """A random graph of `units` ops, or a network of the zoo of any size, which is then coarsened."""
    if rng.random() >= ranges.zoo_share:
        return sample_graph(rng, units)
    graphs = training_graphs(ranges.max_zoo_ops)
    keys = graphs[str(rng.choice(list(graphs)))]
    return _structure(str(rng.choice(keys)))


def _set_up(graph: OpGraph, units: int, rng: np.random.Generator, ranges: ProblemRanges) -> ProblemSetup:
    topology = sample_devices(rng, ranges.devices)
    cost = PerTypeCost(RooflineCost(), int(rng.integers(2**31)), rng.uniform(0.0, ranges.type_spread))
    built = ProblemSetup.build(Workload.of(graph), topology, cost, PlaceOptions(max_groups=units))
    setup = replace(built, num_threads=1)
    host = topology.num_devices - 1
    alone = setup.simulator.evaluate(Placement(np.full(graph.num_ops, host)))
    needed_bytes = int(alone.peak_memory_bytes[host])
    return replace(setup, topology=limit_memory(topology, needed_bytes, rng, ranges.devices))


def _start(problem: Problem, rng: np.random.Generator, ranges: ProblemRanges) -> tuple[IntArray, float]:
    """The best construction `[N]` and its penalised seconds."""
    count = ranges.constructions
    built = (list_schedules(problem, channels, count // 2, rng) for channels in (True, False))
    heft = list_schedule(problem).assignment
    tried = np.array([heft, *chain.from_iterable(built), *problem.single_device_assignments])
    seconds = problem.penalised_batch_s(problem.evaluator.evaluate_batch(tried))
    best = 0 if not count and seconds[0] <= problem.worst_case_s else int(seconds.argmin())
    return tried[best], float(seconds[best])


def _headroom(problem: TrainingProblem, ranges: ProblemRanges) -> float:
    search, proposals = problem.problem.local_search, AnnealingConfig().proposals
    warm_s, cold_s = (temperature * problem.start_s for temperature in _TEMPERATURES)
    requests = (
        WalkRequest(problem.start, evaluations, warm_s, cold_s, proposals)
        for evaluations in ranges.headroom_evaluations
    )
    shorter_s, longer_s = (
        min(search.walk(request, np.random.default_rng(seed)).best_s for seed in range(2)) for request in requests
    )
    return float(np.log(shorter_s / longer_s))
