"""The planner `optimal`: passes of CP-SAT over the interval model, with a proof of optimality or a bound."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.classical.annealing import AnnealingConfig, anneal
from gnnplace.planners.classical.constructions import best_start
from gnnplace.planners.classical.list_schedule import start_order_priorities
from gnnplace.planners.classical.optimal.model import IntervalModel
from gnnplace.planners.classical.optimal.rules import (
    bound_by_paths,
    limit_memory,
    never_idle,
    pay_overheads,
    serve_in_turn,
)
from gnnplace.planners.search import BudgetExhausted, Search
from gnnplace.planners.solution import Budget, Solution

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


_MOST_TRIED = 100_000  # placements of a tiny problem
_PASSES = ("relaxed rules", "never idle", "simulator's rules")


@dataclass(frozen=True)
class OptimalConfig:
    """Limits of CP-SAT's time and of the size of its models."""

    work_per_evaluation: float = 2e-3
    """CP-SAT's deterministic time per evaluation of the budget: four units for 2,000 evaluations, which take half a minute
    to a minute of one core on small graphs. `budget.seconds` limits the real time."""
    unlimited_work: float = 40.0
    """CP-SAT's deterministic time where the budget is unlimited."""
    tolerance: float = 1e-5
    """Relative distance to the bound at which a placement counts as optimal; rounding to ticks costs up to half of it."""
    annealing_evaluations_per_unit: int = 50
    """Evaluations of annealing before CP-SAT, at most half of the budget: a good start prunes most of the tree."""
    annealing_seconds_share: float = 0.25
    """Largest share of the remaining seconds for annealing."""
    replay_seconds_share: float = 0.05
    """Share of the budget's seconds that is reserved for evaluating CP-SAT's solutions."""
    max_pairs: int = 60_000
    """Largest number of pairs of ops times devices with overheads and waits in the model, and of pairs of transfers on one
    channel with their order in the model. Larger models omit these rules, and their bound is lower."""
    max_transfers: int = 20_000
    """Largest number of tensors times pairs of devices for which there is a model at all."""


def plan(problem: Problem, budget: Budget, seed: int, config: OptimalConfig = OptimalConfig()) -> Solution:
    """The best placement with its best order of ops, and `lower_bound_s`, which equals its value where that is proven.

    An interval model of the execution model (as for flexible job shops: Baptiste, Le Pape and Nuijten 2001,
    Constraint-Based Scheduling) for CP-SAT, with one worker and a fixed seed. After a short annealing, up to three passes
    solve it; a pass ends the search if a simulated placement reaches its bound:

    1. Schedules that keep the rules but may also wait, and may send tensors in any order. They include all schedules of
       the simulator and are quickly solved. The bound holds for every placement with any priorities.
    2. The same, but as in the simulator a device never idles while an op is ready.
    3. The same, and channels serve first come first served.

    The simulator decides: the planner evaluates each solution's assignment with the ops in the order of their starts in
    the model as priorities, and with default priorities, and returns the best. A bound equal to its value proves that no
    placement with any priorities is better. `Solution.stages` has the value after each pass.

    Limits of the model:

    - Rules 1 to 5 are exact except for rounding, ties between transfers of different ops at one instant, and the memory
      of ops without duration; all of these can only lower the bound.
    - For throughput it counts loads of devices and channels without overheads, and of memory only weights and results.
    - With a measured evaluator, and for op groups, its times are not those of the evaluator: there is only the first
      pass, and no bound.
    - It lacks the costs of starting a segment: where devices have such costs, there is only the first pass, and its
      bound holds.

    Each pass may use half of the work and seconds of CP-SAT that are left; the last one may use all of them. Without
    `budget.seconds` the same seed gives the same answer; where the seconds end the search, it may not.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001

    Raises:
        MissingDependency: OR-Tools is not installed.
    """
    try:
        import ortools.sat.python.cp_model  # noqa: F401
    except ImportError:
        raise MissingDependency(
            "planner 'optimal' needs OR-Tools, which is not installed: pip install 'gnnplace[optimal]'"
        ) from None
    with Search(problem, budget, "optimal", seed) as search:
        _begin(search, config)
        if search.best_s <= 0:
            search.lower_bound_s = 0.0
        elif problem.graph.num_tensors * problem.topology.num_devices**2 <= config.max_transfers:
            _solve_in_passes(search, config)
    return search.solution()


