"""Faults of threads, devices and processes end in an error and leave no caller waiting."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gnnplace.devices.detect import allowed_cores
from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.running import worker
from gnnplace.running.compiled import devices as compiled
from gnnplace.running.devices import parse_device, pinned
from gnnplace.running.pipeline import python_devices
from gnnplace.running.runner import DevicesOf, PlacedRunner
from gnnplace.running.worker import Worker
from tests.parts import add_one
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("needs_two_cores")
FEED = {"v0": np.zeros(2, np.float32)}


def runner(devices_of: DevicesOf | None = None, max_in_flight: int | None = None) -> PlacedRunner:
    parts = [add_one("v0", "v1", "cpu:0"), add_one("v1", "v2", "cpu:1")]
    return PlacedRunner(parts, ["v0"], ["v2"], max_in_flight=max_in_flight, devices_of=devices_of)


both_loops = pytest.mark.parametrize("devices_of", [None, python_devices])


@both_loops
def test_a_request_that_cannot_begin_leaves_its_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch, devices_of: DevicesOf | None
) -> None:
    def refuse(*_: object) -> None:
        raise MeasurementFailed("the host is lost")

    with runner(devices_of, max_in_flight=1) as placed:
        with monkeypatch.context() as patched:
            patched.setattr(type(placed.devices), "begin", refuse)
            with pytest.raises(MeasurementFailed, match="the host is lost"):
                placed.submit(None, FEED)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(placed.submit, None, FEED).result(PATIENCE_S)
            assert future.result(PATIENCE_S)[0].tolist() == [2, 2]


@both_loops
def test_a_device_that_cannot_be_used_is_an_error_at_creation(
    monkeypatch: pytest.MonkeyPatch, devices_of: DevicesOf | None
) -> None:
    def refuse(_: object) -> None:
        raise OSError(22, "Invalid argument")

    for module in (worker, compiled):
        monkeypatch.setattr(module, "pin", refuse)
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(MeasurementFailed, match=r"device 'cpu:0' cannot be used: .*Invalid argument"),
    ):
        pool.submit(runner, devices_of).result(PATIENCE_S)


def test_an_error_after_a_part_has_run_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no room for the outputs")

    with runner(python_devices) as placed, ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(Worker, "_hand_on", fail)
            with pytest.raises(MeasurementFailed, match=r"part 'v0->v1' failed on 'cpu:0': no room"):
                pool.submit(placed.run, None, FEED).result(PATIENCE_S)
        assert pool.submit(placed.run, None, FEED).result(PATIENCE_S)[0].tolist() == [2, 2]


def test_a_core_is_available_to_other_threads_while_a_session_pins_the_main_thread() -> None:
    before = allowed_cores()
    with pinned(parse_device(f"cpu:{before[1]}")), ThreadPoolExecutor(1) as pool:
        assert os.sched_getaffinity(0) == {before[1]}
        assert pool.submit(parse_device, f"cpu:{before[0]}").result().cores == (before[0],)
        with pinned(parse_device(f"cpu:{before[0]}")):
            assert allowed_cores() == before
    assert allowed_cores() == before == tuple(sorted(os.sched_getaffinity(0)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("devices", ["cpu:0,cpu:1", "cpu:0,cpu:0"])
def test_a_session_from_before_a_fork_is_refused_in_the_child(devices: str) -> None:
    first, second = devices.split(",")
    parts = [add_one("v0", "v1", first), add_one("v1", "v2", second)]
    with PlacedRunner(parts, ["v0"], ["v2"]) as placed:
        placed.run(None, FEED)
        child = os.fork()
        if child == 0:
            try:
                placed.run(None, FEED)
            except InvalidInput as error:
                os._exit(7 if "before the process was forked" in str(error) else 8)
            os._exit(9)
        reaper = threading.Timer(PATIENCE_S, os.kill, (child, 9))
        reaper.start()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        reaper.cancel()
        assert placed.run(None, FEED)[0].tolist() == [2, 2]
