"""Placements simulated by the workers of all hosts: the results of the local simulator, bit for bit and in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import IntArray
from gnnplace.distributed.cluster import different_results
from gnnplace.distributed.pool import Pool
from gnnplace.distributed.staff import Role
from gnnplace.errors import ProcessLost
from gnnplace.evaluation import Evaluation, EvaluationBatch, Evaluator
from gnnplace.placement import Placement

__all__ = ["HostsSimulator", "Rows", "SimulationPool", "simulating"]

_WORTH_OPS = 500_000
_CHUNKS_PER_WORKER = 3

Rows = NDArray[np.unsignedinteger]
"""`[B, N]` devices, in as few bytes as their number needs: what travels."""
SimulationPool = Pool[Rows, EvaluationBatch]


def simulating(evaluator: Evaluator) -> Role:
    """Workers that hold this simulator; it should use one thread, as there is a worker for each core."""
    return Role(_simulates, (evaluator,), different_results)


class HostsSimulator:
    """The evaluator that a pool of `simulating` workers holds too; small batches are not worth a message and stay here."""

    def __init__(self, local: Evaluator, pool: SimulationPool, num_ops: int, num_devices: int) -> None:
        """`num_ops` is how many ops an evaluation simulates, which says how long it takes."""
        self._local, self._pool, self._num_ops = local, pool, num_ops
        self._dtype = np.min_scalar_type(max(0, num_devices - 1))

    @property
    def kind(self) -> Literal["simulated"]:
        """Simulated."""
        return "simulated"

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement, simulated here."""
        return self._local.evaluate(placement)

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, N]` assignments.

        Raises:
            ProcessLost: what was to be simulated has cost several workers, or no host is left.
        """
        if len(assignments) < 2 or len(assignments) * self._num_ops < _WORTH_OPS:
            return self._local.evaluate_batch(assignments)
        num_chunks = min(len(assignments), _CHUNKS_PER_WORKER * max(1, self._pool.num_workers))
        done = self._pool.map(np.array_split(np.asarray(assignments).astype(self._dtype), num_chunks))
        found = [one.value for one in done if one.value is not None]
        if len(found) < len(done):
            failures = [f"{one.failure}" for one in done if one.failure]
            raise ProcessLost(f"{len(failures)} of {num_chunks} parts of a batch could not be simulated: {failures[0]}")
        return EvaluationBatch(
            makespan_s=np.concatenate([one.makespan_s for one in found]),
            period_s=np.concatenate([one.period_s for one in found]),
            shortfall_bytes=np.concatenate([one.shortfall_bytes for one in found]),
        )


def _simulates(evaluator: Evaluator) -> Callable[[Rows], EvaluationBatch]:
    return partial(_simulated, evaluator)


def _simulated(evaluator: Evaluator, rows: Rows) -> EvaluationBatch:
    return evaluator.evaluate_batch(rows.astype(np.int64))
