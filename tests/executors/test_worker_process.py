"""A process of its own: what fails, hangs or dies there is a result here."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest

from gnnplace.errors import MeasurementFailed
from gnnplace.executors import worker_process
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.executors.measure import StoppingRule
from gnnplace.executors.worker_process import Job, Setup, WorkerProcess

QUICK = StoppingRule(warmup=1, min_repeats=3, max_repeats=3)
CORE = f"cpu:{min(os.sched_getaffinity(0))}"
FEED = {"x": np.arange(3, dtype=np.float32), "at": np.array([7], dtype=np.int64)}


def part(text: str) -> RunnerPart:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    names = tuple(value.name for value in proto.graph.input)
    return RunnerPart("piece", CORE, proto.SerializeToString(), names, ("y",))


GOOD = (part("(float[3] x, int64[1] at) => (float[3] y) { y = Exp(x) }"),)
RAISING = (part("(float[3] x, int64[1] at) => (float[1] y) { y = Gather(x, at) }"),)
BROKEN = (RunnerPart("broken", CORE, b"no model", ("x",), ("y",)),)
ENDLESS = (
    part("""(float[3] x, int64[1] at) => (float[3] y) <int64 trips = {1000000000}, bool go = {1}>
    { y = Loop (trips, go, x) <body = l (int64 i, bool on, float[3] s) => (bool still, float[3] t)
      { still = Identity(on)  t = Cos(s) }> }"""),
)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(Setup(("x", "at"), ("y",), FEED, kept_jobs=2), timeout_s=60.0) as process:
        yield process


def test_candidates_are_measured_side_by_side(worker: WorkerProcess) -> None:
    answer = worker.ask(Job((GOOD, GOOD), QUICK))
    assert answer.samples is not None
    assert answer.samples.shape == (2, 3)
    assert (answer.samples > 0).all()


def test_a_candidate_that_raises_is_named_and_the_process_lives_on(worker: WorkerProcess) -> None:
    answer = worker.ask(Job((GOOD, RAISING, GOOD), QUICK))
    assert answer.samples is None
    assert answer.culprit == 1
    assert f"failed on '{CORE}'" in answer.failure
    assert "out of data bounds" in answer.failure
    assert "\n" not in answer.failure
    pid = worker.pid
    assert worker.ask(Job((GOOD,), QUICK)).samples is not None
    assert worker.pid == pid


def test_a_candidate_that_cannot_be_loaded_is_named(worker: WorkerProcess) -> None:
    answer = worker.ask(Job((GOOD, BROKEN), QUICK))
    assert answer.culprit == 1
    assert "cannot be loaded" in answer.failure


def test_a_process_that_is_killed_at_work_is_a_result_and_the_next_job_has_a_new_one(worker: WorkerProcess) -> None:
    assert worker.ask(Job((GOOD,), QUICK)).samples is not None
    pid = worker.pid
    assert pid is not None
    killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    killer.start()
    answer = worker.ask(Job((ENDLESS,), QUICK))
    killer.join()
    assert (answer.samples, answer.culprit) == (None, None)
    assert "signal SIGKILL (out of memory?)" in answer.failure
    assert worker.ask(Job((GOOD,), QUICK)).samples is not None
    assert worker.pid != pid


def test_a_process_that_died_while_idle_is_replaced_without_a_word(worker: WorkerProcess) -> None:
    worker.ask(Job((GOOD,), QUICK))
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while worker.pid is not None:
        time.sleep(0.01)
    assert worker.ask(Job((GOOD,), QUICK)).samples is not None


def test_what_takes_too_long_is_stopped() -> None:
    with WorkerProcess(Setup(("x", "at"), ("y",), FEED, kept_jobs=2), timeout_s=1.0) as worker:
        answer = worker.ask(Job((ENDLESS,), QUICK))
        assert answer.samples is None
        assert answer.failure == "took longer than 1 s; the measuring process was stopped"
        assert worker.pid is None


def test_an_interrupt_ends_the_process_so_that_no_late_answer_is_taken_for_the_next(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.ask(Job((GOOD,), QUICK))

    def interrupted(timeout: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker._connection, "poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.ask(Job((GOOD, GOOD), QUICK))
    assert worker.pid is None
    answer = worker.ask(Job((GOOD,), QUICK))
    assert answer.samples is not None
    assert answer.samples.shape == (1, 3)


def test_a_process_that_cannot_start_is_an_error_with_its_last_words(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_PROGRAM", "raise SystemExit('no room: {}')")
    with pytest.raises(MeasurementFailed, match="does not start: exit code 1: no room"):
        worker.ask(Job((GOOD,), QUICK))


def test_the_process_ends_with_its_parent_even_in_the_middle_of_an_endless_job(tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(pickle.dumps((Setup(("x", "at"), ("y",), FEED, 1), Job((ENDLESS,), QUICK))))
    program = (
        "import pickle, sys, threading; from gnnplace.executors.worker_process import WorkerProcess;"
        "setup, job = pickle.load(open(sys.argv[1], 'rb')); worker = WorkerProcess(setup, 600.0);"
        "threading.Thread(target=worker.ask, args=(job,), daemon=True).start();"
        "import time\nwhile worker.pid is None: time.sleep(0.05)\nprint(worker.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "job")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_process_needs_neither_torch_nor_dgl_nor_ray() -> None:
    program = "import sys; import gnnplace.executors.worker_process; print([m for m in ('torch', 'dgl', 'ray') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=os.getcwd())
    assert shown.stdout.strip() == "[]"
