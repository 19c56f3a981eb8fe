"""Repeated measurements and their statistics: interleaved rounds, medians, confidence intervals."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring.near_cores import PATIENCE_S, STEP_PATIENCE_S, NearCores
from gnnplace.measuring.paired import LEAST_RUN_S, WARM_S, PairRule, WarmRuns
from gnnplace.objectives import DimsObjective
from gnnplace.running.runner import PlacedRunner
from gnnplace.running.values import Feed

if TYPE_CHECKING:
    from gnnplace.running.session import Session

SLOWEST = 10.0
"""Multiple of the plain session's seconds above which the search does not measure a placement precisely."""
_HOPELESS_ROUNDS = 3


@dataclass(frozen=True)
class StoppingRule:
    """Conditions that end a measurement."""

    warmup: int = 2
    """Runs of each candidate before the first round, which fill caches and allocate memory; at most one of the reference."""
    min_repeats: int = 6
    """Least number of rounds; six is the least that gives a 95 % interval."""
    max_repeats: int = 50
    """Greatest number of rounds."""
    max_s: float = 5.0
    """Seconds after which no further round begins, once `min_repeats` are done."""
    relative_spread: float = 0.02
    """Half the width of a 95 % interval that is narrow enough, as a fraction of the median."""
    spread_s: float = 0.0
    """Seconds over which the least number of rounds is spread evenly. On a shared host a core is slow for seconds at a time, and all
    rounds of a short measurement may lie in such a phase."""
    patience_s: float = 0.0
    """Seconds to wait, in all, while the host keeps the cores far from each other; rounds within such a phase do not count."""
    abandon_at: float = math.inf
    """Multiple of the reference's seconds; a candidate that exceeds it in all of three rounds or more takes part in no other."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_repeats <= self.max_repeats or self.warmup < 0:
            raise MeasurementFailed(
                f"{self.min_repeats} to {self.max_repeats} repeats after {self.warmup} runs make no rule; "
                "expected 1 <= min_repeats <= max_repeats"
            )

    def longest_s(self, num_calls: int, call_s: float) -> float:
        """Upper bound in seconds for warming up and repeating `num_calls` calls that take at most `call_s` each.

        Each repeat of a short call takes `WARM_S`, `LEAST_RUN_S` and two calls at most, as the call is about as long each time.
        """
        repeats = self.warmup + 2 * (self.min_repeats + 1)
        return repeats * num_calls * (call_s + WARM_S + LEAST_RUN_S) + self.max_s + self.spread_s + self.patience_s


@dataclass(frozen=True)
class MedianInterval:
    """A median and its confidence interval."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def median_interval(samples: FloatArray, confidence: float = 0.95) -> MedianInterval:
    """Median of `[R]` samples with a distribution-free interval: order statistics by the binomial distribution.

    It assumes independent samples of one distribution, which ratios to a reference of the same round approach better than
    seconds. With too few samples for the confidence the interval is from the least to the greatest, which has a confidence of
    `1 - 2**(1 - R)`: 88 % for four samples, 94 % for five, and 97 % for six. A rule that ends a measurement as soon as its
    interval is narrow lowers the confidence further.
    """
    ordered = np.sort(samples)
    count = len(ordered)
    # The true median lies below the k-th smallest of R samples when fewer than k of them do.
    below, k = 0.0, 0
    while k < count // 2:
        below += math.comb(count, k) / 2**count
        if below >= (1 - confidence) / 2:
            break
        k += 1
    edge = max(k - 1, 0)
    return MedianInterval(float(np.median(ordered)), float(ordered[edge]), float(ordered[count - 1 - edge]))


def quiet_s(samples: FloatArray) -> Any:
    """`[...]` the lower decile of `[..., R]` seconds: an estimate for a machine without other work.

    Other work only adds seconds. On a shared host each of two cores was 1.3 times as slow for about half of the time, in
    phases of a second or more. Repeats therefore have to spread over many seconds, and few of them find both cores fast.
    """
    return np.quantile(samples, 0.1, axis=-1)


def without_drift(samples: FloatArray) -> FloatArray:
    """`[C, R]` seconds, scaled round by round so that the last row, the reference, takes its median in every round.

    Another process or a lower clock slows the candidates and the reference of a round alike, and so cancels.
    """
    reference = samples[-1]
    return np.asarray(samples / reference * np.median(reference))


