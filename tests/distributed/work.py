"""The work of workers in tests; each item leaves a mark in a folder, as a worker may be killed."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gnnplace.errors import MeasurementFailed
from tests.patience import PATIENCE_S


def marks(folder: Path, name: str) -> int:
    """Number of marks of a name."""
    return len(list(folder.glob(f"{name}.*")))


def once(folder: Path, name: str) -> bool:
    """Leaves a mark; true for the first one."""
    first = marks(folder, name) == 0
    (folder / f"{name}.{time.monotonic_ns()}").touch()
    return first


def worker(folder: Path) -> Callable[[str], str]:
    """The function of an item, `WORD` or `WORD ARGUMENT`."""
    return partial(_do, folder)


def _do(folder: Path, item: str) -> str:
    word, _, argument = item.partition(" ")
    first = once(folder, word)
    if word == "dies" or (word == "dies_once" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "hangs" or (word == "hangs_once" and first):
        time.sleep(1000.0)
    if word == "slow_once" and first:
        time.sleep(4.0)
    if word == "raises":
        raise MeasurementFailed("this item cannot be done")
    if word == "until":
        end_s = time.monotonic() + PATIENCE_S
        while not marks(folder, argument) and time.monotonic() < end_s:
            time.sleep(0.02)
    if word == "sleeps":
        time.sleep(float(argument))
    return f"{item} done"
