"""Processes that end with the one that started them, whatever ends it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor

__all__ = ["end_with_parent", "spawned_pool"]


def spawned_pool(num_processes: int) -> ProcessPoolExecutor:
    """Fresh processes for work that can be pickled: a fork of one that has run torch or compiled code with threads may hang."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(num_processes, mp_context=context, initializer=end_with_parent)


def end_with_parent() -> None:
    """To be called in a process that `multiprocessing` has started: it ends at once when its parent is gone, killed ones included."""
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
