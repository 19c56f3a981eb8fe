"""Search with executions: the next placement to execute is the most promising by the corrected simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Problem, Proposals
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.gnn.correction import Candidate, Candidates, Correction, CorrectionConfig
from gnnplace.planners.gnn.rehearsal import RehearsalConfig, rehearse
from gnnplace.planners.metropolis import accepts, cooled_s
from gnnplace.planners.search import Planner, Search, Solution

__all__ = ["ExecutionConfig", "plan_measured"]


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
            rehearsal = rehearse(search, planner, rng, config.rehearsal)
            search.simulated += rehearsal.evaluations
            search.steps.extend(rehearsal.steps)
            execution = _Execution(search, rng, config, rehearsal.best_s)
            for assignment, value in zip(singles, seconds.tolist(), strict=True):
                execution.note(execution.candidate(assignment), value)
            pool = [execution.candidate(assignment) for assignment in rehearsal.assignments]
            execution.execute(pool[: config.rehearsed])
            search.stage("rehearsal")
            execution.search_on(pool)
            search.stage("execution")
    return search.solution()


class _Execution:
    """The executed placements, and the choice of the next ones."""

    def __init__(self, search: Search, rng: np.random.Generator, config: ExecutionConfig, scale_s: float) -> None:
        self._search, self._rng, self._config = search, rng, config
        self._candidates = Candidates(search.problem, scale_s)
        self._correction = Correction(scale_s, config.correction)
        self._executed: set[bytes] = set()

    def candidate(self, assignment: IntArray) -> Candidate:
        """Simulates an assignment `[N]`, and counts it as simulated."""
        self._search.simulated += 1
        return self._candidates.of(assignment)

    def execute(self, candidates: Sequence[Candidate]) -> None:
        """Executes the candidates that were not executed before."""
        distinct = {candidate.key: candidate for candidate in candidates if candidate.key not in self._executed}
        self._run(list(distinct.values()))

    def _run(self, candidates: Sequence[Candidate]) -> None:
        """Executes as many candidates at once as there are hosts."""
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
        idle, turn = 0, 0
        while idle < self._config.max_idle and self._search.remaining:
            self._correction.refit(self._rng)
            best, batch = self._best(), list[Candidate]()
            while len(batch) < self._search.problem.executed_at_once and idle < self._config.max_idle:
                found = self._next(turn, best, pool)
                turn, idle = turn + 1, idle + 1
                if found is not None:
                    self._executed.add(found.key)  # a batch holds each placement once
                    batch.append(found)
                    idle = 0
                elif not batch:
                    break
            self._run(batch)

    def _next(self, turn: int, best: Candidate, pool: list[Candidate]) -> Candidate | None:
        """The most promising new placement from the source of this turn."""
        rehearsed = self._most_promising(pool)
        if turn % 3 == 0 and rehearsed is not None and self._is_promising(rehearsed, best):
            return rehearsed
        if turn % 3 == 1:
            return self._most_promising([self._moved(best) for _ in range(self._config.neighbours)])
        return self._end_of_walk(best)

    def _best(self) -> Candidate:
        assert self._search.best is not None
        return self._candidates.of(self._search.best.assignment)

    def _is_promising(self, candidate: Candidate, best: Candidate) -> bool:
        return self._correction.estimate_s(candidate) <= self._config.worth * self._correction.estimate_s(best)

    def _most_promising(self, candidates: list[Candidate]) -> Candidate | None:
        """The candidate with the best estimate among those not executed yet; None if there is none."""
        fresh = [candidate for candidate in candidates if candidate.key not in self._executed]
        return min(fresh, key=self._correction.estimate_s, default=None)

    def _moved(self, candidate: Candidate) -> Candidate:
        local_search = self._search.problem.local_search
        return self.candidate(local_search.propose(candidate.assignment, self._config.moves, self._rng))

    def _end_of_walk(self, current: Candidate) -> Candidate | None:
        """The placement with the best estimate that annealing meets, among those not executed yet."""
        estimate_s, config = self._correction.estimate_s, self._config
        value = estimate_s(current)
        found, found_s = None, math.inf
        first, last = config.temperatures
        for step in range(config.walk_moves):
            moved = self._moved(current)
            moved_s = estimate_s(moved)
            if moved_s < found_s and moved.key not in self._executed:
                found, found_s = moved, moved_s
            temperature_s = cooled_s(value * first, last / first, step / config.walk_moves)
            if accepts(value, moved_s, temperature_s, self._rng):
                current, value = moved, moved_s
        return found
