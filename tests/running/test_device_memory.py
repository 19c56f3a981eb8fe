"""Devices with memory of their own: copies overlap computing, and each value is copied once."""

import time
from collections.abc import Callable, Mapping
from threading import Event, current_thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnplace.errors import MeasurementFailed
from gnnplace.onnx_io.part import Part
from gnnplace.running import worker
from gnnplace.running.devices import parse_device
from gnnplace.running.part_session import PartSession
from gnnplace.running.pipeline import python_devices
from gnnplace.running.runner import PlacedRunner
from gnnplace.running.values import DeviceMemory, as_numpy, device_memory
from tests.parts import part
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("needs_two_cores")


class StandIn:
    """Counts the copies of a device that has no memory of its own."""

    def __init__(self) -> None:
        self.out: list[float] = []
        self.into: list[float] = []
        self.threads: set[str] = set()
        self.before_out: Callable[[float], None] = lambda value: None
        self.before_into: Callable[[float], None] = lambda value: None

    def to_host(self, value: Any) -> Any:
        self._note(value, self.out, self.before_out)
        return as_numpy(value).copy()

    def from_host(self, value: Any) -> Any:
        self._note(value, self.into, self.before_into)
        return as_numpy(value).copy()

    def _note(self, value: Any, copies: list[float], before: Callable[[float], None]) -> None:
        number = float(as_numpy(value)[0])
        before(number)
        copies.append(number)
        self.threads.add(current_thread().name)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The memory of `cpu:1`, from and to which its second thread copies all values, also small ones."""
    made = StandIn()
    monkeypatch.setattr(worker, "_SMALL_BYTES", 0)
    monkeypatch.setattr(worker, "device_memory", lambda device: made if device.name == "cpu:1" else None)
    return made


def parts() -> list[Part]:
    """a = x + 1 | b = a + a, c = -b, then d = c + b | y = b + d."""
    return [
        part("(float[N] x) => (float[N] a) <float one = {1}> { a = Add(x, one) }", "cpu:0"),
        part("(float[N] a) => (float[N] b, float[N] c) { b = Add(a, a) c = Neg(b) }", "cpu:1"),
        part("(float[N] b, float[N] c) => (float[N] d) { d = Add(b, c) }", "cpu:1"),
        part("(float[N] b, float[N] d) => (float[N] y) { y = Add(b, d) }", "cpu:0"),
    ]


def feed(number: float) -> dict[str, np.ndarray]:
    return {"x": np.full(2, number, np.float32)}


def test_each_value_is_copied_once_and_resident_values_never(memory: StandIn) -> None:
    with PlacedRunner(parts(), ["x"], ["y", "b"], devices_of=python_devices) as runner:
        for number in range(5):
            y, b = runner.run(None, feed(number))
            assert (y.tolist(), b.tolist()) == ([2 * number + 2] * 2, [2 * number + 2] * 2)
            assert memory.into == [number + 1]
            assert memory.out == [2 * number + 2, 0]  # b, which the other device and the caller read, and d; c stays
            memory.into.clear()
            memory.out.clear()
        assert runner.run(["y"], feed(1))[0].tolist() == [4, 4]
    assert memory.threads == {"cpu:1 copies"}


def test_small_values_are_copied_by_the_thread_that_has_them(memory: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_SMALL_BYTES", 8)
    with PlacedRunner(parts(), ["x"], ["y", "b"], devices_of=python_devices) as runner:
        for number in range(5):
            y, b = runner.run(None, feed(number))
            assert (y.tolist(), b.tolist()) == ([2 * number + 2] * 2, [2 * number + 2] * 2)
            assert memory.into == [number + 1]
            assert memory.out == [2 * number + 2, 0]
            assert memory.threads == {"cpu:0", "cpu:1"}
            memory.into.clear()
            memory.out.clear()


def test_the_last_small_value_waits_for_large_ones_of_its_request(
    memory: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_SMALL_BYTES", 8)
    memory.before_out = lambda value: time.sleep(0.05)
    made = [
        part("(float[N] x) => (float[M] large) { large = Concat<axis=0>(x, x, x, x) }", "cpu:1"),
        part("(float[N] x) => (float[N] small) { small = Neg(x) }", "cpu:1"),
        part("(float[N] x) => (float[N] y) { y = Abs(x) }", "cpu:0"),
    ]
    with PlacedRunner(made, ["x"], ["large", "small", "y"], devices_of=python_devices) as runner:
        for number in range(1, 4):
            large, small, y = runner.run(None, feed(number))
            assert (large.tolist(), small.tolist(), y.tolist()) == ([number] * 8, [-number] * 2, [number] * 2)
    assert memory.threads == {"MainThread", "cpu:1 copies"}


def test_a_device_that_shares_the_memory_reads_values_without_a_copy(
    memory: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartSession, "shares_memory_with", lambda session, reader: reader == "cpu:0")
    with PlacedRunner(parts(), ["x"], ["y"], devices_of=python_devices) as runner:
        assert runner.run(None, feed(3))[0].tolist() == [8, 8]
    assert (memory.out, memory.into) == ([], [4])


def test_a_value_that_needs_no_copy_does_not_wait_for_the_copying_thread(
    memory: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Event()
    run = PartSession.run

    def noted(self: PartSession, *arguments: Any) -> list[Any]:
        if self.device.name == "cpu:0":
            read.set()
        return run(self, *arguments)

    monkeypatch.setattr(PartSession, "run", noted)
    monkeypatch.setattr(PartSession, "shares_memory_with", lambda session, reader: reader == "cpu:0")
    waited: list[bool] = []
    memory.before_out = lambda value: waited.append(read.wait(PATIENCE_S))
    made = [
        part("(float[N] x) => (float[N] p) { p = Neg(x) }", "cpu:1"),
        part("(float[N] x) => (float[N] q) { q = Abs(x) }", "cpu:1"),
        part("(float[N] q) => (float[N] r) { r = Neg(q) }", "cpu:0"),
        part("(float[N] r) => (float[N] y) { y = Neg(r) }", "cpu:1"),
    ]
    with PlacedRunner(made, ["x"], ["p", "y"], devices_of=python_devices) as runner:
        assert [output.tolist() for output in runner.run(None, feed(3))] == [[-3, -3], [3, 3]]
    assert waited[0]  # while `p` was copied, `q` was read


def test_an_unwanted_output_is_not_copied(memory: StandIn) -> None:
    with PlacedRunner(parts()[:2], ["x"], ["a", "b", "c"], devices_of=python_devices) as runner:
        assert runner.run(["c"], feed(1))[0].tolist() == [-4, -4]
    assert memory.out == [-4]


def test_the_next_request_runs_while_outputs_of_the_previous_one_are_copied(
    memory: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_arrived, second_runs = Event(), Event()
    run = PartSession.run

    def noted(self: PartSession, values: Mapping[str, Any], *rest: Any) -> list[Any]:
        if self.device.name == "cpu:1" and "a" in values:
            if as_numpy(values["a"])[0] == 1:
                assert second_arrived.wait(PATIENCE_S)
            else:
                second_runs.set()
        return run(self, values, *rest)

    def before_into(value: float) -> None:
        if value == 11:
            second_arrived.set()

    def before_out(value: float) -> None:
        if value == 2:
            assert second_runs.wait(PATIENCE_S)

    monkeypatch.setattr(PartSession, "run", noted)
    memory.before_into, memory.before_out = before_into, before_out
    with PlacedRunner(parts(), ["x"], ["y"], devices_of=python_devices) as runner:
        assert [outputs[0][0] for outputs in runner.run_many(None, [feed(0), feed(10)])] == [2, 22]


@pytest.mark.parametrize("way", ["to", "from"])
def test_a_copy_that_fails_fails_its_request_only(memory: StandIn, way: str) -> None:
    def fail(value: float) -> None:
        if value == {"to": 4, "from": 8}[way]:
            raise MemoryError("no room")

    if way == "to":
        memory.before_into = fail
    else:
        memory.before_out = fail
    with PlacedRunner(parts(), ["x"], ["y"], devices_of=python_devices) as runner:
        futures = [runner.submit(None, feed(number)) for number in range(5)]
        for number, future in enumerate(futures):
            if number == 3:
                with pytest.raises(MeasurementFailed, match=f"a copy {way} 'cpu:1' failed: no room"):
                    future.result(PATIENCE_S)
            else:
                assert future.result(PATIENCE_S)[0].tolist() == [2 * number + 2] * 2


def test_an_input_that_the_calling_thread_cannot_copy_fails_its_request_only(
    memory: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(value: float) -> None:
        if value == 1:
            raise MemoryError("no room")

    monkeypatch.setattr(worker, "_SMALL_BYTES", 2**16)
    memory.before_into = fail
    made = [
        part("(float[N] x) => (float[N] a) { a = Neg(x) }", "cpu:0"),
        part("(float[N] x, float[N] a) => (float[N] y) { y = Sub(x, a) }", "cpu:1"),
    ]
    with PlacedRunner(made, ["x"], ["y"], devices_of=python_devices) as runner:
        for number in range(3):
            future = runner.submit(None, feed(number))
            if number == 1:
                with pytest.raises(MeasurementFailed, match="a copy to 'cpu:1' failed: no room"):
                    future.result(PATIENCE_S)
            else:
                assert future.result(PATIENCE_S)[0].tolist() == [2 * number] * 2


@pytest.mark.parametrize("small_bytes", [0, 2**16])
def test_seconds_of_parts_contain_no_copies_whichever_thread_makes_them(
    small_bytes: int, memory: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]

    def copied(value: float) -> None:
        now_s[0] += 1.0

    monkeypatch.setattr(worker, "_SMALL_BYTES", small_bytes)
    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))
    memory.before_into = copied
    if small_bytes:  # the second thread would copy outputs while the next part runs
        memory.before_out = copied
    with PlacedRunner(parts(), ["x"], ["y"], devices_of=python_devices) as runner:
        runner.run(None, feed(0))
        assert now_s == [3.0 if small_bytes else 1.0]
        assert runner.part_s == {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}


def test_both_threads_of_a_device_stay_on_its_cores(memory: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = set[tuple[str, str]]()
    monkeypatch.setattr(worker, "pin", lambda device: pinned.add((current_thread().name, device.name)))
    with PlacedRunner(parts(), ["x"], ["y"], devices_of=python_devices) as runner:
        runner.run(None, feed(0))
    assert pinned == {("cpu:0", "cpu:0"), ("cpu:1", "cpu:1"), ("cpu:1 copies", "cpu:1")}


def test_state_that_a_device_makes_and_reads_is_not_copied(memory: StandIn) -> None:
    made = [
        part("(float[N] x, float[N] s) => (float[N] a) { a = Add(x, s) }", "cpu:0"),
        part(
            "(float[N] a, float[N] t) => (float[N] s_new, float[N] t_new) { s_new = Add(a, t) t_new = Neg(a) }", "cpu:1"
        ),
    ]
    with PlacedRunner(made, ["x", "s", "t"], ["s_new", "t_new"], devices_of=python_devices) as runner:
        zeros = np.zeros(2, np.float32)
        state = runner.first_state({"s": "s_new", "t": "t_new"}, {"s": zeros, "t": zeros})
        s, t = 0.0, 0.0
        for x in (1.0, 20.0, 300.0):
            memory.out.clear()
            _, state = runner.run_with_state([], feed(x), state)
            s, t = x + s + t, -(x + s)
            assert memory.out == [s]  # the first device reads it; t stays
        assert [as_numpy(state.value(name))[0] for name in ("s", "t")] == [s, t]


def test_only_gpus_have_memory_of_their_own() -> None:
    assert device_memory(parse_device("cpu:0")) is None
    gpu = device_memory(parse_device("cuda:1"))
    assert isinstance(gpu, DeviceMemory)
    for value in (np.array(["text"]), [np.zeros(1)], None):  # sessions take other values unchanged
        assert gpu.from_host(value) is value
        assert gpu.to_host(value) is value
