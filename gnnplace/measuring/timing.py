"""How seconds are taken and what they say: interleaved repeats, medians, confidence intervals."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, Protocol

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.errors import MeasurementFailed
from gnnplace.evaluation import DimsObjective

__all__ = [
    "SLOWEST",
    "MeasureOptions",
    "MedianInterval",
    "Pipelined",
    "StoppingRule",
    "interleaved",
    "measured_period",
    "median_interval",
    "quiet_s",
    "run_pipelined",
    "without_drift",
]


_HOPELESS_ROUNDS = 3


@dataclass(frozen=True)
class StoppingRule:
    """When a measurement is good enough."""

    warmup: int = 2
    """Runs of each candidate that are not counted: caches fill, memory is allocated. The reference beside candidates takes one at most."""
    min_repeats: int = 6
    """Six is the least number of repeats with a 95 % interval."""
    max_repeats: int = 50
    max_s: float = 5.0
    """Seconds of repeats after which no further round begins (`min_repeats` are always made)."""
    relative_spread: float = 0.02
    """Enough when half the width of the interval is at most this fraction of the median."""
    confidence: float = 0.95
    reference_every: int = 1
    """Rounds: the reference, beside candidates, runs in the first of so many; the others take its seconds from there."""
    abandon_at: float = math.inf
    """Times the reference: when every candidate took longer in each of at least three rounds, no further one begins."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_repeats <= self.max_repeats or self.warmup < 0 or not 0 < self.confidence < 1:
            raise MeasurementFailed(
                f"repeats of {self.min_repeats} to {self.max_repeats} after {self.warmup} runs at a confidence of "
                f"{self.confidence} make no rule; expected 1 <= min_repeats <= max_repeats and 0 < confidence < 1"
            )

    def longest_s(self, num_calls: int, call_s: float) -> float:
        """Seconds that warming up and repeating so many calls may take when none of them takes longer than `call_s`.

        >>> StoppingRule(warmup=2, min_repeats=6, max_s=5.0).longest_s(2, 0.5)
        14.0
        """
        return (self.warmup + self.min_repeats + 1) * num_calls * call_s + self.max_s


@dataclass(frozen=True)
class MedianInterval:
    """A median and the interval that holds the true one with the wanted confidence."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def median_interval(samples: FloatArray, confidence: float = 0.95) -> MedianInterval:
    """Median of `[R]` samples with a distribution-free interval: order statistics by the binomial distribution.

    With too few samples for the confidence the interval is from the least to the greatest.

    >>> median_interval(np.arange(1.0, 10.0))
    MedianInterval(median=5.0, low=2.0, high=8.0)
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
    """`[...]` the lower decile of `[..., R]` seconds: what something takes on a machine that does nothing else.

    Other work only adds. On a shared host each of two cores was 1.3 times as slow for about half of the time, in phases of a second or
    more: repeats have to be spread over many seconds, and those in which both cores are fast are few.

    >>> float(quiet_s(np.array([1.0, 1.1, 1.0, 5.0, 2.0])))
    1.0
    """
    return np.quantile(samples, 0.1, axis=-1)


def without_drift(samples: FloatArray) -> FloatArray:
    """`[C, R]` seconds as they would be, had the last row, the reference, taken its median in every round.

    What slows a whole round down (another process, a lower clock) slows the reference too, and so cancels.

    >>> without_drift(np.array([[2.0, 4.0, 2.0], [1.0, 2.0, 1.0]])).tolist()
    [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]
    """
    reference = samples[-1]
    return np.asarray(samples / reference * np.median(reference))


