import os
import time
from pathlib import Path

import numpy as np
import pytest

from gnnplace.errors import InvalidPlacement, MeasurementFailed
from gnnplace.onnx_io.part import Part
from gnnplace.running.dataflow import START, plan_steps
from gnnplace.running.part_session import PartSession, SessionCache
from gnnplace.running.runner import PlacedRunner
from tests.parts import add_one, part
from tests.patience import PATIENCE_S

two_cores = pytest.mark.usefixtures("needs_two_cores")


def alternating(length: int) -> list[Part]:
    return [add_one(f"v{i}", f"v{i + 1}", f"cpu:{i % 2}") for i in range(length)]


@two_cores
def test_a_value_handed_back_and_forth_arrives_unchanged() -> None:
    with PlacedRunner(alternating(21), ["v0"], ["v21", "v8"]) as runner:
        for start in range(30):
            last, middle = runner.run(None, {"v0": np.full(2, start, np.float32)})
            assert (last.tolist(), middle.tolist()) == ([start + 21] * 2, [start + 8] * 2)


@two_cores
def test_every_part_of_the_last_run_has_its_seconds() -> None:
    begin_s = time.perf_counter()
    with PlacedRunner(alternating(5), ["v0"], ["v5"]) as runner:
        assert runner.part_s == {}
        runner.run(None, {"v0": np.ones(2, np.float32)})
        assert sorted(runner.part_s) == [0, 1, 2, 3, 4]
        assert 0 < sum(runner.part_s.values()) < time.perf_counter() - begin_s


def test_a_failing_part_on_one_device_is_named() -> None:
    parts = [add_one("a", "b", "cpu:0"), add_one("b", "c", "cpu:0")]
    with (
        PlacedRunner(parts, ["a"], ["c"]) as runner,
        pytest.raises(MeasurementFailed, match="part 'a->b' failed on 'cpu:0'"),
    ):
        runner.run(None, {"a": np.zeros(1)})
    with (
        PlacedRunner(parts[:1], ["a"], ["b"]) as runner,
        pytest.raises(MeasurementFailed, match=r"failed on 'cpu:0'.*double"),
    ):
        runner.run(None, {"a": np.zeros(1)})


def test_parts_that_do_not_fit_together_are_refused() -> None:
    late = [add_one("b", "c", "cpu:0"), add_one("a", "b", "cpu:0")]
    twice = [add_one("a", "b", "cpu:0"), add_one("a", "b", "cpu:0")]
    for parts, message in ((late, "reads 'b', which no earlier part"), (twice, "produces 'b', which is there already")):
        with pytest.raises(InvalidPlacement, match=message):
            PlacedRunner(parts, ["a"], ["b"])
    with pytest.raises(InvalidPlacement, match="'z' is produced by no part"):
        PlacedRunner(twice[:1], ["a"], ["z"])


def test_steps_wait_once_keep_values_with_later_readers_and_release_the_others() -> None:
    parts = [
        Part("0", "p", b"", ("x",), ("a", "b")),
        Part("1", "q", b"", ("a", "x"), ("c",)),
        Part("2", "q", b"", ("b", "a"), ("d",)),
        Part("3", "p", b"", ("b", "d"), ("e",)),
    ]
    steps, feeds = plan_steps(parts, ["x", "unused"], ["c", "e"])
    assert feeds == {"p": ("x",), "q": ("x",)}
    assert [(s.waits, s.keeps, s.sends, s.results, s.releases) for s in steps["p"]] == [
        ({START}, ("b",), (("q", ("a", "b")),), (), ("x",)),
        ({2}, (), (), ("e",), ("b", "d")),
    ]
    assert [(s.waits, s.keeps, s.sends, s.results, s.releases) for s in steps["q"]] == [
        ({START, 0}, (), (), ("c",), ("x",)),
        (set(), (), (("p", ("d",)),), (), ("b", "a")),
    ]


def test_parts_on_devices_that_share_a_resource_take_turns_in_the_global_order() -> None:
    parts = [Part(str(n), device, b"", ("x",), (f"y{n}",)) for n, device in enumerate("pqbbpqb")]
    steps, _ = plan_steps(parts, ["x"], [], {"p": "b", "q": "b", "b": "pq"})
    waits = {step.number: step.waits - {START} for own in steps.values() for step in own}
    assert waits == {0: set(), 1: set(), 2: {0, 1}, 3: set(), 4: {3}, 5: {3}, 6: {4, 5}}
    sends = {step.number: dict(step.sends) for own in steps.values() for step in own}
    assert sends == {0: {"b": ()}, 1: {"b": ()}, 2: {}, 3: {"p": (), "q": ()}, 4: {"b": ()}, 5: {"b": ()}, 6: {}}


@two_cores
def test_requests_on_cores_and_on_both_cores_together_give_the_right_values() -> None:
    devices = ["cpu:0", "cpu:0-1", "cpu:1", "cpu:0", "cpu:0-1", "cpu:0-1", "cpu:1"]
    parts = [add_one(f"v{i}", f"v{i + 1}", device) for i, device in enumerate(devices)]
    parts += [add_one("v0", f"w{i}", device) for i, device in enumerate(devices)]  # all at once
    outputs = ["v7", *(f"w{i}" for i in range(7))]
    with PlacedRunner(parts, ["v0"], outputs) as runner:
        feeds = [{"v0": np.full(2, start, np.float32)} for start in range(200)]
        for start, found in enumerate(runner.run_many(None, feeds)):
            assert [value.tolist() for value in found] == [[start + 7] * 2, *[[start + 1] * 2] * 7]


def test_a_cache_returns_the_session_of_a_key_until_it_drops_the_key() -> None:
    def create() -> PartSession:
        raise LookupError("the cache has no such session")

    cache, found = SessionCache(), []
    for _ in range(3):
        with PlacedRunner(
            [add_one("a", "b", "cpu:0", "first"), add_one("b", "c", "cpu:0")], ["a"], ["c"], cache
        ) as runner:
            assert runner.run(None, {"a": np.zeros(1, np.float32)})[0].tolist() == [2]
            found.append(cache.get(PartSession, ("first", "cpu:0"), create))
    assert found[0] is found[1] is found[2]
    cache.retain([])
    with pytest.raises(LookupError):
        cache.get(PartSession, ("first", "cpu:0"), create)


@two_cores
def test_a_core_set_runs_one_thread_per_core() -> None:
    def tasks() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    def allowed_cores(task: str) -> str:
        status = Path(f"/proc/self/task/{task}/status").read_text()
        return next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))

    before = tasks()
    exp = part("(float[N] a) => (float[N] b) { b = Exp(a) }", "cpu:0-1")
    with PlacedRunner([exp], ["a"], ["b"]) as runner:
        (extra,) = tasks() - before
        deadline = time.monotonic() + PATIENCE_S
        while allowed_cores(extra) != "1" and time.monotonic() < deadline:
            time.sleep(0.01)  # the thread pins itself after it has begun
        assert allowed_cores(extra) == "1"
        assert runner.run(None, {"a": np.zeros(1, np.float32)})[0].tolist() == [1]
