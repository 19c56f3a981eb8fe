"""The loop of the guided search, compiled: draw, simulate, accept, score.

Only the encoding of the graph is outside of it. The functions of the simulator are arguments, as planners do not import
it. Numba keeps a function that takes others on disk only if its types are explicit, so the types are those of the arguments.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit, typeof, types

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.timing import Timing, UnitTables, arrivals, slack
from gnnplace.local_search import CompiledSimulator
from gnnplace.planners.gnn.deciding import Decider
from gnnplace.planners.gnn.decision_tables import Reference, write_reference
from gnnplace.planners.gnn.moves import (
    Drawn,
    KnownSeconds,
    MoveTables,
    Now,
    RevisionRules,
    draw_candidates,
    kind_shares,
)
from gnnplace.planners.gnn.odds import ROOMY, Odds, OddsTable, empty_table, write_odds
from gnnplace.policy.pair_features import CONTEXT, PAIR, budget_feature, raw_amounts, write_relative
from gnnplace.policy.pair_scores import HeadParts, pair_scores

GOES_ON, ENCODE, NOTHING_NEW, NO_ROUTE = range(4)
"""Why the loop returned: its evaluations or its share are used or the log is full, the graph is to be encoded anew, no move is new, or a
route is missing."""
# Positions in `Current.counters`.
RISES, SINCE_ENCODING, HAS_SCHEDULE, HAS_SCORES, IS_ROOMY = range(5)
_LOGGED = 64  # improvements and steps of one call; the loop returns when there may be no room for more


class Settings(NamedTuple):
    """The rules of the search; see `RevisitConfig`, `MovesConfig` and `OddsConfig`."""

    lookahead: int
    mean_cluster: float
    max_window: int
    pull: float
    revisions: RevisionRules
    keep: float
    max_idle: int
    adaptation: float
    least_share: float
    costs: FloatArray  # [K]
    encode_every: int
    cold: tuple[float, float]
    hot: tuple[float, float]
    warmth: float
    worst_case_s: float
    mean_unit_s: float
    num_moves: int
    decides: bool


class Tables(NamedTuple):
    """Arrays of one problem."""

    units: UnitTables
    moves: MoveTables
    topological_order: IntArray  # [N]
    capacity_bytes: FloatArray  # [D] at least 1
    every_unit: IntArray  # [U]
    first_row: IntArray  # [U] zeros


class Current(NamedTuple):
    """The current placement with its schedule and odds, and what the search has learned; the loop changes all of it."""

    devices: IntArray  # [U]
    seconds: FloatArray  # [3] of the current placement, the start of the stage, and the best of the whole search
    weights: FloatArray  # [K] of the kinds of moves
    rises_s: FloatArray  # [R] of the last worsening moves
    counters: IntArray  # [5]
    timing: Timing  # one row
    table: OddsTable
    with_room: OddsTable
    op_s: FloatArray  # [2, N] scratch
    hops: IntArray  # [2, K] scratch
    hop_end_s: FloatArray  # [K] scratch


class Log(NamedTuple):
    """Improvements of one call of the loop, and the steps that improved on the best placement of the stage."""

    counts: IntArray  # [3] improvements, steps, evaluations
    at: IntArray  # [L] evaluations of the call until the improvement
    seconds: FloatArray  # [L]
    devices: IntArray  # [L, U]
    step_at: IntArray  # [L]
    step_kind: IntArray  # [L]
    step_s: FloatArray  # [L, 2] best seconds before and after
    step_log_prob: FloatArray  # [L]
    step_devices: IntArray  # [L, 2, U] before and after


def new_log(num_units: int) -> Log:
    """An empty log."""
    return Log(
        np.zeros(3, dtype=np.int64), np.zeros(_LOGGED, dtype=np.int64), np.zeros(_LOGGED),
        np.zeros((_LOGGED, num_units), dtype=np.int64), np.zeros(_LOGGED, dtype=np.int64),
        np.zeros(_LOGGED, dtype=np.int64), np.zeros((_LOGGED, 2)), np.zeros(_LOGGED),
        np.zeros((_LOGGED, 2, num_units), dtype=np.int64),
    )  # fmt: skip


def new_current(
    devices: IntArray, seconds: FloatArray, weights: FloatArray, timing: Timing, most: tuple[int, int]
) -> Current:
    """The state at the start of a stage, whose schedule is in `timing`; `most` are numbers of remembered rises and of hops."""
    shape = len(devices), timing.busy_s.shape[1]
    counters = np.zeros(5, dtype=np.int64)
    counters[HAS_SCHEDULE] = 1
    return Current(
        devices.copy(), seconds, weights, np.zeros(most[0]), counters, timing, empty_table(shape), empty_table(shape),
        np.zeros((2, timing.start_s.shape[1])), np.zeros((2, most[1]), dtype=np.int64), np.zeros(most[1]),
    )  # fmt: skip


class Task(NamedTuple):
    """All that one call of the loop reads besides its functions."""

    tables: Tables
    settings: Settings
    head: HeadParts
    decider: Decider
    drawn: Drawn
    limits: tuple[int, int]
    """Evaluations after which the call returns, and the maximum, which the last batch may reach."""
    clock: tuple[int, int, float, float]
    """Evaluations that the stage had made before the call, its maximum (0: none), the used share of its seconds, and that share per evaluation."""


Loop = Callable[[Task, KnownSeconds, Current, Log, np.random.Generator], int]
"""Runs until there is a reason to return, and gives it."""


def loop_of(
    simulator: CompiledSimulator, task: Task, known: KnownSeconds, now: Current, log: Log, rng: np.random.Generator
) -> Loop:
    """The loop for arguments of these types, which takes the others of a search as well."""
    arguments = (simulator.whole, simulator.groups, task, known, now, log, rng)
    kind = kind_of((simulator.run, simulator.schedule, *arguments))
    if kind not in _LOOPS:  # Numba's own look at all types takes some 20 ms
        _LOOPS[kind] = _compiled(simulator, tuple(map(typeof, arguments)))
    return partial(_LOOPS[kind], simulator.run, simulator.schedule, simulator.whole, simulator.groups)


_LOOPS: dict[Any, Any] = {}


def kind_of(value: Any) -> Any:
    """A quick key: values with equal keys have the same type in compiled code."""
    if isinstance(value, tuple):
        return (type(value), *map(kind_of, value))
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.c_contiguous, value.flags.writeable, value.flags.aligned
    return value if callable(value) else type(value)


def _compiled(simulator: CompiledSimulator, kinds: tuple[Any, ...]) -> Any:
    """The loop compiled for arguments of these types."""
    line, table = types.float64[::1], types.int64[:, ::1]
    run = types.float64(kinds[0], types.int64[::1])
    schedule = types.int64(kinds[1], types.int64[::1], types.float64[:, ::1], table, line, line)
    for function, signature in ((simulator.run, run), (simulator.schedule, schedule)):
        function.compile(signature)
    functions = types.FunctionType(run), types.FunctionType(schedule)
    return njit((*functions, *kinds), cache=True, nogil=True, error_model="numpy")(_revisit)


def _revisit(
    run: Any, schedule: Any, whole: Any, groups: Any, task: Task, known: KnownSeconds, now: Current, log: Log,
    rng: np.random.Generator,
) -> int:  # fmt: skip
    """See `loop_of`; compiled by `_compiled`."""
    tables, settings, head, decider, drawn, limits, clock = task
    timing, counters = now.timing, now.counters
    log.counts[:] = 0
    made, values = 0, np.empty(settings.lookahead)
    while True:
        if counters[HAS_SCHEDULE] == 0:
            count = schedule(groups, now.devices, now.op_s, now.hops, now.hop_end_s, timing.peak_memory_bytes[0])
            if count < 0:
                return NO_ROUTE
            _write_timing(tables, now, count)
            counters[HAS_SCHEDULE], counters[HAS_SCORES] = 1, 0
        if counters[HAS_SCORES] == 0:
            if counters[SINCE_ENCODING] >= settings.encode_every:
                return ENCODE
            left = clock[1] - clock[0] - made if clock[1] > 0 else np.inf
            counters[IS_ROOMY] = _write_scores(tables, settings, left, head, decider.reference, now)
            counters[SINCE_ENCODING] += 1
            counters[HAS_SCORES] = 1
        done = clock[2] + clock[3] * made
        if clock[1] > 0:
            done = max(done, (clock[0] + made) / clock[1])
        is_full = log.counts[0] + settings.lookahead > _LOGGED or log.counts[1] == _LOGGED
        if made >= limits[0] or done >= 1.0 or is_full:
            return GOES_ON
        before_s, best_s = now.seconds[0], min(now.seconds[1], now.seconds[2])
        with_room = now.table if counters[IS_ROOMY] else now.with_room
        odds = Odds(now.devices, now.table, with_room, counters[IS_ROOMY] > 0, timing.peak_memory_bytes[0])
        shares = kind_shares(now.weights, settings.costs, settings.least_share)
        wanted = min(settings.lookahead, limits[1] - made)
        draw = Now(
            tables.moves, odds, decider, np.cumsum(shares), settings.mean_cluster, settings.max_window, settings.pull,
            settings.revisions, settings.keep, wanted, settings.max_idle, before_s,
        )  # fmt: skip
        found, draws, better_s = draw_candidates(draw, known, drawn, rng)
        chosen, after_s, log_prob = 0, better_s, np.nan
        if found > 0:
            for candidate in range(found):
                values[candidate] = run(whole, drawn.devices[candidate])
                made += 1
                if values[candidate] < now.seconds[2]:
                    _log_improvement(log, now, made, values[candidate], drawn.devices[candidate])
                if values[candidate] < values[chosen]:
                    chosen = candidate
            after_s = values[chosen]
            for candidate in range(found):
                kind, value = drawn.kinds[candidate], values[candidate]
                now.weights[kind] += settings.adaptation * ((1.0 if value < before_s else 0.0) - now.weights[kind])
                known[drawn.hashes[candidate]] = value
            log_prob = _log_prob(drawn, draws, chosen)
        elif better_s == np.inf:
            return NOTHING_NEW
        log.counts[2] = made
        if after_s < best_s:
            log.step_log_prob[log.counts[1]] = log_prob
            _log_step(log, now, made, (best_s, after_s), drawn, chosen)
        if before_s < after_s <= settings.worst_case_s:
            now.rises_s[counters[RISES] % len(now.rises_s)] = after_s - before_s
            counters[RISES] += 1
        if _accepts(before_s, after_s, _temperature_s(settings, now, before_s, done), rng):
            now.devices[:] = drawn.devices[chosen]
            now.seconds[0] = after_s
            counters[HAS_SCHEDULE] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def _log_improvement(log: Log, now: Current, made: int, seconds: float, devices: IntArray) -> None:
    at = log.counts[0]
    log.at[at], log.seconds[at], now.seconds[2] = made, seconds, seconds
    log.devices[at] = devices
    log.counts[0] = at + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _log_step(log: Log, now: Current, made: int, seconds: tuple[float, float], drawn: Drawn, chosen: int) -> None:
    at = log.counts[1]
    log.step_at[at], log.step_kind[at] = made, drawn.kinds[chosen]
    log.step_s[at, 0], log.step_s[at, 1] = seconds
    log.step_devices[at, 0] = now.devices
    log.step_devices[at, 1] = drawn.devices[chosen]
    log.counts[1] = at + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _log_prob(drawn: Drawn, draws: int, chosen: int) -> float:
    """Log probability of the draw that gave a candidate; NaN if the policy's odds did not draw it."""
    left = chosen
    for draw in range(draws):
        if drawn.is_fresh[draw]:
            if left == 0:
                return drawn.log_probs[draw] if drawn.moves[draw] >= 0 else np.nan
            left -= 1
    return np.nan


