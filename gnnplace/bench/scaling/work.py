"""What the workers of the bench do: a simulation of known length, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from gnnplace.distributed.evaluators import Rows
from gnnplace.distributed.workers import Role
from gnnplace.evaluation import Evaluator

__all__ = ["echoing", "timed_simulating"]


def timed_simulating(evaluator: Evaluator) -> Role:
    """Workers that simulate rows of devices and say the seconds that took, and the makespans."""
    return Role(_simulates, (evaluator,))


def echoing() -> Role:
    """Workers that give back a number at once, whatever they get; but after a minute for `b"sleep"`."""
    return Role(_echoes)


def _simulates(evaluator: Evaluator) -> Callable[[Rows], tuple[float, list[float]]]:
    return partial(_timed, evaluator)


def _timed(evaluator: Evaluator, rows: Rows) -> tuple[float, list[float]]:
    begin_s = time.perf_counter()
    batch = evaluator.evaluate_batch(rows.astype(np.int64))
    return time.perf_counter() - begin_s, batch.makespan_s.tolist()


def _echoes() -> Callable[[object], int]:
    return _echo


def _echo(item: object) -> int:
    if item == b"sleep":
        time.sleep(60.0)
    return 0
