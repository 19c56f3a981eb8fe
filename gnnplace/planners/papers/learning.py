"""Rewards, baseline and gradient steps of the published methods, and pieces of their features and sequence models."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.evaluation import Problem

_LONG = 10.0
"""Relative runtime above which `relative_runtime` compresses; Placeto's authors cap theirs at the same number."""
_FAILED = 2.0 * _LONG
"""Upper bound of compressed runtimes; placements that do not fit have at least this value."""


def single_device_s(problem: Problem) -> float:
    """Seconds of computing on the best single device, the unit of relative runtimes; never 0."""
    seconds = np.take_along_axis(problem.unit_time_s, landing_devices(problem), axis=1)
    return max(float(seconds.sum(axis=0).min()), 1e-12)


def which_ran(problem: Problem, seconds: FloatArray) -> BoolArray:
    """`[B]` true where penalised seconds `[B]` belong to a placement that ran.

    A measured placement ran if its seconds are finite, since simulated bounds of time and memory do not apply to it.
    """
    if problem.evaluator.kind == "measured":
        return np.isfinite(seconds)
    return seconds <= problem.worst_case_s * (1.0 + 1e-9)


def relative_runtime(problem: Problem, seconds: FloatArray, reference_s: float) -> FloatArray:
    """Penalised seconds over `reference_s`: below 20 if the placement runs, else from 20 to 40.

    A runtime `x` above 10 becomes `20 - 100 / x`, which continues with slope 1 and always rises: a learner still distinguishes
    placements that are many times slower than one device, and outliers do not dominate. The search's own penalty for missing
    memory is orders of magnitude above any runtime; here the value of a failure also falls with the missing bytes.
    """
    worst_s, ratio = max(problem.worst_case_s, 1e-9), seconds / reference_s
    ran = np.where(ratio <= _LONG, ratio, _FAILED - _LONG**2 / np.maximum(ratio, _LONG))
    failed = _FAILED * np.clip(seconds / worst_s, 1.0, 2.0)
    return np.asarray(np.where(which_ran(problem, seconds), ran, failed))


def landing_devices(problem: Problem) -> IntArray:
    """`[U, D]` device of a unit that is sent to each device: that device, or the fastest one that may run the unit."""
    devices = range(problem.topology.num_devices)
    return np.stack([np.where(problem.action_mask[:, d], d, problem.fastest_near(d)) for d in devices], axis=1)


def first_values(owners: IntArray, values: FloatArray | IntArray, num_owners: int, limit: int) -> FloatArray:
    """`[num_owners, limit]` the first values of each owner in their order, padded with zeros."""
    offsets, items = csr(owners, np.arange(len(owners)), num_owners)
    slot = np.arange(len(items)) - np.repeat(offsets[:-1], np.diff(offsets))
    kept, slot = items[slot < limit], slot[slot < limit]
    table = np.zeros((num_owners, limit))
    table[owners[kept], slot] = values[kept]
    return table


@dataclass(eq=False)
class MovingAverage:
    """Exponential moving average of the mean rewards of batches, the baseline of REINFORCE."""

    decay: float
    """Weight of the old average in the new one."""
    value: float | None = None
    """The average; None before the first batch, whose baseline is its own mean."""

    def advantages(self, rewards: FloatArray) -> FloatArray:
        """`[K]` rewards of a batch minus the average of the batches before; then adds the batch to the average."""
        mean = float(rewards.mean())
        before = mean if self.value is None else self.value
        self.value = self.decay * before + (1.0 - self.decay) * mean
        return rewards - before


def gradient_step(network: nn.Module, optimizer: Optimizer, loss: Tensor, max_grad_norm: float) -> None:
    """One step of the optimizer along the clipped gradient of `loss`."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(network.parameters(), max_grad_norm)
    optimizer.step()


def gumbel_noise(num_steps: int, count: int, num_devices: int, generator: Generator) -> Tensor:
    """`[T, B, D]` noise: the largest of logits plus this noise is a draw from their softmax."""
    return -torch.empty(num_steps, count, num_devices).exponential_(generator=generator).clamp_min(1e-30).log()


_ATTENTION_NUMBERS = 1 << 26
"""Most numbers that attention keeps for the gradient (256 MB); above, the backward pass recomputes it in pieces."""


def in_pieces(
    logits: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, mask: Tensor, dim: int, numbers_per_step: int
) -> Tensor:
    """`logits(outputs, mask)`, in pieces along the steps `dim` where attention would keep too much for the gradient."""
    steps = max(1, _ATTENTION_NUMBERS // max(1, numbers_per_step))
    if steps >= outputs.shape[dim]:
        return logits(outputs, mask)
    pieces = zip(torch.split(outputs, steps, dim), torch.split(mask, steps, dim), strict=True)
    return torch.cat([checkpoint(logits, *piece, use_reentrant=False) for piece in pieces], dim)
