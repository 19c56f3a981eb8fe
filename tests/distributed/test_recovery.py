"""The recovery of a session over hosts after the loss of a process, without a cluster."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from gnnplace.distributed import execution
from gnnplace.distributed.execution import HostPipeline
from gnnplace.distributed.host_worker import HostFacts
from gnnplace.errors import InvalidInput, MeasurementFailed, ProcessLost
from gnnplace.running.dataflow import Request
from tests.patience import PATIENCE_S


class LosingHost:
    """A host that loses its process in every run, and loads its parts a second time only at `go`."""

    def __init__(self, *_: object) -> None:
        self.devices, self.loads = ["host1/cpu:0"], 0
        self.again, self.go = Event(), Event()
        lost: Future[Any] = Future()
        lost.set_result(ProcessLost("the process was started again and has no parts yet"))
        answer = SimpleNamespace(future=lambda: lost)
        run = SimpleNamespace(remote=lambda *_: (answer, None))
        load = SimpleNamespace(remote=lambda *_: None)
        self.actor = SimpleNamespace(
            run=SimpleNamespace(options=lambda **_: run), load=SimpleNamespace(options=lambda **_: load)
        )

    def loaded(self, loading: None, limit_s: float = 0.0, is_closed: Any = lambda: False) -> HostFacts:
        self.loads += 1
        if self.loads > 1:
            self.again.set()
            for _ in range(200):
                if is_closed():
                    raise ProcessLost("closed")
                if self.go.wait(0.1):
                    break
        return HostFacts(0, [], SimpleNamespace(), pid=self.loads)

    def check_host(self) -> None:
        """The host is alive."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HostPipeline, LosingHost, Request]]:
    """A pipeline that loads its parts again, its host, and the request whose run lost the process."""
    host = LosingHost()
    monkeypatch.setattr(execution, "connected", lambda address: nullcontext())
    monkeypatch.setattr(execution, "nodes", lambda: [SimpleNamespace(name="host1")])
    monkeypatch.setattr(execution, "HostProcess", lambda *_: host)
    monkeypatch.setattr(execution, "_kill", lambda _: None)  # another test may have started Ray
    pipeline = HostPipeline("address", {"host1/cpu:0": []}, max_in_flight=2)
    request = Request(())
    pipeline.begin(request, {})
    assert host.again.wait(PATIENCE_S)
    yield pipeline, host, request
    host.go.set()
    pipeline.close()


def test_a_session_closes_while_a_recovery_loads_parts(opened: tuple[HostPipeline, LosingHost, Request]) -> None:
    pipeline, _, request = opened
    closing = Thread(target=pipeline.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert isinstance(request.failure, MeasurementFailed)
    with pytest.raises(InvalidInput, match="the runner is closed"):
        pipeline.begin(Request(()), {})


def test_a_request_during_a_recovery_waits_for_it(opened: tuple[HostPipeline, LosingHost, Request]) -> None:
    pipeline, host, first = opened
    second = Request(())
    beginning = Thread(target=pipeline.begin, args=(second, {}), daemon=True)
    beginning.start()
    pipeline.give_up(first)
    beginning.join(0.3)
    assert beginning.is_alive()
    host.go.set()
    beginning.join(PATIENCE_S)
    second.ended.get(timeout=PATIENCE_S)
    assert isinstance(second.failure, ProcessLost)  # its process is lost in each of its runs
    assert host.loads == 1 + 1 + execution._TRIES
