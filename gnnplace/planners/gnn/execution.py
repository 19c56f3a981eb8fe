"""Search with executions: each step is the most promising change by the corrected simulator, executed against the current placement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.process import PlacementProcess
from gnnplace.evaluation import PairedEvaluator, Problem
from gnnplace.local_search import Proposals
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.classical.constructions import evaluate_starts
from gnnplace.planners.gnn.correction import Candidate, Correction, CorrectionConfig
from gnnplace.planners.gnn.moves import Candidates, Moves, MovesConfig
from gnnplace.planners.gnn.odds import PolicySearch
from gnnplace.planners.metropolis import accepts, cooled_s
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Planner, Solution
from gnnplace.policy.checkpoint import Policy
from gnnplace.policy.network import one_thread, policy_inputs

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
    """Moves drawn by the policy from which the most promising one is executed."""
    policy_moves: MovesConfig = MovesConfig()
    moves: Proposals = AnnealingConfig().proposals
    worth: float = 1.1
    """Most expected seconds of a rehearsed placement that is still executed, as a multiple of the best placement's."""
    max_idle: int = 30
    """Consecutive turns without a new placement after which the search ends."""


def plan_measured(
    problem: Problem, budget: Budget, seed: int, network: Policy, planner: Planner, config: ExecutionConfig
) -> Solution:
    """The placement that no executed step improved on; the search begins at the best single device, which is executed first.

    Stages, noted in the solution: `single`, `rehearsal` (the simulator runs `planner` and constructions; steps to the best results
    are executed), `execution` (the rest of the budget; the corrected simulator and the policy choose each step). A step is executed
    against the current placement, and kept if the interval of their difference shows that it is faster. No step leads to a
    placement that was executed before. Where several machines execute, each step compares with the reference of its machine
    instead, and is kept if it is faster.
    """
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "gnn", seed) as search, one_thread():
        alone = {row.tobytes(): row for row in problem.single_device_assignments}
        singles = np.array(list(alone.values())).reshape(len(alone), problem.graph.num_ops)
        seconds = search.evaluate_batch(singles)
        search.stage("single")
        if problem.num_moves:
            assignments = rehearse(search, planner, rng, config.rehearsal)
            execution = _Execution(PolicySearch(search, policy_inputs(problem), network, rng), config)
            for assignment, value in zip(singles, seconds.tolist(), strict=True):
                execution.note(execution.candidate(assignment), value)
            pool = [execution.candidate(assignment) for assignment in assignments]
            first = filter(execution.is_new, pool[: config.rehearsed])
            execution.execute([Proposal(candidate, "rehearsal") for candidate in first])
            search.stage("rehearsal")
            execution.search_on(pool)
            search.stage("execution")
    return search.solution()


def rehearse(search: Search, planner: Planner, rng: np.random.Generator, config: RehearsalConfig) -> IntArray:
    """Runs a planner with several seeds, and builds starts, on the simulated twin of a search's problem; executes nothing.

    Gives distinct placements `[P, N]`, the searches' answers and then the starts, each best first. The search counts the
    simulations and takes the best planner's steps.

    Raises:
        KeyboardInterrupt: the rehearsal was interrupted.
    """
    twin, seconds = search.problem.simulated, None
    if search.budget.seconds is not None:
        left_s = search.budget.seconds - search.wall_s
        seconds = max(_LEAST_S, config.share_of_seconds * left_s / (config.searches + 1))
    rows = np.zeros((0, twin.graph.num_ops), dtype=np.int64)  # an interrupt may end the block at any time
    with Search(twin, Budget(None, seconds), search.planner, search.seed) as starts:
        rows = evaluate_starts(starts, config.starts, rng).assignments
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
    return np.array(list(distinct.values()))


@dataclass(frozen=True, eq=False)
class Proposal:
    """A step that is to be executed."""

    candidate: Candidate
    kind: str
    """Source: `rehearsal`, `policy` or `walk`."""
    drawn: Candidates | None = None
    """The policy's draw, alone."""


