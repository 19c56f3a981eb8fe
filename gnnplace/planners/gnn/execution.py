"""Search with executions: the next placement to execute is the most promising by the corrected simulator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Evaluator, Problem, Proposals
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.gnn.constructions import evaluate_starts
from gnnplace.planners.gnn.correction import Candidate, Correction, CorrectionConfig
from gnnplace.planners.metropolis import accepts, cooled_s
from gnnplace.planners.search import Budget, Planner, Search, Solution

_LEAST_S = 0.05  # enough for a planner to evaluate a few placements


@dataclass(frozen=True)
class RehearsalConfig:
    """Amount of simulation before anything but a single device is executed."""

    searches: int = 3
    """Searches with different seeds, which end at placements about as good and unlike each other. After 40 executions in distorted
    simulators of two networks, 3 led to 1.4 % less time than 2; eight runs each."""
    evaluations_per_unit: int = 30
    """Evaluations per unit of all searches together."""
    max_simulated_ops: float = 5e7
    """Evaluations times ops of all searches together; not a limit in seconds, so that a seed repeats its answer."""
    starts: int = 60
    """Placements built without search; they cross between devices less often than those of searches and may run faster."""
    share_of_seconds: float = 0.2
    """Share of the remaining seconds, where the budget limits them."""


@dataclass(frozen=True)
class ExecutionConfig:
    """Choice of the next placement to execute."""

    rehearsal: RehearsalConfig = RehearsalConfig()
    correction: CorrectionConfig = CorrectionConfig()
    rehearsed: int = 3
    """Placements of the rehearsal that are executed, in the simulator's order, before the first correction."""
    walk_moves: int = 100
    """Moves of the simulated walk before every third execution."""
    temperatures: tuple[float, float] = (2e-2, 1e-3)
    """First and last temperature of a walk, as fractions of the estimate."""
    neighbours: int = 16
    """Moves of the best executed placement from which the most promising one is executed."""
    moves: Proposals = AnnealingConfig().proposals
    worth: float = 1.1
    """Most expected seconds of a rehearsed placement that is still executed, as a multiple of the best placement's."""
    max_idle: int = 30
    """Consecutive turns without a new placement after which the search ends."""


