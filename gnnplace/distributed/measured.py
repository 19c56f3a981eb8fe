"""Placements executed on all hosts that are like this one: each beside its own plain session of the model.

What counts of a measurement is the ratio to the plain session that ran in turns with it, on that host and at that moment; so
what a host is slower by cancels, and the driver states seconds by its own plain session.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnplace.distributed.cluster import different_seconds
from gnnplace.distributed.pool import Pool, PoolOptions
from gnnplace.distributed.priority import take_usual_priority
from gnnplace.distributed.staff import Role, StaffOptions
from gnnplace.errors import MeasurementFailed
from gnnplace.executors.busy import check_free
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.executors.measure import StoppingRule
from gnnplace.executors.measured_evaluator import MeasuredEvaluator
from gnnplace.executors.worker_process import Answer, Job, Setup, WorkerProcess
from gnnplace.files import temporary_folder

__all__ = ["HostsMeasuring", "MeasuringPool", "measuring", "measuring_options"]

_START_S = 120.0
_TRIAL = StoppingRule(warmup=1, min_repeats=1, max_repeats=1)

MeasuringPool = Pool[Job, Answer]


def measuring(evaluator: MeasuredEvaluator, timeout_s: float, force: bool) -> Role:
    """Workers that execute what this evaluator wants to know, on the devices of their hosts; hosts that differ may not take part.

    Each one runs the plain session once before it is given anything. With `force` it does so where other work keeps a device busy.
    """
    data = {name: np.fromfile(path, dtype=np.uint8) for name, path in evaluator.data_files.items()}
    trial = _Trial(evaluator.setup, evaluator.reference, evaluator.device_names, timeout_s, force)
    return Role(_measuring, (trial, data), different_seconds)


def measuring_options(timeout_s: float) -> PoolOptions:
    """One worker per host; a measuring process ends what hangs itself, so who does not answer after two tries is lost."""
    limit_s = 2 * timeout_s + _START_S
    return PoolOptions(StaffOptions(per_host=1, prepare_s=limit_s), timeout_s=limit_s, retry_hung=True)


class HostsMeasuring:
    """Executes placements on the hosts of a pool, one at a time on each."""

    def __init__(self, pool: MeasuringPool) -> None:
        self._pool = pool

    def answers(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        """What became of each job, by its index, as it becomes known.

        Raises:
            ProcessLost: no host is left.
        """
        for done in self._pool.results(jobs):
            yield done.index, done.value or Answer(None, done.failure)


@dataclass(frozen=True, eq=False)
class _Trial:
    """What a host needs to begin, and shows by executing the plain session."""

    setup: Setup
    reference: RunnerPart | None
    device_names: tuple[str, ...]
    timeout_s: float
    force: bool


def _measuring(trial: _Trial, data: Mapping[str, NDArray[np.uint8]]) -> Callable[[Job], Answer]:
    take_usual_priority()  # the measuring process inherits it
    check_free(trial.device_names, trial.force)
    until_the_end = ExitStack()  # of this process
    folder = until_the_end.enter_context(temporary_folder())
    for name, content in data.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content.tofile(folder / name)
    worker = until_the_end.enter_context(WorkerProcess(trial.setup, trial.timeout_s))
    run = partial(_measured, until_the_end, worker, folder if data else None)
    if trial.reference is not None:
        answer = run(Job(((trial.reference,),), _TRIAL))
        if answer.samples is None:
            raise MeasurementFailed(f"the plain session does not run there: {answer.failure}")
    return run


def _measured(until_the_end: ExitStack, worker: WorkerProcess, folder: Path | None, job: Job) -> Answer:
    """What became of a job whose parts find their weights in a folder of this host."""
    if folder is not None:
        here = tuple(tuple(dataclasses.replace(part, data_folder=folder) for part in parts) for parts in job.candidates)
        job = dataclasses.replace(job, candidates=here)
    return worker.ask(job)