def interleaved(
    calls: Sequence[Callable[[], object]],
    rule: StoppingRule,
    rng: np.random.Generator,
    clock: Callable[[], float] = time.perf_counter,
) -> FloatArray:
    """`[C, R]` seconds of `R` rounds, each of which makes every call in a random order; the last of several calls is the reference.

    A call that returns a float states its own seconds; for others the clock decides. `WarmRuns` makes each call independent of
    the one before it. A candidate that the rule abandons has NaN in all later rounds, and rounds end when none is left (which
    may be before `min_repeats`). They also end when the interval of every row, without drift, is narrow enough, or at a limit
    of the rule. `NearCores` repeats rounds in which the cores were far from each other.
    """
    cores = NearCores(rule.patience_s)
    timed = [partial(_seconds_of, call, clock) for call in calls]
    runs, reference = WarmRuns(timed), len(calls) - 1
    for index in rng.permutation(len(calls)).tolist():  # the last of them would have an advantage in the first round
        for _ in range(min(rule.warmup, 1) if 0 < index == reference else rule.warmup):
            runs.run(index)
    taken: list[list[float]] = [[] for _ in calls]
    running, begin_s = list(range(len(calls))), clock() - cores.lost_s
    while len(taken[reference]) < rule.max_repeats:
        if rule.spread_s > 0:
            due_s = begin_s + cores.lost_s + rule.spread_s * len(taken[reference]) / rule.min_repeats
            if (rest_s := due_s - clock()) > 0:
                time.sleep(rest_s)
                runs.paused()
        for index in rng.permutation(running).tolist():
            taken[index].append(runs.run(index))
        if cores.moved():
            for index in running:
                taken[index].pop()
            runs.paused()
            continue
        if len(taken[reference]) >= _HOPELESS_ROUNDS:
            limits_s = rule.abandon_at * np.array(taken[reference])
            running = [index for index in running if index == reference or (taken[index] <= limits_s).any()]
            if len(running) == 1 < len(calls):
                break
        if len(taken[reference]) >= rule.min_repeats:
            samples = np.array([taken[index] for index in running])
            intervals = map(median_interval, samples if len(samples) == 1 else without_drift(samples)[:-1])
            narrow = all(interval.spread <= rule.relative_spread * interval.median for interval in intervals)
            if clock() - begin_s - cores.lost_s >= rule.max_s or narrow:
                break
    rounds = len(taken[reference])
    return np.array([row + [math.nan] * (rounds - len(row)) for row in taken])


def _seconds_of(call: Callable[[], object], clock: Callable[[], float]) -> float:
    begin_s = clock()
    stated_s = call()
    return stated_s if isinstance(stated_s, float) else clock() - begin_s


@dataclass(frozen=True)
class MeasureOptions:
    """Limits and stopping rules of a measured search."""

    search: StoppingRule = StoppingRule(
        warmup=1,
        min_repeats=4,
        max_repeats=20,
        max_s=0.3,
        relative_spread=0.03,
        patience_s=STEP_PATIENCE_S,
        abandon_at=SLOWEST,
    )
    """Rule for a placement during the search. Four repeats are too few for a 95 % interval (theirs has 88 %), but the end of
    the search measures the best few again."""
    final: StoppingRule = StoppingRule(
        warmup=3, min_repeats=15, max_repeats=300, max_s=10.0, relative_spread=0.005, patience_s=PATIENCE_S
    )
    """Rule for the side-by-side comparison at the end."""
    plain: StoppingRule | None = StoppingRule(
        max_repeats=40, max_s=2.0, relative_spread=0.01, patience_s=PATIENCE_S, abandon_at=1.3
    )
    """Rule for the plain sessions, of which the best becomes the reference; None: the first that runs is the reference."""
    step: PairRule = PairRule(
        first_look=7,
        max_blocks=24,
        max_s=2.0,
        width=0.01,
        confidence=0.984,
        give_up=0.93,
        least_run_s=8e-3,
        patience_s=STEP_PATIENCE_S,
    )
    """Rule for two placements during a search; by Pocock (1977) its five looks together have a confidence of 95 %. Runs of 8 ms
    let the few blocks of a fast model use the seconds. A step that was slower in each of four blocks is given up; an
    equally fast one is given up at the fourth block with a chance of 6 %."""
    decisive: PairRule = PairRule(max_s=20.0, patience_s=PATIENCE_S)
    """Rule for the fastest placement and the reference, between which it decides at the end."""
    clearly_slower: float = 1.1
    """Multiple of the best ratio to the plain session so far. The search abandons a placement that exceeds it in each of its
    first three repeats."""
    timeout_s: float = 300.0
    """Greatest limit in seconds for loading and running placements. The limit is lower where the plain session is fast:
    `loading_s` and ten times that session's loading time for each placement, and ten times its seconds for each repeat."""
    loading_s: float = 30.0
    """Least limit in seconds for loading a placement, as the process may have to load a GPU's libraries."""
    memory_limit_bytes: int | None = None
    """Resident memory above which the measuring process is stopped; None: 90 % of the available memory when it starts."""
    seed: int = 0
    """Seed of the sample inputs."""
    requests: int = 1
    """Requests per repeat, pipelined when there are several. Makespan and period are then the seconds per request, as for the
    throughput objective."""
    dims_objective: DimsObjective = "worst"
    """How the seconds of several input sizes become one figure; each repeat runs all sizes one after the other."""


def run_pipelined(placed: Session | PlacedRunner, feed: Feed, requests: int) -> None:
    """Runs `requests` pipelined requests with one feed and drops their outputs."""
    deque(placed.run_many(None, repeat(feed, requests)), maxlen=0)


def measured_period(placed: Session, feed: Feed, requests: int) -> MedianInterval:
    """Seconds per request, from about `requests` requests in rounds that fill the pipeline; filling and draining count."""
    together = min(requests, 4 * placed.max_in_flight)
    rounds = max(1, requests // together)
    rule = StoppingRule(warmup=0, min_repeats=rounds, max_repeats=rounds)
    (samples,) = interleaved([lambda: run_pipelined(placed, feed, together)], rule, np.random.default_rng(0))
    return median_interval(samples / together)
