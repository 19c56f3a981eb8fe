"""Optimal placement of small graphs by constraint programming, with a bound where it is not proven."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.classical.annealing import AnnealingConfig, anneal
from gnnplace.planners.classical.heft import best_start
from gnnplace.planners.classical.optimal.limits import bound_by_paths, limit_memory
from gnnplace.planners.classical.optimal.model import IntervalModel
from gnnplace.planners.classical.optimal.rules import never_idle, pay_overheads, serve_in_turn
from gnnplace.planners.search import BudgetExhausted, Search, Solution

__all__ = ["OptimalConfig", "plan"]


if TYPE_CHECKING:
    from ortools.sat.python import cp_model


_PASSES = ("relaxed rules", "never idle", "simulator's rules")


@dataclass(frozen=True)
class OptimalConfig:
    """How long CP-SAT may think, and about how much."""

    work_per_evaluation: float = 2e-3
    """CP-SAT's deterministic time per evaluation of the budget: with 2,000 of them four units, half a minute to a minute of
    one core on small graphs. How long a unit takes depends on the graph and the machine; `budget.seconds` limits that."""
    unlimited_work: float = 40.0
    """CP-SAT's deterministic time where the budget knows no end."""
    tolerance: float = 1e-5
    """A placement within this share of the bound is optimal; rounding to ticks costs up to half of it."""
    annealing_evaluations_per_unit: int = 50
    """Before CP-SAT begins, but at most half of the budget: a good start cuts most of the tree away."""
    annealing_seconds_share: float = 0.25
    """Of the budget's seconds that are left when annealing begins; no more of them goes to it."""
    replay_seconds_share: float = 0.05
    """Of the budget's seconds, kept from CP-SAT so that its solutions can be evaluated."""
    max_pairs: int = 60_000
    """Pairs of ops times devices up to which overheads and waits are modelled, and pairs of transfers that may meet on a
    channel up to which their order is; beyond, these rules are left out, and the bound is lower."""
    max_transfers: int = 20_000
    """Tensors times pairs of devices up to which there is a model at all."""


def plan(problem: Problem, budget: Budget, seed: int, config: OptimalConfig = OptimalConfig()) -> Solution:
    """The best placement with its best order of ops, and `lower_bound_s`, which equals its value where that is proven.

    An interval model of the execution model (as for flexible job shops: Baptiste, Le Pape and Nuijten 2001,
    Constraint-Based Scheduling) for CP-SAT, with one worker and a fixed seed, in up to three passes after a short
    annealing. Each pass ends the search if a placement, simulated, reaches its bound:

    1. Schedules that keep the rules but may also wait, and may send tensors in any order: a superset of what the
       simulator does, quickly solved. Its bound holds for every placement with any priorities.
    2. The same, but as in the simulator a device never idles while an op is ready.
    3. The same, and channels serve first come first served.

    The simulator has the last word: each solution's assignment is evaluated with the ops in the order of their starts
    in the model as priorities, and with default priorities; the best of these is returned. A bound that it meets proves
    that no placement with any priorities is better. `Solution.stages` tells the value after each pass.

    Rules 1 to 5 are modelled exactly but for rounding, for ties between transfers of different ops that reach a channel
    at one instant, and for what ops of no seconds hold in memory; all of these can only lower the bound. For throughput the model counts loads of devices and
    channels without overheads, and of memory only weights and results. With a measured evaluator, and where ops are
    groups, the times of the model are not those that count: the first pass is all, and there is no bound. What beginning a segment
    costs is not modelled: where devices state it, the first pass is all, and its bound holds.

    Every pass but the last may use half of CP-SAT's work, and of the seconds, that are left; the last one all of them.
    Without `budget.seconds` the same seed gives the same answer; where the seconds end the search, it may not.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001

    Raises:
        MissingDependency: OR-Tools is not installed.
    """
    _require_ortools()
    with Search(problem, budget, "optimal", seed) as search:
        _begin(search, seed, config)
        if search.best_s <= 0:
            search.lower_bound_s = 0.0
        elif _transfers(problem) <= config.max_transfers:
            _solve_in_passes(search, config)
    return search.solution()


def _require_ortools() -> None:
    try:
        import ortools.sat.python.cp_model  # noqa: F401
    except ImportError:
        raise MissingDependency(
            "planner 'optimal' needs OR-Tools, which is not installed: pip install 'gnnplace[optimal]'"
        ) from None


