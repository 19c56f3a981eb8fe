"""Processes that end with their parent."""

from __future__ import annotations

import signal
import subprocess
import sys

PARENT = """
import os, signal, time
from gnnplace.child_processes import spawned_pool
if __name__ == "__main__":
    with spawned_pool(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_of_a_killed_process_does_not_live_on() -> None:
    # The worker holds the other end of the pipe: waiting for its end is waiting for the worker's.
    done = subprocess.run([sys.executable, "-c", PARENT], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0
