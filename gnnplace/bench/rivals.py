"""Planners that share the budgets of `gnn`: many simulations choose few placements to execute.

Each has as many simulated and as many executed evaluations as `gnn` had, and executes every single device first, as `gnn` does.
Where `gnn` is no better than these, neither its policy nor its correction of the simulator is of use.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Evaluation, EvaluationBatch, Evaluator, EvaluatorKind, Problem
from gnnplace.placement import Placement
from gnnplace.planners.classical import annealing
from gnnplace.planners.classical.annealing import AnnealingConfig
from gnnplace.planners.classical.constructions import evaluate_starts
from gnnplace.planners.metropolis import accepts, cooled_s
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution

Rival = Callable[[Problem, Budget, int, int], Solution]
"""Maps a problem with executions, the budget of executions, a seed and the number of simulations to a solution."""
_EXECUTED_SHARE = 0.5
"""Share of the executions for the best simulated placements; the others are moves."""
_TEMPERATURES = (2e-2, 1e-3)
"""First and last temperature of the moves, as fractions of the best executed seconds; those of the walks of `gnn`."""
_MAX_PROPOSALS = 1000
"""Consecutive proposals of known placements after which the moves end."""
_CONSTRUCTED_SHARE = 0.5
"""Share of the placements that are built without search, in `best-of-simulated`."""


class _Recorded:
    """A simulator that records every placement; annealing makes its moves one by one, as where evaluations are executions."""

    kind: EvaluatorKind = "measured"

    def __init__(self, simulator: Evaluator, problem: Problem) -> None:
        self._simulator, self._problem = simulator, problem
        self.seconds: dict[bytes, tuple[float, IntArray]] = {}

    def evaluate(self, placement: Placement) -> Evaluation:
        found = self._simulator.evaluate(placement)
        self._note(placement.assignment, self._problem.penalised_s(found))
        return found

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        found = self._simulator.evaluate_batch(assignments)
        for row, value in zip(assignments, self._problem.penalised_batch_s(found).tolist(), strict=True):
            self._note(row, value)
        return found

    def _note(self, assignment: IntArray, seconds: float) -> None:
        self.seconds.setdefault(assignment.tobytes(), (seconds, assignment))

    def best_first(self) -> list[IntArray]:
        return [row for _, row in sorted(self.seconds.values(), key=lambda entry: entry[0])]


def plan_annealed_then_executed(problem: Problem, budget: Budget, seed: int, simulated: int) -> Solution:
    """Annealing in the simulator; then its best distinct placements are executed, and annealing moves around the best of them."""
    with Search(problem, budget, "annealed-then-executed", seed) as search:
        seen = _execute_singles(search)
        recorded = _Recorded(problem.simulated.evaluator, problem)
        annealing.plan(replace(problem, evaluator=recorded), Budget(max(1, simulated)), seed)
        search.simulated = simulated
        rows = seen.fresh(recorded.best_first())[: int(_EXECUTED_SHARE * search.remaining)]
        search.evaluate_batch(np.array(rows).reshape(len(rows), problem.graph.num_ops))
        search.stage("simulated")
        _execute_moves(search, Seen([*problem.single_device_assignments, *rows]), np.random.default_rng(seed))
        search.stage("moves")
    return search.solution()


def _execute_moves(search: Search, seen: Seen, rng: np.random.Generator) -> None:
    """Anneals by executing new placements, from the best one, until the budget ends or no move is new."""
    assert search.best is not None
    current, current_s = search.best.assignment, search.best_s
    (first, last), moves = _TEMPERATURES, search.remaining
    for step in range(moves):
        proposals = (
            search.problem.local_search.propose(current, AnnealingConfig().proposals, rng)
            for _ in range(_MAX_PROPOSALS)
        )
        moved = next(filter(seen.add, proposals), None)
        if moved is None:
            return
        moved_s = float(search.evaluate_batch(moved[None])[0])
        if accepts(current_s, moved_s, cooled_s(search.best_s * first, last / first, step / moves), rng):
            current, current_s = moved, moved_s


def plan_best_of_simulated(problem: Problem, budget: Budget, seed: int, simulated: int) -> Solution:
    """Executes distinct answers of simulated searches with different seeds: constructions, and annealing with equal shares."""
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "best-of-simulated", seed) as search:
        seen, twin = _execute_singles(search), problem.simulated
        wanted = search.remaining
        constructed = np.zeros((0, problem.graph.num_ops), dtype=np.int64)
        with Search(twin, Budget(max(1, simulated // 2)), "constructions", seed) as building:
            constructed = evaluate_starts(building, 2 * wanted, rng).assignments
        rows = seen.fresh(constructed)
        answers = rows[: int(_CONSTRUCTED_SHARE * wanted)]
        searches = max(1, wanted - len(answers))
        each = max(1, (simulated - building.evaluations) // searches)
        annealed = (
            annealing.plan(twin, Budget(each), int(one)).placement.assignment
            for one in rng.integers(2**31, size=searches)
        )
        answers += Seen([*problem.single_device_assignments, *answers]).fresh(annealed)
        rest = Seen(answers).fresh(rows)
        search.simulated = building.evaluations + each * searches
        search.evaluate_batch(np.array([*answers, *rest][:wanted]).reshape(-1, problem.graph.num_ops))
        search.stage("simulated")
    return search.solution()


def _execute_singles(search: Search) -> Seen:
    """Executes every single device; gives what was executed."""
    seen = Seen()
    search.evaluate_batch(np.array(seen.fresh(search.problem.single_device_assignments)))
    search.stage("single")
    return seen


RIVALS: Mapping[str, Rival] = {
    "annealed-then-executed": plan_annealed_then_executed,
    "best-of-simulated": plan_best_of_simulated,
}