def _begin(search: Search, config: OptimalConfig) -> None:
    """Anneals the better of `single` and `heft` for a part of the budget."""
    assignment, value, _ = best_start(search)
    whole = search.budget
    share = min(search.remaining // 2, config.annealing_evaluations_per_unit * search.problem.num_units)
    until_s = None
    if whole.seconds is not None:
        until_s = search.wall_s + config.annealing_seconds_share * (whole.seconds - search.wall_s)
    search.budget = replace(whole, evaluations=search.evaluations + share, seconds=until_s)
    with suppress(BudgetExhausted):
        anneal(search, assignment, value, np.random.default_rng(search.seed), AnnealingConfig())
    search.budget = whole
    search.stage("annealing")
    if search.best_s > search.problem.worst_case_s:  # nothing fits yet, and CP-SAT may stay undecided
        _try_all(search)


def _try_all(search: Search) -> None:
    """Evaluates every placement of a tiny problem, if the budget allows all of them."""
    choices = [np.flatnonzero(allowed).tolist() for allowed in search.problem.action_mask]
    if math.prod(map(len, choices)) <= min(search.remaining, _MOST_TRIED):
        units = np.array(list(itertools.product(*choices)), dtype=np.int64)
        search.evaluate_batch(units[:, search.problem.unit_of_op])
        search.stage("all placements")


def _solve_in_passes(search: Search, config: OptimalConfig) -> None:
    """Solves the passes until the placement is proven optimal, or work or seconds end."""
    budget, passes = search.budget, _passes(search.problem, config)
    work, until_s = np.inf, np.inf
    if budget.seconds is not None:
        until_s = (1.0 - config.replay_seconds_share) * budget.seconds
    if budget.evaluations is not None:
        work = config.work_per_evaluation * budget.evaluations
    elif budget.seconds is None:
        work = config.unlimited_work
    for rules in passes:
        proven = search.best_s <= (search.lower_bound_s or 0.0) * (1.0 + config.tolerance)
        if proven or work <= 0.0 or not search.remaining:
            return
        schedule = _model(search, rules, config)
        if schedule is None:
            return
        share = 1.0 if rules == passes[-1] else 0.5
        work -= _replay(search, schedule, share * work, share * max(0.0, until_s - search.wall_s))
        search.stage(rules)


def _passes(problem: Problem, config: OptimalConfig) -> tuple[str, ...]:
    """All passes where the model has the evaluator's times and is small enough; else only the first."""
    topology = problem.topology
    free_segments = not topology.segment_overhead_s.any() and np.isinf(topology.intake_bandwidth_bytes_per_s).all()
    exact = problem.objective == "latency" and free_segments and _has_exact_times(problem)
    return _PASSES if exact and _pairs(problem) <= config.max_pairs else _PASSES[:1]


def _pairs(problem: Problem) -> int:
    return problem.graph.num_ops**2 * problem.topology.num_devices


def _model(search: Search, rules: str, config: OptimalConfig) -> IntervalModel | None:
    """The model of one pass, bounded by the best placement so far; None where it would be too large."""
    problem = search.problem
    assert search.best is not None
    start = problem.estimator.schedule(search.best) if search.best_s <= problem.worst_case_s else None
    horizon_s = problem.worst_case_s
    if start is not None and problem.objective == "latency":
        horizon_s = start.makespan_s
    elif start is not None and _has_exact_times(problem):
        horizon_s = search.best_s
    is_relaxed = rules == _PASSES[0]
    if horizon_s <= 0:
        return None
    schedule = IntervalModel(problem, horizon_s, search.lower_bound_s or 0.0)
    limit_memory(schedule)
    bound_by_paths(schedule)
    overheads_count = problem.topology.dispatch_overhead_s.any() or not is_relaxed
    if schedule.timed and overheads_count and _pairs(problem) <= config.max_pairs:
        pay_overheads(schedule)
    if not is_relaxed:
        never_idle(schedule)
    if rules == _PASSES[-1]:
        meetings = np.bincount([hop.channel for hop in schedule.hops], minlength=1) ** 2
        if meetings.sum() > config.max_pairs:
            return None
        serve_in_turn(schedule)
    if start is not None:
        schedule.hint(start)
    return schedule


def _has_exact_times(problem: Problem) -> bool:
    """True where the evaluator gives the seconds of the graph's own schedule."""
    return problem.evaluator.kind == "simulated" and not problem.grouped


def _replay(search: Search, schedule: IntervalModel, work: float, seconds: float) -> float:
    """Solves the model and evaluates its solutions, the best one first; on Ctrl-C those found so far.

    Returns the deterministic time that it took, which may exceed `work` a little.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = search.seed % 2**31
    solver.parameters.linearization_level = 0  # the linear relaxation is weak here and costs most of the time
    # With any of these OR-Tools 9.15 reports values of such models as optimal that are not.
    solver.parameters.cp_model_presolve = False
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.use_sat_inprocessing = False
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = work
    solver.parameters.max_time_in_seconds = seconds
    found: list[Placement] = []
    try:
        status = _solve(solver, schedule, found)
        if status != cp_model.INFEASIBLE and _has_exact_times(search.problem):
            # The factor covers the rounding of divisions by the tick.
            bound_s = solver.best_objective_bound * schedule.tick_s * (1.0 - 1e-9)
            search.lower_bound_s = max(search.lower_bound_s or 0.0, bound_s)
    finally:
        for placement in reversed(found):
            for candidate in (placement, Placement(placement.assignment)):
                if search.remaining:
                    search.evaluate(candidate)
    return float(solver.deterministic_time)


def _solve(solver: cp_model.CpSolver, schedule: IntervalModel, found: list[Placement]) -> cp_model.CpSolverStatus:
    """Runs CP-SAT, adds every solution to `found`, and stops it on Ctrl-C."""
    from ortools.sat.python import cp_model

    class Collector(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            units = np.argmax([[self.boolean_value(here) for here in row] for row in schedule.on], axis=1)
            starts, ends = (np.array([self.value(time) for time in times]) for times in (schedule.start, schedule.end))
            priorities = start_order_priorities(starts, ends) if schedule.timed else None
            found.append(Placement(units[schedule.problem.unit_of_op], priorities))

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(solver.solve, schedule.model, Collector())
        try:
            return running.result()
        except KeyboardInterrupt:
            solver.stop_search()
            raise