@njit(cache=True, nogil=True, error_model="numpy")
def _temperature_s(settings: Settings, now: Current, value_s: float, done: float) -> float:
    """See `search._temperature_s`."""
    rises = min(now.counters[RISES], len(now.rises_s))
    rise_s = np.median(now.rises_s[:rises]) if rises > 0 else 0.0
    if rise_s == 0.0:
        rise_s = value_s * settings.cold[0]
    cold_s = value_s * settings.cold[0] * (settings.cold[1] / settings.cold[0]) ** done
    hot_s = rise_s * settings.hot[0] * (settings.hot[1] / settings.hot[0]) ** done
    return float(cold_s ** (1.0 - settings.warmth) * hot_s**settings.warmth)


@njit(cache=True, nogil=True, error_model="numpy")
def _accepts(before_s: float, after_s: float, temperature_s: float, rng: np.random.Generator) -> bool:
    """See `metropolis.accepts`."""
    if after_s <= before_s:
        return True
    return temperature_s > 0.0 and rng.random() < np.exp((before_s - after_s) / temperature_s)


@njit(cache=True, nogil=True, error_model="numpy")
def _write_timing(tables: Tables, now: Current, hops: int) -> None:
    """See `timing.refresh`; the schedule is in `now`."""
    units, timing, order = tables.units, now.timing, tables.topological_order
    start_s, end_s, assignment = timing.start_s[0], timing.end_s[0], timing.assignment[0]
    start_s[:], end_s[:] = now.op_s[0], now.op_s[1]
    makespan_s = 0.0
    for op in range(len(assignment)):
        assignment[op] = now.devices[units.unit_of_op[op]]
        makespan_s = max(makespan_s, end_s[op])
    for hop in range(hops):
        makespan_s = max(makespan_s, now.hop_end_s[hop])
    order = order[np.argsort(end_s[order], kind="mergesort")]
    order = order[np.argsort(start_s[order], kind="mergesort")]
    transfers = now.hops[0, :hops], now.hops[1, :hops], now.hop_end_s[:hops]
    arrival_s = arrivals(units, assignment, end_s, transfers)
    timing.arrival_s[0] = arrival_s
    timing.slack_s[0] = slack(units, assignment, start_s, end_s, arrival_s, order, makespan_s)
    timing.makespan_s[0] = makespan_s
    device_s = np.zeros(timing.busy_s.shape[1])
    for op in range(len(assignment)):
        device_s[assignment[op]] += end_s[op] - start_s[op]
    resource_s = np.dot(device_s, units.uses_resource)
    for device in range(len(device_s)):
        timing.busy_s[0, device] = (units.uses_resource[device] * resource_s).max()


