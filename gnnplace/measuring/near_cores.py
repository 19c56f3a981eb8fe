"""Whether the cores of this machine are near each other: a host may move virtual cores between physical ones.

On one host a word went from one of two virtual cores to the other and back in 0.05 us for some seconds or minutes, and in 0.35 us in
the next: the cores shared a cache, or did not. With two threads, a session of many short ops took 1.3 ms between near cores and 2.55
between far ones, one that reads large weights 4.7 and 3.45; with one thread both took the same. What is faster in one phase may be
slower in the other, so measurements wait for one of them, the near one.

On a machine whose round trips always take the same time, however long, nothing waits. Where the cores stay far for longer than a
measurement has patience, it goes on, and for some minutes no other measurement waits.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread

import numpy as np

from gnnplace.devices.detect import allowed_cores, pinned_to
from gnnplace.files import cache_folder, write_text

try:
    from gnnplace.running.compiled.volley import volley
except ImportError:  # without numba nothing tells, and nothing waits
    volley = None  # type: ignore[assignment]

PATIENCE_S = 20.0
"""Seconds that a measurement waits, in all, while the cores are far from each other; many such phases took 5 to 15 s, some minutes."""
STEP_PATIENCE_S = 10.0
"""The same for each of the many measurements of a search."""
FAR = 2.5
"""Multiple of the least seconds of a round trip from which cores are far from each other."""
_TRIPS, _BURSTS = 1000, 6
_MOST_PAIRS = 3
_PAUSE_S = 0.1
_RESIGNED = 10.0
"""After waiting in vain, no measurement of the process waits for this multiple of the patience."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")

Trips = Mapping[str, float]
"""Seconds of a round trip by the numbers of two cores, such as `0-1`."""


def round_trip_s(first: int, second: int) -> float:
    """Seconds in which a word goes from one core to another and back: the fastest of some bursts; NaN where other work is in the way."""
    words, taken_s = np.zeros(16, dtype=np.int64), list[float]()

    def play(side: int, core: int) -> None:
        with pinned_to((core,)):
            for burst in range(_BURSTS):
                begin_s = time.perf_counter()
                if not volley(words, side, burst * _TRIPS, _TRIPS):
                    return
                if side == 0:
                    taken_s.append(time.perf_counter() - begin_s)

    threads = [Thread(target=play, args=each) for each in ((0, first), (1, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return min(taken_s, default=math.nan) / _TRIPS


def round_trips() -> Trips:
    """Round trips between the first core and at most three others; none where they cannot be measured."""
    first, *others = allowed_cores()
    if volley is None or not _BOOT.exists():
        return {}
    chosen = others if len(others) <= _MOST_PAIRS else [others[0], others[len(others) // 2], others[-1]]
    return {f"{first}-{other}": round_trip_s(first, other) for other in chosen}


@dataclass
class Resignation:
    """Time until which the measurements of a process do not wait, because waiting was in vain."""

    until_s: float = -math.inf


_OF_PROCESS = Resignation()


class NearCores:
    """Detects the rounds of one measurement in which the host moved its cores, and waits until the cores are near each other again."""

    def __init__(
        self,
        patience_s: float,
        trips: Callable[[], Trips] = round_trips,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        resigned: Resignation = _OF_PROCESS,
    ) -> None:
        """Waits until the cores are near; all waiting together ends after `patience_s` seconds."""
        self.lost_s = 0.0
        """Seconds of waiting, and of the work before it that was in vain."""
        self._patience_s, self._trips, self._clock, self._sleep = patience_s, trips, clock, sleep
        self._resigned = resigned
        self._since_s = clock()
        self.moved()

    def moved(self) -> bool:
        """Whether the cores were far from each other at this call. If so, it waits until they are near, and the caller drops its last round."""
        if self.lost_s >= self._patience_s or self._clock() < self._resigned.until_s:
            self._since_s = self._clock()
            return False
        begin_s, has_moved = self._since_s, False
        while not _are_near(self._trips()):
            has_moved = True
            if self.lost_s + self._clock() - begin_s >= self._patience_s:
                self._resigned.until_s = self._clock() + _RESIGNED * self._patience_s
                break
            self._sleep(_PAUSE_S)
        self._since_s = self._clock()
        if has_moved:
            self.lost_s += self._since_s - begin_s
        return has_moved


def _are_near(trips: Trips) -> bool:
    """Whether no round trip takes much longer than it ever did since the machine started; remembers the least ones."""
    known = {pair: seconds for pair, seconds in trips.items() if not math.isnan(seconds)}
    least = _least_trips()
    shorter = {pair: seconds for pair, seconds in known.items() if seconds < least.get(pair, math.inf)}
    least.update(shorter)
    if shorter:
        with suppress(OSError):  # another process finds them out itself
            write_text(_file(), json.dumps({"boot": _boot(), "round_trip_s": least}))
    return all(seconds < FAR * least[pair] for pair, seconds in known.items())


@cache
def _least_trips() -> dict[str, float]:
    """The least round trips of this process, and of earlier ones on the machine as it runs now."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(_file().read_text(encoding="utf-8"))
        if stored["boot"] == _boot():
            return {str(pair): float(seconds) for pair, seconds in stored["round_trip_s"].items()}
    return {}


@cache
def _boot() -> str:
    return _BOOT.read_text(encoding="utf-8").strip() if _BOOT.exists() else ""


def _file() -> Path:
    return cache_folder() / "round_trips.json"
