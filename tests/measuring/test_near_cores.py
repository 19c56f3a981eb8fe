"""Tests of waiting while a host keeps the cores far from each other."""

import json
import math
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from gnnplace.devices.detect import allowed_cores
from gnnplace.measuring import near_cores, paired, timing
from gnnplace.measuring.near_cores import NearCores, Resignation, round_trip_s, round_trips
from gnnplace.measuring.paired import PairRule, paired_samples
from gnnplace.measuring.timing import StoppingRule, interleaved
from gnnplace.running.compiled.volley import volley

NEAR, FAR = 1e-7, 4.6e-7


class Host:
    """Cores that are far from each other in given seconds of a clock, which passes only by sleep and by calls."""

    def __init__(self, *far: tuple[float, float], far_s: float = FAR) -> None:
        self.now_s, self._far, self._far_s = 0.0, far, far_s
        self.slept_s = 0.0
        self._resigned = Resignation()

    @property
    def is_far(self) -> bool:
        return any(begin <= self.now_s < end for begin, end in self._far)

    def trips(self) -> dict[str, float]:
        return {"0-1": self._far_s if self.is_far else NEAR}

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds

    def clock(self) -> float:
        return self.now_s

    def run(self) -> float:
        """A request of one second, or two where the cores are far as it begins."""
        seconds = 2.0 if self.is_far else 1.0
        self.now_s += seconds
        return seconds

    def cores(self, patience_s: float) -> NearCores:
        return NearCores(patience_s, self.trips, self.clock, self.sleep, self._resigned)


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of least round trips, which says that near cores need `NEAR`."""
    file = tmp_path / "round_trips.json"
    monkeypatch.setattr(near_cores, "_file", lambda: file)
    write(file, near_cores._boot())
    yield file
    near_cores._least_trips.cache_clear()


def write(file: Path, boot: str) -> None:
    file.write_text(json.dumps({"boot": boot, "round_trip_s": {"0-1": NEAR}}))
    near_cores._least_trips.cache_clear()


def test_waits_until_the_cores_are_near() -> None:
    host = Host((0.0, 5.0), (7.0, 8.0))
    cores = host.cores(30.0)
    assert host.now_s == pytest.approx(5.0, abs=0.2)
    assert cores.lost_s == pytest.approx(5.0, abs=0.2)
    host.now_s = 6.0
    assert not cores.moved()
    host.now_s = 7.5
    assert cores.moved()
    assert host.now_s == pytest.approx(8.0, abs=0.2)
    assert cores.lost_s == pytest.approx(5.0 + 2.0, abs=0.4)  # the work since 6.0 was in vain


def test_waits_no_longer_than_the_patience() -> None:
    host = Host((0.0, math.inf))
    cores = host.cores(3.0)
    assert host.slept_s == pytest.approx(3.0, abs=0.2)
    assert not cores.moved()
    assert host.slept_s == pytest.approx(3.0, abs=0.2)


def test_nobody_waits_for_some_time_after_it_was_of_no_use() -> None:
    host = Host((0.0, 80.0))
    host.cores(5.0)
    assert host.slept_s == pytest.approx(5.0, abs=0.2)
    host.now_s = 50.0
    assert host.cores(5.0).lost_s == 0.0
    host.now_s = 78.0
    assert host.cores(5.0).lost_s == pytest.approx(2.0, abs=0.2)


def test_work_while_nobody_waits_is_not_in_vain() -> None:
    host = Host((0.0, 5.5), (55.5, 57.0))
    host.cores(5.0)  # until 55
    host.now_s = 6.0
    cores = host.cores(5.0)
    for host.now_s in (30.0, 54.9):
        assert not cores.moved()
    host.now_s = 56.0
    assert cores.moved()
    assert cores.lost_s == pytest.approx(1.1 + 1.0, abs=0.2)


def test_does_not_ask_without_patience() -> None:
    def trips() -> dict[str, float]:
        pytest.fail("asked")

    assert not NearCores(0.0, trips).moved()


def test_cores_that_always_were_as_far_are_near(known: Path) -> None:
    write(known, "another start of the machine")
    host = Host((0.0, math.inf))
    host.cores(30.0)
    assert host.slept_s == 0.0
    stored = json.loads(known.read_text())
    assert stored == {"boot": near_cores._boot(), "round_trip_s": {"0-1": FAR}}


def test_other_work_on_a_core_tells_nothing() -> None:
    host = Host((0.0, math.inf), far_s=math.nan)
    host.cores(30.0)
    assert host.slept_s == 0.0


@pytest.mark.parametrize("content", ["", "[]", '{"boot": "b"}', '{"boot": 1, "round_trip_s": 2}'])
def test_a_damaged_file_is_as_none(known: Path, content: str) -> None:
    known.write_text(content)
    near_cores._least_trips.cache_clear()
    assert Host((0.0, math.inf)).cores(30.0).lost_s == 0.0
    assert json.loads(known.read_text())["round_trip_s"] == {"0-1": FAR}


@pytest.fixture
def host_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Host]:
    """Makes a host whose phases all measurements see."""

    def make(*far: tuple[float, float]) -> Host:
        host = Host(*far)
        for module in (timing, paired):
            monkeypatch.setattr(module, "NearCores", host.cores)
        return host

    return make


def test_rounds_between_far_cores_do_not_count(host_of: Callable[..., Host]) -> None:
    host = host_of((4.5, 9.0))
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=6, max_s=1e9, patience_s=60.0)
    samples = interleaved([host.run, host.run], rule, np.random.default_rng(0), host.clock)
    assert samples.tolist() == [[1.0] * 6] * 2


def test_without_patience_all_rounds_count(host_of: Callable[..., Host]) -> None:
    host = host_of((4.5, 9.0))
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=6, max_s=1e9)
    assert 2.0 in interleaved([host.run, host.run], rule, np.random.default_rng(0), host.clock)


def test_waiting_takes_nothing_of_the_seconds_of_a_rule(host_of: Callable[..., Host]) -> None:
    host = host_of((3.5, 20.0))
    rule = StoppingRule(warmup=0, min_repeats=6, max_repeats=50, max_s=10.0, relative_spread=0.0, patience_s=60.0)
    noise = cycle((0.9, 1.1))  # never narrow
    samples = interleaved([lambda: host.run() * next(noise)], rule, np.random.default_rng(0), host.clock)
    assert samples.shape == (1, 10)


def test_blocks_between_far_cores_do_not_count(host_of: Callable[..., Host]) -> None:
    host = host_of((6.5, 30.0))
    rule = PairRule(max_blocks=12, max_s=1e9, width=0.0, patience_s=60.0)
    samples = paired_samples([(host.run, host.run)], rule, np.random.default_rng(0), host.clock)
    assert samples.tolist() == [[1.0] * 24] * 2


def test_a_longest_time_has_the_patience() -> None:
    assert StoppingRule(patience_s=7.0).longest_s(2, 1.0) == StoppingRule().longest_s(2, 1.0) + 7.0


def test_a_volley_ends_where_nobody_answers() -> None:
    words = np.zeros(16, dtype=np.int64)
    assert not volley(words, 1, 0, 10)
    assert not volley(words, 0, 0, 10)  # the other side learns of it


@pytest.mark.usefixtures("needs_two_cores")
def test_round_trips_between_the_cores_of_this_machine() -> None:
    first, second, *_ = allowed_cores()
    taken = [round_trip_s(first, second) for _ in range(20)]
    assert all(math.isnan(seconds) or 1e-9 < seconds < 1e-2 for seconds in taken)
    assert f"{first}-{second}" in round_trips()
