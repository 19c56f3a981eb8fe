"""A thread that does what it is given, one thing after the other."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, current_thread

__all__ = ["TaskThread"]


class TaskThread:
    """Tasks run in the order in which they come, beside the threads that bring them; a task must not raise.

    The thread ends when it is closed or forgotten, after the tasks that are there.
    """

    def __init__(self, name: str) -> None:
        tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._tasks = tasks
        self._thread = Thread(target=_serve, args=(tasks,), name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, tasks.put, None)

    @property
    def is_current(self) -> bool:
        """The calling thread is this one."""
        return current_thread() is self._thread

    def put(self, task: Callable[[], object]) -> None:
        """Hands over a task and returns at once."""
        self._tasks.put(task)

    def close(self) -> None:
        """Ends the thread after what it was given; called by a task, without waiting."""
        self._end()
        if not self.is_current:
            self._thread.join()


def _serve(tasks: SimpleQueue[Callable[[], object] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it holds values