@njit(cache=True, nogil=True, error_model="numpy")
def _write_scores(
    tables: Tables, settings: Settings, evaluations_left: float, head: HeadParts, reference: Reference, now: Current
) -> bool:
    """Writes the odds of all moves, see `MoveOdds.update`; true where no memory is full."""
    units, timing = tables.units, now.timing
    num_units, num_devices = now.table.likely.shape
    tail_s = timing.makespan_s[0] - timing.start_s - timing.slack_s
    unit_slack_s = np.full((1, num_units), np.inf)
    for op in range(len(units.unit_of_op)):
        unit = units.unit_of_op[op]
        unit_slack_s[0, unit] = min(unit_slack_s[0, unit], timing.slack_s[0, op])
    raw = raw_amounts(units, timing, tail_s, tables.first_row, tables.every_unit)
    pair = np.zeros((num_units, num_devices, len(PAIR)), dtype=np.float32)
    context = np.empty((num_units, len(CONTEXT)), dtype=np.float32)
    mask = np.empty((num_units, num_devices), dtype=np.bool_)
    write_relative(
        units, timing, tables.first_row, tables.every_unit, raw, unit_slack_s, settings.mean_unit_s, num_units,
        tables.capacity_bytes, budget_feature(evaluations_left, settings.num_moves), (pair, context, mask),
    )  # fmt: skip
    if settings.decides:
        write_reference(reference, units.unit_of_op, now.devices, timing, pair)
    write_odds(pair_scores(head, pair, context), mask, now.devices, now.table)
    is_roomy = True
    for unit in range(num_units):
        for device in range(num_devices):
            is_roomy = is_roomy and pair[unit, device, PAIR.fits] > 0.0
    if not is_roomy:
        for unit in range(num_units):
            for device in range(num_devices):
                pair[unit, device, PAIR.fits] = 1.0
                pair[unit, device, PAIR.memory_after] = min(pair[unit, device, PAIR.memory_after], np.float32(ROOMY))
        write_odds(pair_scores(head, pair, context), mask, now.devices, now.with_room)
    return is_roomy


def improvements(log: Log, unit_of_op: IntArray) -> Iterator[tuple[int, float, IntArray]]:
    """Evaluations of the call until each improvement, its seconds and its assignment `[N]`."""
    for at in range(int(log.counts[0])):
        yield int(log.at[at]), float(log.seconds[at]), log.devices[at][unit_of_op]