class _Execution:
    """The decision process on devices, the executed placements, and the choice of the next step."""

    def __init__(self, policy_search: PolicySearch, config: ExecutionConfig) -> None:
        """Begins at the best placement of the search."""
        search = self._search = policy_search.search
        problem, self._rng, self._config = search.problem, policy_search.rng, config
        self._correction = Correction(problem, config.correction)
        self._executed: set[bytes] = set()
        self._kind = "rehearsal"
        assert search.best is not None
        rows, is_paired = problem.executed_at_once, isinstance(problem.evaluator, PairedEvaluator)
        self._process = PlacementProcess(
            problem, search.evaluate_batch, max(min(search.best_s, problem.worst_case_s), 1e-12), policy_search.inputs.tables,
            self._measured if is_paired and rows == 1 else None,
        )  # fmt: skip
        begin = np.tile(problem.unit_devices(search.best.assignment), (rows, 1))
        self._process.reset(begin, np.full(rows, search.best_s))
        self._moves = Moves(policy_search, config.policy_moves, config.neighbours)
        self._score()

    def candidate(self, assignment: IntArray) -> Candidate:
        """Simulates an assignment `[N]` that may be executed next, and counts it as simulated."""
        self._search.simulated += 1
        return self._correction.candidate(assignment)

    def is_new(self, candidate: Candidate) -> bool:
        """True where the candidate was not executed before."""
        return candidate.key not in self._executed

    def execute(self, proposals: Sequence[Proposal]) -> None:
        """Steps to distinct placements, as many alternatives at once as there are hosts; keeps a step that is faster."""
        process, unit_devices = self._process, self._search.problem.unit_devices
        while proposals:
            at_once = max(1, min(process.num_placements, self._search.remaining))
            now, proposals = proposals[:at_once], proposals[at_once:]
            self._kind, before_s = now[0].kind, float(process.seconds[0])
            process.step(unit_devices(np.array([proposal.candidate.assignment for proposal in now])))
            seconds = process.seconds[: len(now)]
            fastest, best = int(seconds.argmin()), self._search.best
            is_faster = best is not None and best.assignment.tobytes() == now[fastest].candidate.key
            for row, proposal in enumerate(now):
                self.note(proposal.candidate, float(seconds[row]))
                if proposal.drawn is not None:
                    after_s = (
                        float(seconds[row]) if is_faster and row == fastest else max(before_s, float(seconds[row]))
                    )
                    self._moves.learn(proposal.drawn, [after_s], before_s)
            if is_faster:
                process.keep(fastest)
                self._score()
            else:
                process.take_back()

    def note(self, candidate: Candidate, seconds: float) -> None:
        """Notes the seconds of an execution, for the correction."""
        self._executed.add(candidate.key)
        self._correction.learn(candidate, seconds)

    def search_on(self, pool: list[Candidate]) -> None:
        """Executes one of the pool, a move of the policy and the end of a walk in turn, until the budget ends or nothing is new.

        A walk exploits the errors of the correction; the pool was made without it, and single moves hardly differ in it.
        """
        idle, turn, at_once = 0, 0, self._process.num_placements
        while idle < self._config.max_idle and self._search.remaining:
            self._correction.refit(self._rng)
            now, batch = self._correction.candidate(self._current), list[Proposal]()
            while len(batch) < at_once and idle < self._config.max_idle:
                found = self._next(turn, now, pool)
                turn, idle = turn + 1, idle + 1
                if found is not None:
                    self._executed.add(found.candidate.key)  # a batch holds each placement once
                    batch.append(found)
                    idle = 0
                elif not batch:
                    break
            self.execute(batch)

    @property
    def _current(self) -> IntArray:
        """`[N]` the current placement."""
        return np.asarray(self._process.devices[0, self._search.problem.unit_of_op])

    def _measured(self, before: IntArray, before_s: FloatArray, after: IntArray) -> FloatArray:
        """Seconds after one step; a placement that does not fit is not measured against another."""
        fits = [self._correction.candidate(row[0]).fits for row in (before, after)]
        if not (all(fits) and before_s[0] < np.inf):
            return self._search.evaluate_batch(after)
        return np.array([self._search.execute_step(self._kind, before[0], float(before_s[0]), after[0])])

    def _score(self) -> None:
        """The policy scores the current placement."""
        self._moves.note(self._process.devices[0], float(self._process.seconds[0]))
        self._moves.move_odds.update(self._process.devices[0], self._process.schedules(0))

    def _next(self, turn: int, now: Candidate, pool: list[Candidate]) -> Proposal | None:
        """The most promising new placement from the source of this turn."""
        estimate_s = self._correction.estimate_s
        rehearsed = self._most_promising(pool)
        if turn % 3 == 0 and rehearsed is not None and estimate_s(rehearsed) <= self._config.worth * estimate_s(now):
            return Proposal(rehearsed, "rehearsal")
        if turn % 3 == 1:
            return self._drawn()
        end = self._end_of_walk(now)
        return None if end is None else Proposal(end, "walk")

    def _drawn(self) -> Proposal | None:
        """The most promising of several moves that the policy draws."""
        drawn = self._moves.draw(self._config.neighbours, float(self._process.seconds[0]))
        candidates = [self.candidate(row) for row in drawn.devices[:, self._search.problem.unit_of_op]]
        new = filter(lambda index: self.is_new(candidates[index]), range(len(candidates)))
        best = min(new, key=lambda index: self._correction.promise_s(candidates[index]), default=None)
        return None if best is None else Proposal(candidates[best], "policy", drawn.rows(np.array([best])))

    def _most_promising(self, candidates: list[Candidate]) -> Candidate | None:
        """The new candidate with the best estimate; None if all were executed."""
        return min(filter(self.is_new, candidates), key=self._correction.promise_s, default=None)

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