def plan_measured(problem: Problem, budget: Budget, seed: int, planner: Planner, config: ExecutionConfig) -> Solution:
    """The best placement that was executed; never worse than the best single device, which is executed first.

    Stages, noted in the solution: `single`, `rehearsal` (the simulator runs `planner` and constructions; the best results are
    executed), `execution` (the rest of the budget; the corrected simulator chooses each execution). No placement is executed twice.
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "gnn", seed) as search:
        alone = {row.tobytes(): row for row in problem.single_device_assignments}
        singles = np.array(list(alone.values())).reshape(len(alone), problem.graph.num_ops)
        seconds = search.evaluate_batch(singles)
        search.stage("single")
        if problem.num_moves:
            assignments, scale_s = rehearse(search, planner, rng, config.rehearsal)
            execution = _Execution(search, rng, config, scale_s)
            for assignment, value in zip(singles, seconds.tolist(), strict=True):
                execution.note(execution.candidate(assignment), value)
            pool = [execution.candidate(assignment) for assignment in assignments]
            execution.execute([candidate for candidate in pool[: config.rehearsed] if execution.is_new(candidate)])
            search.stage("rehearsal")
            execution.search_on(pool)
            search.stage("execution")
    return search.solution()


def rehearse(
    search: Search, planner: Planner, rng: np.random.Generator, config: RehearsalConfig
) -> tuple[IntArray, float]:
    """Runs a planner with several seeds, and builds starts, on the simulated twin of a search's problem; executes nothing.

    Gives distinct placements `[P, N]`, the searches' answers and then the starts, each best first, and the simulated seconds
    of the best one, positive even where nothing fits. The search counts the simulations and takes the best planner's steps.

    Raises:
        KeyboardInterrupt: the rehearsal was interrupted.
    """
    simulator, seconds = search.problem.estimator, None
    assert isinstance(simulator, Evaluator), "the schedule estimator can also evaluate placements"
    twin = replace(search.problem, evaluator=simulator)
    if search.budget.seconds is not None:
        left_s = search.budget.seconds - search.wall_s
        seconds = max(_LEAST_S, config.share_of_seconds * left_s / (config.searches + 1))
    rows = np.zeros((0, twin.graph.num_ops), dtype=np.int64)  # an interrupt may end the block at any time
    with Search(twin, Budget(None, seconds), search.planner, search.seed) as starts:
        rows = evaluate_starts(starts, config.starts, rng)[0]
    interrupted, evaluations = starts.interrupted, starts.evaluations
    ops = max(1, twin.local_search.ops_per_evaluation)
    count = min(config.evaluations_per_unit * twin.num_units, int(config.max_simulated_ops / ops)) // config.searches
    solutions: list[Solution] = []
    for seed in rng.integers(2**31, size=config.searches).tolist():
        if not interrupted:
            solutions.append(planner(twin, Budget(max(1, count), seconds), seed))
            interrupted, evaluations = solutions[-1].interrupted, evaluations + solutions[-1].evaluations
    if interrupted:
        raise KeyboardInterrupt
    solutions.sort(key=lambda solution: solution.objective_s)
    search.simulated += evaluations
    search.steps.extend(solutions[0].steps)
    distinct = {row.tobytes(): row for row in (*(solution.placement.assignment for solution in solutions), *rows)}
    best_s = solutions[0].objective_s
    return np.array(list(distinct.values())), best_s if 0.0 < best_s < np.inf else twin.penalty[0]


class _Execution:
    """The executed placements, and the choice of the next ones."""

    def __init__(self, search: Search, rng: np.random.Generator, config: ExecutionConfig, scale_s: float) -> None:
        self._search, self._rng, self._config = search, rng, config
        self._correction = Correction(search.problem, scale_s, config.correction)
        self._executed: set[bytes] = set()

    def candidate(self, assignment: IntArray) -> Candidate:
        """Simulates an assignment `[N]`, and counts it as simulated."""
        self._search.simulated += 1
        return self._correction.candidate(assignment)

    def is_new(self, candidate: Candidate) -> bool:
        """True where the candidate was not executed before."""
        return candidate.key not in self._executed

    def execute(self, candidates: Sequence[Candidate]) -> None:
        """Executes distinct candidates, as many at once as there are hosts."""
        while candidates:
            at_once = max(1, min(self._search.problem.executed_at_once, self._search.remaining))
            now, candidates = candidates[:at_once], candidates[at_once:]
            seconds = self._search.evaluate_batch(np.array([candidate.assignment for candidate in now]))
            for candidate, value in zip(now, seconds.tolist(), strict=True):
                self.note(candidate, value)

    def note(self, candidate: Candidate, seconds: float) -> None:
        """Notes the seconds of an execution, for the correction."""
        self._executed.add(candidate.key)
        self._correction.learn(candidate, seconds)

    def search_on(self, pool: list[Candidate]) -> None:
        """Executes one of the pool, the end of a walk and a neighbour of the best in turn, until the budget ends or nothing is new.

        A walk exploits the errors of the correction; the pool was made without it, and neighbours hardly differ in it.
        """
        idle, turn, at_once = 0, 0, self._search.problem.executed_at_once
        while idle < self._config.max_idle and self._search.remaining:
            assert self._search.best is not None
            self._correction.refit(self._rng)
            best, batch = self._correction.candidate(self._search.best.assignment), list[Candidate]()
            while len(batch) < at_once and idle < self._config.max_idle:
                found = self._next(turn, best, pool)
                turn, idle = turn + 1, idle + 1
                if found is not None:
                    self._executed.add(found.key)  # a batch holds each placement once
                    batch.append(found)
                    idle = 0
                elif not batch:
                    break
            self.execute(batch)

    def _next(self, turn: int, best: Candidate, pool: list[Candidate]) -> Candidate | None:
        """The most promising new placement from the source of this turn."""
        estimate_s = self._correction.estimate_s
        rehearsed = self._most_promising(pool)
        if turn % 3 == 0 and rehearsed is not None and estimate_s(rehearsed) <= self._config.worth * estimate_s(best):
            return rehearsed
        if turn % 3 == 1:
            return self._most_promising([self._moved(best) for _ in range(self._config.neighbours)])
        return self._end_of_walk(best)

    def _most_promising(self, candidates: list[Candidate]) -> Candidate | None:
        """The new candidate with the best estimate; None if all were executed."""
        return min(filter(self.is_new, candidates), key=self._correction.estimate_s, default=None)

    def _moved(self, candidate: Candidate) -> Candidate:
        local_search = self._search.problem.local_search
        return self.candidate(local_search.propose(candidate.assignment, self._config.moves, self._rng))

    def _end_of_walk(self, current: Candidate) -> Candidate | None:
        """The new placement with the best estimate that annealing meets."""
        estimate_s, config = self._correction.estimate_s, self._config
        value = estimate_s(current)
        found, found_s = None, math.inf
        first, last = config.temperatures
        for step in range(config.walk_moves):
            moved = self._moved(current)
            moved_s = estimate_s(moved)
            if moved_s < found_s and self.is_new(moved):
                found, found_s = moved, moved_s
            temperature_s = cooled_s(value * first, last / first, step / config.walk_moves)
            if accepts(value, moved_s, temperature_s, self._rng):
                current, value = moved, moved_s
        return found
