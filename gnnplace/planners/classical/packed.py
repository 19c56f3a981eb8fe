"""Placements that pack memory first, for devices that hold the model only together, or not at all without a host."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, cycle, islice

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.evaluation import Evaluation, Problem
from gnnplace.graph.orders import depth_first_order
from gnnplace.graph.units import unit_bytes as bytes_of_units
from gnnplace.placement import Placement
from gnnplace.planners.classical.capacity_cuts import CapacityCuts
from gnnplace.planners.classical.estimates import (
    Estimated,
    Revise,
    add_revisions,
    estimated,
    estimated_by_op,
    ranked,
    scheduled,
    seconds_to_build,
    within_seconds,
)
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule, rank_order
from gnnplace.planners.classical.repair import Repair
from gnnplace.planners.classical.repair_moves import move_costs
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget, Solution
from gnnplace.random_numbers import log_uniform

_BUILDS = (8, 200)  # fewest and most schedules that are built before the best of them are evaluated
_OPS_BUILT = 4_000_000  # ops times devices of all these schedules, which take two seconds
_TRANSFER_FACTORS = (0.7, 10.0)
_NOISES = (0.0, 0.1, 0.2)
_MEMORY_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7)
_PRICED_SHARES = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, np.inf)
_TOGETHER_SHARE = 0.5  # of the schedules
_LARGE_SHARES = (0.1, 0.2, 0.4, 0.7)  # of the largest need of a unit, for those that go to few devices
_BATCH_SIZE = 16
_FILLED = (0.92, 0.98, 1.04)  # shares of a memory that the estimate of a repair may fill, in turn
_FIRST_FILLED = 0.95  # share of a memory that an estimate may fill before the first evaluation
_AFTER_FIT, _AFTER_MISFIT = 1.03, 0.96  # factors of that share after an evaluation
_REPAIRED = 4  # schedules with the best estimates that are repaired, at least
_LEAST_TO_REPAIR = 100  # affordable builds; moves of larger problems would take longer than building does
_TRIES, _CUTS_PER_TRY = 3, 3  # attempts for each placement that does not fit, and cuts per attempt
_MOST_CORRECTIONS = 20  # attempts for all placements together
_ESTIMATED = 3  # placements whose single ops are scheduled, for each that is evaluated
_BUILDS_PER_REPAIR = 10  # one repair builds up to a dozen schedules
_PATIENCE = 10  # rounds without a new placement that end the search
_UNLIMITED_EVALUATIONS = 100


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The best of HEFT's placement, of list schedules that pack memory, and of annealed cuts, over the whole budget.

    This project's own method. Each schedule counts the memory of live activations and of received copies, from the op that
    produces a tensor to the last one that reads it, and lets no device fill more than a share of its memory while another
    one has room. Where some devices have room for everything (hosts), the others charge for memory: a unit costs more
    there, by a price times its bytes, so that units which the hosts delay least per byte leave the others. That is the
    greedy rule for knapsacks (Dantzig 1957) as an addition to HEFT's finish times. Price, share, order of ops, transfer
    costs and noise are random. In half of the schedules the ops that need most memory while they run go to a few of the
    devices, so that the others need not keep it free.

    A schedule estimates its makespan and its peak memory itself. Of up to 200 schedules, the best by these estimates are
    repaired (`repair.py`): units leave over-full memories, and leave hosts for what is free elsewhere. Then the best of all
    are evaluated: placements whose estimated memory fits come first, then the shorter makespan.

    Cuts that are annealed under capacities (`capacity_cuts.py`) are further candidates.

    On the five development cases with limited memory (`gnnplace bench generalization`, three seeds), the best of 5 and 20 constructions
    took 1.78 and 1.54 times the best known seconds without cuts, and 1.31 and 1.24 times with them (geometric means).

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    rng, idle = np.random.default_rng(seed), 0
    with Search(problem, budget, "packed", seed) as search:
        seen = Seen()
        evaluate_heft(search, seen)
        while idle < _PATIENCE and (not budget.is_unlimited or search.evaluations < _UNLIMITED_EVALUATIONS):
            before = search.evaluations
            evaluate_packed(search, _BATCH_SIZE, rng, seen)
            idle = idle + 1 if search.evaluations == before else 0
    return search.solution()


def evaluate_packed(
    search: Search,
    count: int,
    rng: np.random.Generator,
    seen: Seen | None = None,
    others: Sequence[ListSchedule] = (),
    revisers: Sequence[Revise] = (),
) -> list[tuple[IntArray, float]]:
    """Evaluates `count` distinct packed schedules or repairs; those in `seen` are left out, others are added to it.

    `others` are further schedules, which are candidates and are repaired as well. `revisers` revise the best candidates.

    The result has each assignment `[N]` with its penalised seconds. Candidates have two estimates, by list schedules of the
    problem's ops and of the single ops in them, which choose in turn: the shortest makespan whose peaks fill at most a share of each
    memory. Estimates of peaks are not exact, so the share grows after a placement that fits, and shrinks after one that does
    not. What does not fit but would be the shortest is cut again, by what its evaluation needed. On the five development cases
    with limited memory (four seeds, without cuts), the best of 6, 12 and 24 took 1.56, 1.52 and
    1.49 times the best known seconds, and 1.65, 1.64 and 1.52 times with three fixed shares.
    """
    count = min(count, search.remaining)
    if count <= 0:
        return []
    seen, found = seen or Seen(), list[tuple[IntArray, float]]()
    cuts = _capacity_cuts(search.problem)
    choices = [_Choice(search.problem, each) for each in _candidates(search, cuts, count, rng, others, revisers)]
    corrections, idle = _Corrections(search, cuts, rng), 0
    turns = deque[_Choice | _Corrections](chain.from_iterable((each, corrections) for each in choices))
    while idle < len(turns) and len(found) < count and search.remaining:
        turn = turns[0]
        turns.rotate(-1)
        assignment = turn.best(seen, corrections.best_s if corrections.has_left else np.inf)
        if assignment is None:
            idle += 1
            continue
        idle = 0
        evaluation = search.evaluate_in_full(Placement(assignment))
        seconds = search.problem.penalised_s(evaluation)
        found.append((assignment, seconds))
        if isinstance(turn, _Choice):
            turn.filled *= _AFTER_FIT if seconds <= search.problem.worst_case_s else _AFTER_MISFIT
        corrections.learn(assignment, evaluation)
    return found


@dataclass(eq=False)
class _Choice:
    """Chooses among estimated placements."""

    problem: Problem
    among: Sequence[Estimated]
    filled: float = _FIRST_FILLED
    """Share of each memory that an estimate may fill."""

    def best(self, seen: Seen, best_s: float = np.inf) -> IntArray | None:
        """The best assignment `[N]` that is not in `seen`, to which it is added; None where there is none.

        Those that seem shorter than `best_s`, the best that fits, come first, even if they need more memory: they can be corrected.
        """
        by_estimate = sorted(ranked(self.problem, self.among, self.filled), key=lambda each: each.seconds >= best_s)
        return next((each.assignment for each in by_estimate if seen.add(each.assignment)), None)


@dataclass
class _Misfit:
    """A placement that needs too much memory."""

    assignment: IntArray  # [N]
    seconds: float
    """Of the objective, without a penalty."""
    peak_bytes: IntArray  # [D]
    tries: int = 0


@dataclass(eq=False)
class _Corrections:
    """Placements that do not fit, cut again: their evaluated peaks say how much less each memory may hold.

    Of those that are shorter than the best one that fits, the shortest comes first, a few times each.
    """

    search: Search
    cuts: CapacityCuts
    rng: np.random.Generator
    misfits: list[_Misfit] = field(default_factory=list)
    best_s: float = np.inf
    used_s: float = 0.0
    corrections: int = 0

    @property
    def has_left(self) -> bool:
        """Whether more placements may be corrected; all of them together may take `seconds_to_build`."""
        return self.corrections < _MOST_CORRECTIONS and self.used_s <= seconds_to_build(self.search)

    def learn(self, assignment: IntArray, evaluation: Evaluation) -> None:
        """Takes note of an evaluated assignment `[N]`."""
        seconds = self.search.problem.objective_s(evaluation)
        if evaluation.feasible:
            self.best_s = min(self.best_s, seconds)
        elif evaluation.shortfall_bytes.any() and np.isfinite(seconds):
            self.misfits.append(_Misfit(assignment, seconds, evaluation.peak_memory_bytes))

    def best(self, seen: Seen, best_s: float) -> IntArray | None:
        """The best assignment `[N]` near a misfit that is not in `seen`, to which it is added; None where there is none."""
        while self.has_left:
            shorter = [each for each in self.misfits if each.seconds < best_s and each.tries < _TRIES]
            if not shorter:
                break
            misfit, begin_s = min(shorter, key=lambda each: each.seconds), self.search.wall_s
            misfit.tries += 1
            self.corrections += 1
            cut = next((each.assignment for each in self._cut_again(misfit) if seen.add(each.assignment)), None)
            self.used_s += self.search.wall_s - begin_s
            if cut is not None:
                return cut
        return None

    def _cut_again(self, misfit: _Misfit) -> list[Estimated]:
        """Cuts near a misfit, the best ones first."""
        problem, seconds = self.search.problem, seconds_to_build(self.search)
        devices = problem.unit_devices(misfit.assignment)
        cuts = self.cuts.corrected(devices, misfit.peak_bytes, self.rng, seconds / _CUTS_PER_TRY)
        return ranked(problem, list(islice(within_seconds(self.search, cuts), _CUTS_PER_TRY)))


def _capacity_cuts(problem: Problem) -> CapacityCuts:
    transient, is_scarce = _Transient(problem), _Prices(problem).is_scarce
    held_bytes = needed_bytes(problem, without_peak_op=True)
    return CapacityCuts(problem, move_costs(problem, held_bytes, transient.unit_bytes, is_scarce))


def _candidates(
    search: Search,
    cuts: CapacityCuts,
    count: int,
    rng: np.random.Generator,
    others: Sequence[ListSchedule],
    revisers: Sequence[Revise],
) -> tuple[list[Estimated], list[Estimated]]:
    """Candidates with two kinds of estimates.

    By single ops: the best of the second list, cuts, and revisions of the best of both. By schedules of the problem's ops: packed schedules, `others`, and repairs.
    """
    problem = search.problem
    affordable = _OPS_BUILT // max(1, problem.op_time_s.size)
    builds = min(max(affordable, _BUILDS[0], count), _BUILDS[1])
    schedules = islice(packed_schedules(problem, rng), builds)
    assignments = (each.assignment for each in chain(others, schedules))
    built = estimated(search, assignments, lambda each: [scheduled(problem, problem.unit_devices(each))])
    repair = Repair(problem, cuts.costs)
    most = affordable // _BUILDS_PER_REPAIR if affordable >= _LEAST_TO_REPAIR else 0
    first = _in_turn(problem, built)[: min(max(_REPAIRED, 2 * count), most)]
    to_mend = zip((each.schedule for each in first), cycle(_FILLED))
    found = _in_turn(problem, [*built, *estimated(search, to_mend, lambda each: repair.repaired(*each))])
    single_ops = estimated_by_op(search, (each.assignment for each in found[: _ESTIMATED * count]))
    annealed = cuts.estimated(count, rng, seconds_to_build(search))
    single_ops += within_seconds(search, annealed)
    add_revisions(search, single_ops, revisers, Seen(each.assignment for each in single_ops))
    return single_ops, found


def _in_turn(problem: Problem, found: Sequence[Estimated]) -> list[Estimated]:
    """The placements, each once, from three rankings in turn."""
    in_turn = chain.from_iterable(zip(*(ranked(problem, found, filled) for filled in _FILLED), strict=True))
    return list({each.assignment.tobytes(): each for each in in_turn}.values())


def packed_schedules(problem: Problem, rng: np.random.Generator) -> Iterator[ListSchedule]:
    """Random packed schedules without end."""
    graph, prices, memory = problem.graph, _Prices(problem), _Transient(problem)
    while True:
        factor = log_uniform(rng, *_TRANSFER_FACTORS)
        share, noise = float(rng.choice(_MEMORY_SHARES)), float(rng.choice(_NOISES))
        if rng.random() < 0.5:
            order = rank_order(problem, factor, np.exp(noise * rng.normal(size=graph.num_ops)))
        else:
            order = depth_first_order(graph.successor_offsets, graph.successors, rng.random(graph.num_ops))
        yield list_schedule(
            problem,
            ScheduleOptions(
                transfer_factor=factor,
                channels=bool(rng.random() < 0.5),
                memory_share=share,
                live=True,
                finish_noise=np.exp(noise * rng.normal(size=problem.op_time_s.shape)),
                order=order,
                remaining_s=prices.of_ops(share * float(rng.choice(_PRICED_SHARES))),
                mask=memory.together(prices.is_scarce, rng) if rng.random() < _TOGETHER_SHARE else None,
            ),
        )


@dataclass(eq=False)
class _Transient:
    """Bytes that units need only while they run. A device that runs one of the largest units reserves as many, and holds fewer weights."""

    problem: Problem

    def together(self, is_scarce: BoolArray, rng: np.random.Generator) -> BoolArray | None:
        """`[U, D]` devices of units, where those that need much while they run go to few of the scarce devices or to the others.

        How much is much, how many devices are few, and which ones these are is random; None where no device is scarce.
        """
        scarce = np.flatnonzero(is_scarce)
        if len(scarce) < 2:
            return None
        large = self.unit_bytes >= float(rng.choice(_LARGE_SHARES)) * self.unit_bytes.max()
        left_out = rng.permutation(scarce)[int(rng.integers(1, len(scarce))) :]
        mask = self.problem.action_mask.copy()
        mask[np.ix_(large, left_out)] = False
        mask[~mask.any(axis=1)] = self.problem.action_mask[~mask.any(axis=1)]
        return mask

    @cached_property
    def unit_bytes(self) -> FloatArray:
        """`[U]` the most that an op of the unit needs while it runs: inputs, outputs and workspace."""
        graph = self.problem.graph
        op_bytes = np.bincount(graph.tensor_producer, graph.tensor_bytes, graph.num_ops) + graph.workspace_bytes
        op_bytes += np.bincount(graph.consumers, graph.tensor_bytes[graph.consumer_tensor], graph.num_ops)
        most = np.zeros(self.problem.num_units)
        np.maximum.at(most, self.problem.unit_of_op, op_bytes)
        return most


@dataclass(eq=False)
class _Prices:
    """Prices of memory on devices that cannot hold the whole model, where others can."""

    problem: Problem

    def of_ops(self, filled_share: float) -> FloatArray:
        """`[N, D]` seconds, at the price at which the scarce devices would be filled to the share; zeros where it is infinite."""
        prices = np.zeros_like(self.problem.op_time_s)
        if not self.is_scarce.any() or self.is_scarce.all() or filled_share == np.inf:
            return prices
        delay, cumulated_bytes = self._by_delay
        topology = self.problem.topology
        is_first = topology.memory_home == np.arange(topology.num_devices)
        capacity_bytes = float(topology.memory_bytes[self.is_scarce & is_first].sum())
        position = int(np.searchsorted(cumulated_bytes, filled_share * capacity_bytes))
        if position < len(delay):
            unit_s = max(0.0, delay[position]) * self.unit_bytes
            prices[:, self.is_scarce] = unit_s[self.problem.unit_of_op][:, None]
        return prices

    @cached_property
    def unit_bytes(self) -> FloatArray:
        """`[U]` the memory that the model needs, by unit."""
        return needed_bytes(self.problem)

    @cached_property
    def is_scarce(self) -> BoolArray:
        """`[D]` true for devices whose memory is smaller than the model."""
        topology = self.problem.topology
        pool_bytes = topology.memory_bytes[topology.memory_home]
        return np.asarray(pool_bytes < self.unit_bytes.sum())

    @cached_property
    def _by_delay(self) -> tuple[FloatArray, FloatArray]:
        """Seconds per byte `[U]` by which the devices with room delay a unit, falling, and the bytes of the units so far `[U]`."""
        unit_s, scarce = self.problem.unit_time_s, self.is_scarce
        apart_s = unit_s[:, ~scarce].min(axis=1) - unit_s[:, scarce].min(axis=1)
        delay = np.nan_to_num(apart_s / np.maximum(1.0, self.unit_bytes), nan=0.0, posinf=1e30, neginf=-1e30)
        order = np.argsort(-delay, kind="stable")
        return delay[order], np.cumsum(self.unit_bytes[order])


def needed_bytes(problem: Problem, without_peak_op: bool = False) -> FloatArray:
    """`[U]` weights, shared ones in equal parts, and the outputs that are live when one device would need most memory.

    `without_peak_op` leaves out what the op that runs then reads and writes, which counts as its need while it runs.
    """
    order = rank_order(problem)
    live, peak_op = live_at_peak(problem, order)
    if without_peak_op and peak_op is not None:
        graph = problem.graph
        live &= graph.tensor_producer != peak_op
        live[graph.consumer_tensor[graph.consumers == peak_op]] = False
    return bytes_of_units(problem.graph, problem.unit_of_op, live)


def live_at_peak(problem: Problem, order: IntArray) -> tuple[BoolArray, int | None]:
    """When one device, which runs all ops in `order` `[N]`, needs most memory: which tensors are live `[T]`, and the op that runs."""
    graph = problem.graph
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[order] = np.arange(graph.num_ops)
    begin = position[graph.tensor_producer]
    end = np.where(np.diff(graph.consumer_offsets) == 0, graph.num_ops, begin)
    np.maximum.at(end, graph.consumer_tensor, position[graph.consumers])
    change = np.zeros(graph.num_ops + 2)
    np.add.at(change, begin, graph.tensor_bytes)
    np.subtract.at(change, end + 1, graph.tensor_bytes)
    used = np.cumsum(change)[: graph.num_ops] + graph.workspace_bytes[order]
    peak = int(used.argmax()) if len(used) else 0
    live: BoolArray = np.asarray((begin <= peak) & (end >= peak))
    return live, int(order[peak]) if len(order) else None
