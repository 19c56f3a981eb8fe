"""Which of two placements is faster: paired runs in random order, until an interval of their difference decides.

A block runs A, B, B, A or B, A, A, B, with equal probability. Its difference is the mean logarithm of A's seconds minus that of
B's: phases in which the machine is slower cancel, and so does a steady drift. Where A and B are equally fast, the random order
makes a block's difference as likely as its negative, which is the one assumption of the signed-rank test (Wilcoxon 1945). The
interval inverts that test: it lies between order statistics of all means of two blocks (Hodges and Lehmann 1963).

Sessions of one model differ by where their memory lies, and the session that was created first was up to 1 % slower than the
second one. Where memory allows, A and B are loaded twice, in the order A, B, B, A, and each block runs one of the two pairs;
where that takes little of the time, they are loaded twice more, in the order B, A, A, B. What remains is part of the interval:
its halves grow, as independent errors add up, by that of a normal error with the standard deviation `LOADING_SPREAD`.

A measurement may end at any of a dozen looks, and every look is a chance to be wrong. Each look therefore takes a confidence
of `PairRule.confidence`, with which all of them together keep 95 % (Pocock 1977 gives 99 % for normal differences).

A search wants to know whether A is faster, not by how much it is slower. A rule with `give_up` ends as soon as A is probably
slower, after four blocks where it was slower in each. The interval keeps its confidence then and may contain 0, or be infinite.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.difference import Difference
from gnnplace.measuring.near_cores import NearCores

LEAST_RUN_S = 1e-3
"""Least seconds of a timed run; shorter requests run several times in a row."""
WARM_BELOW_S = 0.02
"""Seconds of a request below which a run begins with requests that are not timed: the caches hold the data of another placement."""
WARM_S = 0.01
"""Seconds of these requests. A model of 0.3 ms took 1.0, 0.7, 0.44, 0.36, 0.34 ms after six other sessions had run, one of 1.4 ms
took 2.2 at first and reached 1.4 after ten requests."""
LOADING_SPREAD = 0.002
"""Standard deviation of the difference between a model and itself, each loaded twice, without the noise of the runs: 0.1 to 0.5 %
on eight models (`bench pairs`)."""
_LEAST_TO_GIVE_UP = 4  # blocks; with fewer, every eighth equal candidate would be given up at once
_EXACT = 60  # blocks up to which the distribution of the signed-rank sum is computed, not approximated


@dataclass(frozen=True)
class PairRule:
    """Conditions that end a paired measurement."""

    first_look: int = 10
    """Blocks before the first look; fewer than nine have no interval at this confidence."""
    growth: float = 1.4
    """Factor between the numbers of blocks at two looks."""
    max_blocks: int = 400
    max_s: float = 60.0
    """Seconds after which no block begins, once the first look is over."""
    width: float = 0.005
    """Width of the interval, as a fraction and without what the loading adds, at which the two count as equally fast."""
    confidence: float = 0.995
    """Confidence of the interval at each look; see the module. With fewer looks less is enough."""
    give_up: float | None = None
    """Confidence with which A is slower, at any block from the fourth on, that ends the measurement; None: nothing but a look
    ends it."""
    least_run_s: float = LEAST_RUN_S
    warm_below_s: float = WARM_BELOW_S
    patience_s: float = 0.0
    """Seconds to wait, in all, while the host keeps the cores far from each other; blocks within such a phase do not count."""


def difference_of(
    samples: FloatArray, confidence: float = PairRule.confidence, loading_spread: float = LOADING_SPREAD
) -> Difference:
    """The difference between the two rows of `[2, R]` seconds; columns `2k` and `2k + 1` are block `k`.

    `loading_spread` is the standard deviation of what the loading of the models adds to it.
    """
    centre, low, high = signed_rank_interval(_block_differences(samples), confidence)
    more = loading_spread * NormalDist().inv_cdf((1 + confidence) / 2)
    bounds = centre, centre - math.hypot(centre - low, more), centre + math.hypot(high - centre, more)
    difference, lower, upper = np.expm1(bounds).tolist()
    return Difference(difference, lower, upper, samples.shape[1])


def _block_differences(samples: FloatArray) -> FloatArray:
    """`[R / 2]` mean logarithms of A's seconds minus those of B's, from `[2, R]` seconds."""
    logs = np.log(samples).reshape(2, -1, 2).mean(axis=2)
    return np.asarray(logs[0] - logs[1])


def signed_rank_interval(values: FloatArray, confidence: float) -> tuple[float, float, float]:
    """Hodges-Lehmann estimate of the centre of symmetry of `[n]` values, and its confidence interval; infinite with too few values."""
    rows, columns = np.triu_indices(len(values))
    means = np.sort((values[rows] + values[columns]) / 2)
    rank = _rank(len(values), (1 - confidence) / 2)
    low, high = (means[rank - 1], means[-rank]) if rank else (-math.inf, math.inf)
    return float(np.median(means)), float(low), float(high)


def _rank(count: int, tail: float) -> int:
    """Greatest k such that the signed-rank sum of `count` values is below k with a probability of at most `tail`."""
    if count > _EXACT:
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return max(0, int(count * (count + 1) / 4 - 0.5 + NormalDist().inv_cdf(tail) * spread))
    chance = np.ones(1)
    for rank in range(1, count + 1):
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    return int(np.searchsorted(np.cumsum(chance), tail, side="right"))


class WarmRuns:
    """Timed runs of several calls, each with its own data in the caches, whichever call ran before it.

    Where another call ran before, or none did for a while, as many requests as take `WARM_S` (at least one) come first and are not
    timed.
    """

    def __init__(
        self,
        calls: Sequence[Callable[[], float]],
        least_run_s: float = LEAST_RUN_S,
        warm_below_s: float = WARM_BELOW_S,
    ) -> None:
        """Each call returns its seconds."""
        self._calls, self._least_run_s, self._warm_below_s = calls, least_run_s, warm_below_s
        self._request_s, self._last = [math.inf] * len(calls), -1

    def paused(self) -> None:
        """Tells that no call ran for a while, in which a shared host may have used the caches for others."""
        self._last = -1

    def run(self, index: int) -> float:
        """Mean seconds per call of one run; the last run decides whether the next one is warmed up, and its number of calls."""
        call, before_s = self._calls[index], self._request_s[index]
        if before_s < self._warm_below_s and index != self._last:
            for _ in range(_count(WARM_S, before_s)):
                call()
        count = _count(self._least_run_s, before_s)
        self._request_s[index], self._last = sum(call() for _ in range(count)) / count, index
        return self._request_s[index]


def _count(least_s: float, call_s: float) -> int:
    """Number of calls that take `least_s` together, one or more."""
    return max(1, math.ceil(least_s / max(call_s, 1e-9)))


def paired_samples(
    pairs: Sequence[tuple[Callable[[], float], Callable[[], float]]],
    rule: PairRule,
    rng: np.random.Generator,
    clock: Callable[[], float] = time.perf_counter,
) -> FloatArray:
    """`[2, R]` seconds that calls of A and B return, as `difference_of` takes them, until a look decides or the rule ends them.

    Each pair calls sessions of its own, and each block takes one pair: all pairs in random order, then again. `NearCores` repeats
    blocks in which the cores were far from each other.
    """
    cores = NearCores(rule.patience_s)
    runs = WarmRuns([call for pair in pairs for call in pair], rule.least_run_s, rule.warm_below_s)
    for index in [*range(2 * len(pairs))] * 2:
        runs.run(index)
    blocks, waiting = list[list[list[float]]](), list[int]()
    begin_s, look = clock() - cores.lost_s, rule.first_look
    while len(blocks) < rule.max_blocks:
        waiting = waiting or rng.permutation(len(pairs)).tolist()
        taken: list[list[float]] = [[], []]
        first, pair = int(rng.integers(2)), waiting.pop()
        for index in (first, 1 - first, 1 - first, first):
            taken[index].append(runs.run(2 * pair + index))
        if cores.moved():
            runs.paused()
            continue
        blocks.append(taken)
        if rule.give_up is not None and len(blocks) >= _LEAST_TO_GIVE_UP:
            differences = _block_differences(np.concatenate(blocks, axis=1))
            if signed_rank_interval(differences, 2 * rule.give_up - 1)[1] > 0:
                break
        is_late = clock() - begin_s - cores.lost_s >= rule.max_s and len(blocks) >= rule.first_look
        if len(blocks) >= look or is_late:
            look = math.ceil(rule.growth * look)
            samples = np.concatenate(blocks, axis=1)
            of_runs = difference_of(samples, rule.confidence, loading_spread=0.0)
            is_narrow = of_runs.high - of_runs.low < rule.width  # further runs hardly change the interval
            if difference_of(samples, rule.confidence).sign or is_narrow or is_late:
                break
    return np.concatenate(blocks, axis=1)
