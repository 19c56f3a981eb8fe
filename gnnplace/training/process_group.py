"""Processes that train together: each has a rank, and they all-reduce tensors."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gnnplace.errors import ProcessLost
from gnnplace.files import temporary_folder
from gnnplace.isolated_process import end_with_parent
from gnnplace.policy.network import one_thread


@dataclass(frozen=True)
class ProcessGroup:
    """This process among `size` of them."""

    rank: int = 0
    size: int = 1

    def mean(self, tensor: Tensor) -> Tensor:
        """All-reduces a tensor to its mean; every rank must call it equally often, with the same shape, and gets the same bits.

        Raises:
            ProcessLost: another process has ended.
        """
        if self.size == 1:
            return tensor
        total = tensor.clone()
        with _connection_errors():
            dist.all_reduce(total)
        return total / self.size

    def any(self, flag: bool) -> bool:
        """True where the flag is set in at least one process."""
        return bool(self.mean(torch.tensor([float(flag)])).item() > 0)

    def gather(self, row: Any) -> list[Any]:
        """The rows of all processes by rank at rank 0; empty elsewhere."""
        if self.size == 1:
            return [row]
        rows: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with _connection_errors():
            dist.gather_object(row, rows)
        return rows or []


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Raises `ProcessLost` where torch reports that another process has closed its connections."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            f"a training process has ended early ({str(error).splitlines()[0]}); continue with --resume"
        ) from error


@contextmanager
def process_group(size: int, work: Callable[..., object], arguments: tuple[Any, ...]) -> Iterator[ProcessGroup]:
    """Starts `size - 1` processes that each call `work(group, *arguments)`; this process has rank 0 and works in the block.

    Torch runs on one thread in each process. The others ignore Ctrl-C, as rank 0 decides when to end, and end with this process.

    Raises:
        ProcessLost: another process has ended early, or could not start.
    """
    with one_thread():
        if size == 1:
            yield ProcessGroup()
            return
        with temporary_folder() as folder:
            rendezvous = f"file://{folder.resolve()}/rendezvous"
            others: list[BaseProcess] = []
            try:
                _start(others, size, rendezvous, work, arguments)
                with joined(0, size, rendezvous) as group:
                    yield group
                for process in others:
                    process.join()
            finally:
                for process in others:
                    if process.pid is not None:
                        process.kill()
                        process.join()


StartGroup = Callable[[int, Callable[..., object], tuple[Any, ...]], AbstractContextManager[ProcessGroup]]
"""A function that starts a group, as `process_group` does on this machine."""


def _start(
    others: list[BaseProcess], size: int, rendezvous: str, work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    """Starts the processes of rank 1 and more, adds them to `others`, and waits until all of them run.

    Raises:
        ProcessLost: one of them has ended before it began.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    others += [
        context.Process(target=_work, args=(there, rank, size, rendezvous, work, arguments), daemon=True)
        for rank in range(1, size)
    ]
    resource_tracker.ensure_running()  # if the first process starts it, it unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the others inherit the mask
    try:
        for process in others:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for _ in others:  # torch would wait half an hour for a process that never starts
        if here not in wait([here, *(process.sentinel for process in others)]):
            raise ProcessLost("a training process could not start; its error is printed above")
        here.recv()


def _work(
    began: Connection, rank: int, size: int, rendezvous: str, work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    """Main function of a process of rank 1 or more, which first sends its rank to `began`."""
    began.send(rank)
    end_with_parent()
    torch.set_num_threads(1)
    with joined(rank, size, rendezvous) as group:
        work(group, *arguments)


@contextmanager
def joined(rank: int, size: int, rendezvous: str) -> Iterator[ProcessGroup]:
    """Joins this process to the group that meets at the address `rendezvous` of `torch.distributed`.

    Raises:
        ProcessLost: another process has ended.
    """
    with _connection_errors():
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    try:
        yield ProcessGroup(rank, size)
    finally:
        dist.destroy_process_group()
