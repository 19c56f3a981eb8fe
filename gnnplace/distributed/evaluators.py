"""Simulations and executions by the workers of all hosts; simulations give the local results, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import IntArray
from gnnplace.distributed.calls import SentFiles, sent_files, write_sent_files
from gnnplace.distributed.cluster import different_results, different_seconds, take_usual_priority
from gnnplace.distributed.pool import Pool
from gnnplace.distributed.workers import PoolOptions, Role
from gnnplace.errors import MeasurementFailed, ProcessLost
from gnnplace.files import temporary_folder
from gnnplace.measuring.busy import check_free
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Answer, Job, Setup, WorkerProcess
from gnnplace.onnx_io.part import Part

if TYPE_CHECKING:  # workers, which import this file, need none of them
    from gnnplace.evaluation import Evaluation, EvaluationBatch, Evaluator
    from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
    from gnnplace.placement import Placement

_WORTH_OPS = 500_000
"""Simulated ops below which a batch stays in this process."""
_CHUNKS_PER_WORKER = 3

Rows = NDArray[np.unsignedinteger]
"""`[B, N]` devices in the smallest dtype that holds their number, as sent to workers."""


def simulating(evaluator: Evaluator) -> Role:
    """The role of workers that hold this simulator; it should use one thread, as each core has a worker."""
    return Role(partial, (_simulated, evaluator), different_results)


def _simulated(evaluator: Evaluator, rows: Rows) -> EvaluationBatch:
    return evaluator.evaluate_batch(rows.astype(np.int64))


class HostsSimulator:
    """An evaluator that sends large batches to a pool of `simulating` workers and evaluates small ones itself."""

    kind: Literal["simulated"] = "simulated"

    def __init__(self, local: Evaluator, pool: Pool[Rows, EvaluationBatch], num_ops: int, num_devices: int) -> None:
        """`num_ops` is the number of ops that one evaluation simulates."""
        self._local, self._pool, self._num_ops = local, pool, num_ops
        self._dtype = np.min_scalar_type(max(0, num_devices - 1))

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement, simulated in this process."""
        return self._local.evaluate(placement)

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments.

        Raises:
            ProcessLost: a part of the batch has cost several workers, or no host is left.
        """
        if len(assignments) < 2 or len(assignments) * self._num_ops < _WORTH_OPS:
            return self._local.evaluate_batch(assignments)
        num_chunks = min(len(assignments), _CHUNKS_PER_WORKER * max(1, self._pool.num_workers))
        done = self._pool.map(np.array_split(np.asarray(assignments).astype(self._dtype), num_chunks))
        failures = [one.failure for one in done if one.failure]
        if failures:
            raise ProcessLost(f"{len(failures)} of {num_chunks} parts of a batch could not be simulated: {failures[0]}")
        from gnnplace.evaluation import EvaluationBatch

        parts = [vars(one.value) for one in done]
        return EvaluationBatch(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


_START_S = 120.0
_TRIAL = StoppingRule(warmup=1, min_repeats=1, max_repeats=1)


def measuring(evaluator: MeasuredEvaluator, timeout_s: float, force: bool) -> tuple[Role, PoolOptions]:
    """The role and the options of workers, one per host, that execute this evaluator's placements; hosts that differ take no part.

    Each worker first runs the plain session once. With `force` it does so although other work keeps a device busy. Its
    measuring process ends placements that hang, so the pool replaces a worker only after the time of two tries.
    """
    trial = (evaluator.setup, evaluator.reference, evaluator.topology.device_names, timeout_s, force)
    role = Role(_measuring, (*trial, sent_files(evaluator.maker.data_files)), different_seconds)
    limit_s = 2 * timeout_s + _START_S
    return role, PoolOptions(per_host=1, prepare_s=limit_s, timeout_s=limit_s)


def answers_of_hosts(pool: Pool[Job, Answer], jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
    """The index and the answer of each job, as soon as a `measuring` worker has executed it.

    Raises:
        ProcessLost: no host is left.
    """
    for done in pool.results(jobs):
        yield done.index, done.value or Answer(None, done.failure)


def _measuring(
    setup: Setup, reference: Part | None, devices: Sequence[str], timeout_s: float, force: bool, weights: SentFiles
) -> Callable[[Job], Answer]:
    """Starts the measuring process of a host, and tries it with the plain session."""
    take_usual_priority()  # the measuring process inherits it
    check_free(devices, force)
    open_resources = ExitStack()  # open until this process ends
    folder = open_resources.enter_context(temporary_folder())
    write_sent_files(weights, folder)
    worker = open_resources.enter_context(WorkerProcess(setup, timeout_s))
    run = partial(_measured, open_resources, worker, folder if weights else None)
    if reference is not None:
        answer = run(Job(((reference,),), _TRIAL))
        if answer.samples is None:
            raise MeasurementFailed(f"the plain session does not run there: {answer.failure}")
    return run


def _measured(open_resources: ExitStack, worker: WorkerProcess, folder: Path | None, job: Job) -> Answer:
    """The answer of a job whose parts have their weights in a folder of this host."""
    if folder is not None:
        here = tuple(tuple(dataclasses.replace(part, data_folder=folder) for part in parts) for parts in job.candidates)
        job = dataclasses.replace(job, candidates=here)
    return worker.run(job)
