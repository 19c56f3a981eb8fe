"""The priority of processes that Ray starts: Ray makes its workers yield to everything else on a host."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["take_usual_priority"]


def take_usual_priority() -> bool:
    """Gives every thread of this process the priority of a program that was started by hand; whether that was allowed.

    Only who may raise priorities can: others start Ray with RAY_worker_niceness=0. Threads that are begun later inherit it.
    """
    with suppress(OSError):  # no permission, a thread that has just ended, or a system that counts no threads there
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)
        return True
    return False
