"""The process of a host without a cluster: messages in any order, and the limits of loading."""

import os
import sys
from queue import Queue
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from gnnplace.distributed.host_worker import HostFacts, HostProcess, HostWorker, Order
from gnnplace.errors import MeasurementFailed, ProcessLost
from tests.patience import PATIENCE_S, until


@pytest.fixture
def host() -> HostWorker:
    """A host that has loaded its parts; its device `host1/cpu:0` never runs anything."""
    worker = HostWorker("host1", {}, {})
    worker._workers["host1/cpu:0"] = SimpleNamespace(deliver=lambda message: None)  # type: ignore[assignment]
    worker._facts = HostFacts(0, [], SimpleNamespace(), os.getpid())
    return worker


def test_a_host_drives_its_gpu_from_free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *free = sorted(os.sched_getaffinity(0))
    worker = HostWorker("host1", {f"host1/cpu:{first}": [], "host1/cuda:0": []}, {})

    def stop() -> None:
        raise MeasurementFailed("the workers are made")

    monkeypatch.setattr(worker, "_start", stop)
    assert isinstance(worker.load({}, 0), MeasurementFailed)
    assert [made.device.cores for made in worker._workers.values()] == [(first,), tuple(free)]


@pytest.mark.parametrize("forgotten_first", [True, False])
def test_a_request_that_is_forgotten_ends_whether_it_arrives_before_or_after(
    host: HostWorker, forgotten_first: bool
) -> None:
    answers: Queue[Any] = Queue()
    order = Order(5, 0, frozenset(), frozenset(), {"host1/cpu:0": {}})
    running = Thread(target=lambda: answers.put(host.run(order)), daemon=True)
    if forgotten_first:
        host.forget(5)
    running.start()
    if not forgotten_first:
        until(lambda: 5 in host._requests)
        host.forget(5)
    failure, stays = answers.get(timeout=PATIENCE_S)
    assert isinstance(failure, MeasurementFailed)
    assert stays == {}


@pytest.mark.parametrize(("closed", "error"), [(False, MeasurementFailed), (True, ProcessLost)])
def test_waiting_for_the_parts_of_a_host_ends_at_a_limit_and_on_close(
    monkeypatch: pytest.MonkeyPatch, closed: bool, error: type[Exception]
) -> None:
    process = object.__new__(HostProcess)
    process.devices = ["host1/cpu:0"]
    monkeypatch.setattr(process, "check_host", lambda: None)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(wait=lambda *_, timeout: ([], [])))
    with pytest.raises(error, match="took longer than 2 s" if not closed else "closed while"):
        process.loaded(None, 2.0, lambda: closed)