def interleaved(
    calls: Sequence[Callable[[], object]], rule: StoppingRule, clock: Callable[[], float] = time.perf_counter
) -> FloatArray:
    """`[C, R]` seconds of `R` rounds, each of which makes every call once; the last call is the reference.

    A call that does several things may return the seconds that count; of others it is those from begin to end.

    Rounds go forwards and backwards in turn, so that no call always follows the same one. They end when the interval of
    every row, without drift, is narrow enough, or at a limit of the rule; with fewer rounds than `min_repeats` when the
    rule abandons the candidates.
    """
    for index, call in enumerate(calls):
        is_reference = 0 < index == len(calls) - 1
        for _ in range(min(rule.warmup, 1) if is_reference else rule.warmup):
            call()
    rounds: list[list[float]] = []
    hopeless = 0
    begin_s = clock()
    while len(rounds) < rule.max_repeats:
        seconds = [0.0] * len(calls)
        forwards = len(rounds) % 2 == 0
        known = len(calls) > 1 and len(rounds) % rule.reference_every > 0
        if known:
            seconds[-1] = rounds[-1][-1]
        turn = range(len(calls) - known)
        for index in turn if forwards else reversed(turn):
            start_s = clock()
            stated_s = calls[index]()
            seconds[index] = stated_s if isinstance(stated_s, float) else clock() - start_s
        rounds.append(seconds)
        hopeless += min(seconds[:-1], default=0.0) > rule.abandon_at * seconds[-1]
        if hopeless == len(rounds) >= _HOPELESS_ROUNDS:
            break
        if len(rounds) >= rule.min_repeats:
            samples = np.array(rounds).T
            if clock() - begin_s >= rule.max_s or _narrow(samples, rule):
                break
    return np.array(rounds).T


def _narrow(samples: FloatArray, rule: StoppingRule) -> bool:
    """Every row is known well enough; a single row, or the reference itself, by its own repeats."""
    rows = samples if len(samples) == 1 else without_drift(samples)[:-1]
    intervals = [median_interval(row, rule.confidence) for row in rows]
    return all(interval.spread <= rule.relative_spread * interval.median for interval in intervals)


SLOWEST = 10.0
"""Times the plain session: what is slower need not be known well."""


@dataclass(frozen=True)
class MeasureOptions:
    """How long measuring may take."""

    search: StoppingRule = StoppingRule(
        warmup=1, min_repeats=4, max_repeats=20, max_s=0.3, relative_spread=0.03, reference_every=2, abandon_at=SLOWEST
    )
    """For a placement during the search; one that is `clearly_slower` than the best so far, or over ten times as slow as the plain
    session, is not repeated further. Four repeats are too few for a 95 % interval, but the best few are measured again at the end."""
    final: StoppingRule = StoppingRule(warmup=3, min_repeats=15, max_repeats=300, max_s=10.0, relative_spread=0.005)
    """For the side-by-side comparison at the end."""
    clearly_slower: float = 1.1
    """Times the best ratio to the plain session so far: what a placement that is not repeated further exceeds in each of three repeats."""
    pieces: Literal["segments", "groups"] = "segments"
    """What is one session during the search. Segments are what will run, and only those that a move changes are compiled
    anew. Groups are compiled once per device, but lose what runtimes fuse and lay out across groups: on small groups of
    convolution networks the same placement took 1.2 to 2.3 times as long."""
    timeout_s: float = 300.0
    """After which loading and running placements is given up in any case. Sooner where the plain session is fast: each
    placement may take `loading_s` and ten times as long as loading that session, and each repeat ten times its seconds."""
    loading_s: float = 30.0
    """Allowance for loading a placement, whatever the plain session took: a GPU's libraries may be new to the process."""
    memory_limit_bytes: int | None = None
    """Resident memory above which the measuring process is stopped; None: 90 % of what is available when it starts."""
    seed: int = 0
    """Of the made-up inputs."""
    requests: int = 1
    """That are run at once, pipelined when there are several. Seconds are then those of one of them, makespan and period alike: what
    counts for throughput."""
    dims_objective: DimsObjective = "worst"
    """Which of the seconds counts where the inputs have several sizes: each repeat runs all of them, one after the other."""


class Pipelined(Protocol):
    """A `Session` or a `PlacedRunner`."""

    @property
    def max_in_flight(self) -> int:
        """Requests that are under way at once."""

    def run_many(self, output_names: None, input_feeds: Iterable[Mapping[str, Any]], /) -> Iterator[list[Any]]:
        """The outputs of many requests, one after the other."""


def run_pipelined(placed: Pipelined, feed: Mapping[str, Any], requests: int) -> None:
    """Runs as many requests as that with one feed, and forgets what comes out."""
    deque(placed.run_many(None, repeat(feed, requests)), maxlen=0)


def measured_period(placed: Pipelined, feed: Mapping[str, Any], requests: int) -> MedianInterval:
    """Seconds per request of about `requests` in rounds that fill the pipeline; filling and draining it count."""
    together = min(requests, 4 * placed.max_in_flight)
    rounds = max(1, requests // together)
    rule = StoppingRule(warmup=0, min_repeats=rounds, max_repeats=rounds)
    (samples,) = interleaved([lambda: run_pipelined(placed, feed, together)], rule)
    return median_interval(samples / together)