def _begin(search: Search, seed: int, config: OptimalConfig) -> None:
    """The better of `single` and `heft`, annealed for a part of the budget's evaluations and seconds."""
    assignment, value = best_start(search)
    whole = search.budget
    share = min(search.remaining // 2, config.annealing_evaluations_per_unit * search.problem.num_units)
    until_s = None
    if whole.seconds is not None:
        until_s = search.wall_s + config.annealing_seconds_share * (whole.seconds - search.wall_s)
    search.budget = replace(whole, evaluations=search.evaluations + share, seconds=until_s)
    with suppress(BudgetExhausted):
        anneal(search, assignment, value, np.random.default_rng(seed), AnnealingConfig())
    search.budget = whole
    search.stage("annealing")


def _transfers(problem: Problem) -> int:
    return problem.graph.num_tensors * problem.topology.num_devices**2


def _solve_in_passes(search: Search, config: OptimalConfig) -> None:
    work, passes = _work(search.budget, config), _passes(search.problem, config)
    for rules in passes:
        proven = search.best_s <= (search.lower_bound_s or 0.0) * (1.0 + config.tolerance)
        if proven or work <= 0.0 or not search.remaining:
            return
        schedule = _model(search, rules, config)
        if schedule is None:
            return
        share = 1.0 if rules == passes[-1] else 0.5
        work -= _replay(search, schedule, share * work, share * _seconds_left(search, config))
        search.stage(rules)


def _passes(problem: Problem, config: OptimalConfig) -> tuple[str, ...]:
    """Only the first one where there is no time, where it is not the evaluator's, or where the others are too large."""
    topology = problem.topology
    free_segments = not topology.segment_overhead_s.any() and np.isinf(topology.intake_bandwidth_bytes_per_s).all()
    exact = (
        problem.objective == "latency"
        and free_segments
        and _says_what_counts(problem)
        and _pairs(problem) <= config.max_pairs
    )
    return _PASSES if exact else _PASSES[:1]


def _pairs(problem: Problem) -> int:
    return problem.graph.num_ops**2 * problem.topology.num_devices


def _work(budget: Budget, config: OptimalConfig) -> float:
    """CP-SAT's deterministic time for all passes; without end where only seconds end the search."""
    if budget.evaluations is not None:
        return config.work_per_evaluation * budget.evaluations
    return config.unlimited_work if budget.seconds is None else np.inf


def _seconds_left(search: Search, config: OptimalConfig) -> float:
    """Seconds that CP-SAT may still take."""
    whole_s = search.budget.seconds
    return np.inf if whole_s is None else max(0.0, (1.0 - config.replay_seconds_share) * whole_s - search.wall_s)


def _model(search: Search, rules: str, config: OptimalConfig) -> IntervalModel | None:
    """The constraints of one pass, no worse than the best placement so far; None when they would be too many."""
    problem = search.problem
    assert search.best is not None
    start = problem.estimator.schedule(search.best) if search.best_s <= problem.worst_case_s else None
    horizon_s = problem.worst_case_s
    if start is not None and problem.objective == "latency":
        horizon_s = start.makespan_s
    elif start is not None and _says_what_counts(problem):
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


def _says_what_counts(problem: Problem) -> bool:
    """The evaluator gives the seconds of the graph's schedule, and no others."""
    return problem.evaluator.kind == "simulated" and not problem.grouped


def _replay(search: Search, schedule: IntervalModel, work: float, seconds: float) -> float:
    """Solves the model and evaluates its solutions, the best one first; on Ctrl-C those found so far.

    Gives the part of `work` that it took, which may be a little more than all of it.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = search.seed % 2**31
    solver.parameters.linearization_level = 0  # the linear relaxation is weak here, and costs most of the time
    # With any of these OR-Tools 9.15 calls values of such models optimal that are not.
    solver.parameters.cp_model_presolve = False
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.use_sat_inprocessing = False
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = work
    solver.parameters.max_time_in_seconds = seconds
    found: list[Placement] = []
    try:
        status = _solve(solver, schedule, found)
        if status != cp_model.INFEASIBLE and _says_what_counts(search.problem):
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
    """Runs CP-SAT, which adds every solution to `found`, and stops it on Ctrl-C."""
    from ortools.sat.python import cp_model

    class Collector(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            on = [self.boolean_value(here) for row in schedule.on for here in row]
            starts, ends = ([self.value(time) for time in times] for times in (schedule.start, schedule.end))
            found.append(Placement(schedule.assignment(on), _in_order(starts, ends) if schedule.timed else None))

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(solver.solve, schedule.model, Collector())
        try:
            return running.result()
        except KeyboardInterrupt:
            solver.stop_search()
            raise


def _in_order(starts: list[int], ends: list[int]) -> FloatArray:
    """`[N]` priorities with which devices run ops in the order of their starts."""
    priorities = np.empty(len(starts))
    priorities[np.lexsort((ends, starts))] = np.arange(len(starts))[::-1]
    return priorities
