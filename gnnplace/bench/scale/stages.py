"""Seconds and peak memory of the stages of one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

__all__ = ["Stages"]

_PEAK = "VmHWM:"


class Stages:
    """What each stage took; Linux alone says the peak of a stage, elsewhere it is what the process uses at its end.

    >>> stages = Stages()
    >>> with stages.stage("sum"):
    ...     _ = sum(range(1000))
    >>> sorted(stages.row()), stages.row()["sum_peak_bytes"] > 2**20
    (['sum_peak_bytes', 'sum_s'], True)
    """

    def __init__(self) -> None:
        """None yet."""
        self._row: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measures what runs inside."""
        _forget_peak()
        begin_s = time.perf_counter()
        yield
        self._row[f"{name}_s"] = time.perf_counter() - begin_s
        self._row[f"{name}_peak_bytes"] = _peak_bytes()

    def row(self) -> dict[str, float]:
        """`NAME_s` and `NAME_peak_bytes` of every stage."""
        return dict(self._row)


def _forget_peak() -> None:
    with suppress(OSError):  # then the peak is that since the process began
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return int(psutil.Process().memory_info().rss)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PEAK))
