"""Several requests at once: the oldest first, at most a stated number, and each independent of the others."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from threading import Event
from typing import Any

import numpy as np
import pytest

from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.onnx_io.part import Part
from gnnplace.running.part_session import PartSession
from gnnplace.running.pipeline import python_devices
from gnnplace.running.runner import PlacedRunner
from gnnplace.running.values import as_numpy
from tests.parts import add_one, part
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.usefixtures("needs_two_cores")

Install = Callable[[Callable[[str, str, float], None]], None]


def back_and_forth(devices: str = "010") -> list[Part]:
    return [add_one(f"v{i}", f"v{i + 1}", f"cpu:{device}") for i, device in enumerate(devices)]


def three_only() -> list[Part]:
    reshape = part("(float[N] v1) => (float[3] v2) <int64[1] three = {3}> { v2 = Reshape(v1, three) }", "cpu:1")
    return [add_one("v0", "v1", "cpu:0"), reshape, add_one("v2", "v3", "cpu:0"), add_one("v3", "v4", "cpu:1")]


def feed(number: float, size: int = 2) -> dict[str, np.ndarray]:
    return {"v0": np.full(size, number, np.float32)}


@pytest.fixture
def before_each_part(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a function that is called with device, value name and first number before a part runs."""

    def install(call: Callable[[str, str, float], None]) -> None:
        run = PartSession.run

        def patched(self: PartSession, values: Mapping[str, Any], *rest: Any) -> list[Any]:
            ((name, value),) = values.items()
            call(self.device.name, name, float(as_numpy(value)[0]))
            return run(self, values, *rest)

        monkeypatch.setattr(PartSession, "run", patched)

    return install


