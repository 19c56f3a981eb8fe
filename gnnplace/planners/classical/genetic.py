"""A biased random-key genetic algorithm over device preferences."""

from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution


@dataclass(frozen=True)
class GeneticConfig:
    """Hyper-parameters, in the ranges that Gonçalves and Resende 2011 recommend."""

    generations: int = 50
    """Generations that the population size lets fit into the budget."""
    elite_share: float = 0.2
    """Share of the population that is passed on unchanged. Recommended: 0.1 to 0.25."""
    mutant_share: float = 0.1
    """Share of the population that is new random chromosomes. Recommended: 0.1 to 0.3."""
    elite_inheritance: float = 0.7
    """Chance that a key comes from the elite parent. Recommended: above 0.5, up to 0.8."""


_MIN_POPULATION, _MAX_POPULATION = 10, 500
_BATCH_SIZE = 16  # placements that are evaluated together
_PATIENCE = 20  # generations in a row without a new placement that end the search
# Where the budget is unlimited:
_UNLIMITED_POPULATION = 100
_UNLIMITED_EVALUATIONS_PER_UNIT = 1000


def plan(problem: Problem, budget: Budget, seed: int, config: GeneticConfig = GeneticConfig()) -> Solution:
    """The best placement of all generations, over the whole budget.

    BRKGA, Gonçalves and Resende 2011, as the search of REGAL (Paliwal et al. 2020) without its learned proposals: a
    chromosome has one key in [0, 1) per unit and device, each unit goes to the allowed device with its highest key, and
    the first population is random. Departures: no keys for the order of ops and transfers, which the evaluator decides
    as for every planner; no placement is evaluated twice; the population, in the paper at least the length of the
    chromosome, shrinks with the budget.

    This is own code: brkga-mp-ipr has had no release since 2019 and decodes one chromosome at a time, and pymoo depends
    on half a dozen libraries of its own.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng = np.random.default_rng(seed)
    budget = budget.bounded(_UNLIMITED_EVALUATIONS_PER_UNIT * problem.num_units)
    with Search(problem, budget, "genetic", seed) as search:
        keys = rng.random((population_size(budget.evaluations, config), *problem.action_mask.shape))
        fitness = _Fitness(search)
        seconds = fitness.evaluate(keys)
        while fitness.idle < _PATIENCE:
            order = np.argsort(seconds, kind="stable")
            keys, elite_s = keys[order], seconds[order]
            keys, num_elite = next_generation(keys, rng, config)
            seconds = np.concatenate([elite_s[:num_elite], fitness.evaluate(keys[num_elite:])])
    return search.solution()


def population_size(evaluations: int | None, config: GeneticConfig) -> int:
    """Chromosomes of a generation; every generation but the first evaluates all but its elite."""
    if evaluations is None:
        return _UNLIMITED_POPULATION
    fitting = int(evaluations / (1 + (config.generations - 1) * (1 - config.elite_share)))
    return min(max(fitting, _MIN_POPULATION), _MAX_POPULATION)


def next_generation(keys: FloatArray, rng: np.random.Generator, config: GeneticConfig) -> tuple[FloatArray, int]:
    """`[P, U, D]` the generation after `keys`, which are sorted best first, and the size of its elite.

    Elite, then children, then mutants. A child has one parent from the elite and one from the others.
    """
    count = len(keys)
    elite = max(1, round(config.elite_share * count))
    mutants = max(1, round(config.mutant_share * count))
    children = count - elite - mutants
    better = keys[rng.integers(0, elite, children)]
    other = keys[rng.integers(elite, count, children)]
    crossed = np.where(rng.random(better.shape) < config.elite_inheritance, better, other)
    return np.concatenate([keys[:elite], crossed, rng.random((mutants, *keys.shape[1:]))]), elite


def decode(keys: FloatArray, action_mask: BoolArray) -> IntArray:
    """`[P, U]` the allowed device with the highest of the keys `[P, U, D]`; the first of equal ones."""
    return np.asarray(np.argmax(np.where(action_mask, keys, -1.0), axis=2))


class _Fitness:
    """Penalised seconds of chromosomes; evaluates every placement once."""

    def __init__(self, search: Search) -> None:
        self._search, self._known = search, dict[bytes, float]()
        self.idle = 0
        """Calls in a row without a new placement."""

    def evaluate(self, keys: FloatArray) -> FloatArray:
        """`[P]` seconds of `[P, U, D]` keys."""
        problem = self._search.problem
        units = decode(keys, problem.action_mask)
        names = [row.tobytes() for row in units]
        fresh = list({name: row for row, name in enumerate(names) if name not in self._known}.values())
        self.idle = 0 if fresh else self.idle + 1
        for begin in range(0, len(fresh), _BATCH_SIZE):
            rows = fresh[begin : begin + _BATCH_SIZE]
            seconds = self._search.evaluate_batch(units[rows][:, problem.unit_of_op])
            self._known.update((names[row], value) for row, value in zip(rows, seconds.tolist(), strict=True))
        return np.array([self._known[name] for name in names])
