"""A call that crashes, hangs or takes too much memory ends its process, and the next call has a new one."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import psutil
import pytest

from gnnplace import isolated_process
from gnnplace.isolated_process import IsolatedProcess, ProcessEnded
from tests.patience import PATIENCE_S

Work = partial[object]
MIB = 2**20


def runner(write: str = "") -> Callable[[Work], object]:
    """Runs in the process: its calls are functions without arguments."""
    sys.stderr.write(write)
    return call


def call(work: Work) -> object:
    return work()


def exits_at_start() -> Callable[[Work], object]:
    raise SystemExit("no room")


def fill(num_bytes: int) -> None:
    held = bytearray(num_bytes)
    time.sleep(600.0)
    del held


POOL = """
import os, signal, time
from gnnplace.isolated_process import spawned_pool
if __name__ == "__main__":
    with spawned_pool(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600)
        os.kill(os.getpid(), signal.SIGKILL)
"""
PID, HANG = partial(os.getpid), partial(time.sleep, 600.0)


@pytest.fixture
def process() -> Iterator[IsolatedProcess[Work, object]]:
    with IsolatedProcess(runner, memory_limit_bytes=200 * MIB) as isolated:
        yield isolated
    assert no_zombies()


def no_zombies() -> bool:
    return all(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process().children())


@pytest.mark.parametrize(
    ("work", "limit_s", "cause", "message"),
    [
        (partial(signal.raise_signal, signal.SIGSEGV), 60.0, "lost", "the process ended with signal SIGSEGV"),
        (partial(os._exit, 3), 60.0, "lost", "the process ended with exit code 3"),
        (partial(int, "one"), 60.0, "lost", "exit code 1: ValueError: invalid literal"),
        (HANG, 0.2, "time", "took longer than 0.2 s; the process was stopped"),
        (partial(fill, 300 * MIB), 60.0, "memory", "out of memory: more than 200.0 MiB; the process was stopped"),
    ],
    ids=["crash", "exit", "exception", "hang", "memory"],
)
def test_a_call_that_ends_its_process_raises_and_the_next_call_has_a_new_process(
    process: IsolatedProcess[Work, object], work: Work, limit_s: float, cause: str, message: str
) -> None:
    first = process.call(PID, 60.0)
    assert first == process.pid == process.call(PID, 60.0) != os.getpid()
    with pytest.raises(ProcessEnded) as end:
        process.call(work, limit_s)
    assert message in str(end.value)
    assert (end.value.cause, end.value.starting, process.pid) == (cause, False, None)
    assert process.call(PID, 60.0) not in (first, os.getpid())


def test_a_process_that_died_while_idle_is_replaced(process: IsolatedProcess[Work, object]) -> None:
    first = process.call(PID, 60.0)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    while process.pid is not None:
        time.sleep(0.01)
    assert process.call(PID, 60.0) != first


def test_a_process_that_hangs_before_it_has_read_a_long_message_is_stopped_in_time(
    process: IsolatedProcess[Work, object],
) -> None:
    process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(ProcessEnded, match=r"took longer than 0\.5 s"):
        process.call(partial(len, bytes(10**7)), 0.5)  # more than a pipe holds


def test_output_blocks_nothing_and_an_error_quotes_only_output_of_its_own_call() -> None:
    with IsolatedProcess(partial(runner, "much\n" * 10**6)) as process:
        assert process.call(PID, 60.0) != os.getpid()
        with pytest.raises(ProcessEnded) as end:
            process.call(partial(os._exit, 3), 60.0)
        assert "much" not in str(end.value)


def test_an_interrupt_ends_the_process_so_that_a_late_result_is_not_taken_for_the_next_one(
    process: IsolatedProcess[Work, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    process.start()

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process._connection, "recv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.call(partial(abs, -1), 60.0)
    assert process.pid is None
    assert process.call(partial(abs, -2), 60.0) == 2


def test_a_process_that_cannot_start_is_an_error_with_its_last_words() -> None:
    with IsolatedProcess(exits_at_start) as process, pytest.raises(ProcessEnded, match="exit code 1: no room") as end:
        process.call(PID, 60.0)
    assert end.value.starting


def test_a_process_that_is_not_ready_in_time_is_stopped() -> None:
    with IsolatedProcess(partial(time.sleep, 600.0)) as process:  # type: ignore[arg-type]
        with pytest.raises(ProcessEnded) as end:
            process.start(limit_s=1.0)
        assert (end.value.starting, end.value.cause, process.pid) == (True, "time", None)


def test_the_process_ends_with_its_parent_in_the_middle_of_an_endless_call() -> None:
    program = (
        "import pickle, sys, threading, time; from gnnplace.isolated_process import IsolatedProcess\n"
        "prepare, work = pickle.loads(sys.stdin.buffer.read()); process = IsolatedProcess(prepare)\n"
        "threading.Thread(target=process.call, args=(work, 600.0), daemon=True).start()\n"
        "while process.pid is None: time.sleep(0.05)\n"
        "print(process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(pickle.dumps((runner, HANG)))
        parent.stdin.close()
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=PATIENCE_S)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_error_of_a_killed_process_names_the_signal(process: IsolatedProcess[Work, object]) -> None:
    process.start()
    assert process.pid is not None
    threading.Timer(0.2, os.kill, (process.pid, signal.SIGKILL)).start()
    with pytest.raises(ProcessEnded, match="signal SIGKILL"):
        process.call(HANG, 60.0)


def test_the_module_loads_no_large_library() -> None:
    program = f"import sys, {isolated_process.__name__}; print([m for m in ('torch', 'dgl', 'ray', 'onnx', 'numba') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_worker_of_a_killed_process_does_not_live_on() -> None:
    # The worker holds the other end of the pipe: waiting for its end is waiting for the worker's.
    done = subprocess.run([sys.executable, "-c", POOL], check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0