def test_a_device_runs_the_ready_step_of_the_oldest_request(before_each_part: Install) -> None:
    order: list[tuple[str, int]] = []
    all_here, second_begun = Event(), Event()

    def note(device: str, name: str, value: float) -> None:
        if device == "cpu:1":
            assert second_begun.wait(PATIENCE_S)
            return
        order.append((name, int(value) // 10))
        if order[-1] == ("v0", 1):
            assert all_here.wait(PATIENCE_S)
        elif order[-1] == ("v0", 2):  # request 3 could begin when request 1 is back from the other device
            second_begun.set()
            until(lambda: not runner.devices._workers[0].inbox.empty())

    before_each_part(note)
    with PlacedRunner(back_and_forth(), ["v0"], ["v3"], max_in_flight=3, devices_of=python_devices) as runner:
        futures = [runner.submit(None, feed(10 * number)) for number in (1, 2, 3)]
        all_here.set()
        assert [future.result(PATIENCE_S)[0][0] for future in futures] == [13, 23, 33]
    assert order[:3] == [("v0", 1), ("v0", 2), ("v2", 1)]


def test_a_device_begins_the_next_request_instead_of_waiting(before_each_part: Install) -> None:
    second_begun = Event()

    def note(device: str, name: str, value: float) -> None:
        if (device, int(value) // 10) == ("cpu:0", 2):
            second_begun.set()
        elif device == "cpu:1":
            assert second_begun.wait(PATIENCE_S)

    before_each_part(note)
    with PlacedRunner(back_and_forth(), ["v0"], ["v3"], devices_of=python_devices) as runner:
        assert [outputs[0][0] for outputs in runner.run_many(None, [feed(10), feed(20)])] == [13, 23]


@pytest.mark.parametrize("max_in_flight", [1, 2, 5])
def test_no_more_requests_are_under_way_than_allowed(before_each_part: Install, max_in_flight: int) -> None:
    running: set[int] = set()
    most = 0

    def note(device: str, name: str, value: float) -> None:
        nonlocal most
        number = int(value) // 10
        running.add(number)
        most = max(most, len(running))
        if name == "v2":
            running.discard(number)

    before_each_part(note)
    with PlacedRunner(
        back_and_forth(), ["v0"], ["v3"], max_in_flight=max_in_flight, devices_of=python_devices
    ) as runner:
        futures = [runner.submit(None, feed(10 * number)) for number in range(12)]
        assert [future.result(PATIENCE_S)[0][0] for future in futures] == [10 * n + 3 for n in range(12)]
        many = runner.run_many(None, (feed(10 * number) for number in range(9)))
        assert [outputs[0][0] for outputs in many] == [10 * n + 3 for n in range(9)]
    assert 1 <= most <= max_in_flight


def test_a_number_of_requests_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="max_in_flight is 0; expected a whole number from 1 on"):
        PlacedRunner(back_and_forth(), ["v0"], ["v3"], max_in_flight=0)


def test_by_default_two_requests_per_device_are_under_way() -> None:
    for devices, expected in (("010", 4), ("000", 2)):
        with PlacedRunner(back_and_forth(devices), ["v0"], ["v3"]) as runner:
            assert runner.max_in_flight == expected


@pytest.mark.parametrize("devices", ["0", "000", "010"])
def test_run_many_reads_a_bounded_number_of_feeds_ahead_and_keeps_their_order(devices: str) -> None:
    read: list[int] = []

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for number in range(10):
            read.append(number)
            yield feed(number)

    with PlacedRunner(back_and_forth(devices), ["v0"], [f"v{len(devices)}"]) as runner:
        found = []
        for number, (outputs,) in enumerate(runner.run_many(None, feeds())):
            found.append(outputs[0])
            assert len(read) <= number + 1 + runner.max_in_flight
        assert found == [number + len(devices) for number in range(10)]


def test_a_failing_request_fails_alone() -> None:
    with PlacedRunner(three_only(), ["v0"], ["v4"]) as runner:
        for _ in range(10):
            futures = [runner.submit(None, feed(number, 4 if number == 2 else 3)) for number in range(6)]
            for number, future in enumerate(futures):
                if number == 2:
                    with pytest.raises(MeasurementFailed, match="part 'v1->v2' failed on 'cpu:1'") as caught:
                        future.result(PATIENCE_S)
                    assert "\n" not in str(caught.value)
                else:
                    assert future.result(PATIENCE_S)[0].tolist() == [number + 3] * 3


def test_all_devices_release_the_values_of_a_failed_request() -> None:
    freed = Event()

    class Watched(np.ndarray):
        def __del__(self) -> None:
            freed.set()

    with PlacedRunner(three_only(), ["v0"], ["v4", "v1"]) as runner:
        failing = {"v0": np.zeros(4, np.float32).view(Watched)}
        with pytest.raises(MeasurementFailed):
            runner.run(None, failing)
        del failing
        until(lambda: gc.collect() >= 0 and freed.is_set())


def test_run_many_raises_a_failure_and_leaves_the_runner_usable() -> None:
    with PlacedRunner(three_only(), ["v0"], ["v4"]) as runner:
        answers = runner.run_many(None, [feed(number, 4 if number == 1 else 3) for number in range(5)])
        assert next(answers)[0].tolist() == [3] * 3
        with pytest.raises(MeasurementFailed, match="'v1->v2'"):
            next(answers)
        for _ in range(20):
            next(runner.run_many(None, [feed(7, 3)] * 5))  # the rest is abandoned after the first
        assert runner.run(None, feed(5, 3))[0].tolist() == [8] * 3


@pytest.mark.parametrize("devices", ["000", "010"])
def test_an_error_of_a_feed_comes_after_the_answers_to_the_feeds_before_it(devices: str) -> None:
    def feeds() -> Iterator[dict[str, np.ndarray]]:
        yield feed(0)
        yield feed(1)
        raise ValueError("no more")

    with PlacedRunner(back_and_forth(devices), ["v0"], ["v3"]) as runner:
        for given, error in ((feeds(), ValueError), ([feed(0), feed(1), {}], InvalidInput)):
            answers = runner.run_many(None, given)
            assert [next(answers)[0][0] for _ in range(2)] == [3, 4]
            with pytest.raises(error):
                next(answers)


@pytest.mark.parametrize("devices", ["000", "010"])
def test_a_callback_that_raises_any_exception_stops_no_later_result(
    devices: str, caplog: pytest.LogCaptureFixture
) -> None:
    def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    with PlacedRunner(back_and_forth(devices), ["v0"], ["v3"], max_in_flight=1) as runner:
        for number in range(3):
            future = runner.submit(None, feed(number), callback=cancelled)
            assert future.result(PATIENCE_S)[0][0] == number + 3
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [asyncio.CancelledError] * 3


_ABANDONING = """
import sys
import numpy as np
from gnnplace.running import runner as module
from tests.parts import add_one

if sys.argv[1] == "python":
    module._compiled_devices = lambda *_: None
parts = [add_one(f"v{i}", f"v{i + 1}", f"cpu:{i % 2}") for i in range(4)]
runner = module.PlacedRunner(parts, ["v0"], ["v4"])
answers = runner.run_many(None, [{"v0": np.zeros(100_000, np.float32)}] * 9)
print(next(answers)[0][0])
"""


@pytest.mark.parametrize("loop", ["compiled", "python"])
def test_a_process_ends_while_requests_are_under_way(loop: str) -> None:
    command = [sys.executable, "-c", _ABANDONING, loop]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (ended.returncode, ended.stdout) == (0, "4.0\n"), ended.stderr


@pytest.mark.parametrize("devices", ["01", "010"])
def test_no_part_runs_again_for_a_complete_request_whose_outputs_are_never_read(
    before_each_part: Install, devices: str
) -> None:
    runs: list[str] = []
    before_each_part(lambda device, name, value: runs.append(name))
    with PlacedRunner(back_and_forth(devices), ["v0"], [f"v{len(devices)}"], devices_of=python_devices) as runner:
        answers = runner.run_many(None, [feed(0)] * 2)
        next(answers)
        until(lambda: not runner.devices._in_flight)
        answers.close()
        runner.run(None, feed(0))
        assert all(worker.inbox.empty() for worker in runner.devices._workers)
    assert len(runs) == 3 * len(devices)


def test_closing_fails_requests_under_way_and_refuses_waiting_ones(before_each_part: Install) -> None:
    entered, may_continue = Event(), Event()

    def hold(device: str, name: str, value: float) -> None:
        entered.set()
        assert may_continue.wait(PATIENCE_S)

    before_each_part(hold)
    runner = PlacedRunner(back_and_forth(), ["v0"], ["v3"], max_in_flight=2, devices_of=python_devices)
    futures: list[Future[list[Any]]] = [runner.submit(None, feed(0)) for _ in range(2)]
    refused: list[str] = []

    def submit_one_more() -> None:
        try:
            runner.submit(None, feed(0))
        except InvalidInput as error:
            refused.append(str(error))

    one_more = threading.Thread(target=submit_one_more)
    one_more.start()
    assert entered.wait(PATIENCE_S)
    closer = threading.Thread(target=runner.close)
    closer.start()
    until(lambda: runner._closed)
    may_continue.set()
    for thread in (closer, one_more):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    for future in futures:
        with pytest.raises(MeasurementFailed, match="closed before the request was done"):
            future.result(PATIENCE_S)
    assert refused == ["the runner is closed; make a new one"]


@pytest.mark.parametrize("devices", ["0", "000", "010"])
def test_a_callback_may_run_submit_and_close(devices: str) -> None:
    runner = PlacedRunner(back_and_forth(devices), ["v0"], [f"v{len(devices)}"], max_in_flight=1)
    found: list[float] = []
    over = Event()

    def use_the_runner(future: Future[list[Any]]) -> None:
        found.append(float(future.result()[0][0]))
        found.append(float(runner.run(None, feed(100))[0][0]))
        if len(found) < 6:
            runner.submit(None, feed(found[-2])).add_done_callback(use_the_runner)
        else:
            runner.close()
            over.set()

    runner.submit(None, feed(0)).add_done_callback(use_the_runner)
    assert over.wait(PATIENCE_S)
    k = len(devices)
    assert found == [k, 100 + k, 2 * k, 100 + k, 3 * k, 100 + k]


@pytest.mark.parametrize("devices", ["0", "000", "010"])
def test_callers_on_several_threads_get_the_outputs_of_their_own_requests(devices: str) -> None:
    wrong: list[float] = []

    def call(number: int) -> None:
        for i in range(30):
            value = 1000 * number + i
            found = runner.run(None, feed(value))[0][0] if i % 2 else runner.submit(None, feed(value)).result()[0][0]
            if found != value + len(devices):
                wrong.append(found)

    with PlacedRunner(back_and_forth(devices), ["v0"], [f"v{len(devices)}"]) as runner:
        callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert wrong == []


def test_threads_end_when_a_used_runner_is_garbage_collected() -> None:
    before = threading.active_count()
    for devices in ("010", "000"):
        runner = PlacedRunner(back_and_forth(devices), ["v0"], ["v3"])
        assert runner.run(None, feed(1))[0][0] == 4
        assert runner.submit(None, feed(1)).result(PATIENCE_S)[0][0] == 4
        assert threading.active_count() > before
        del runner
        until(lambda: gc.collect() >= 0 and threading.active_count() == before)
