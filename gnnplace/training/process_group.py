"""Several processes that train as one: each has a rank, and they exchange means of tensors."""

from __future__ import annotations

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

from gnnplace.child_processes import end_with_parent
from gnnplace.errors import ProcessLost
from gnnplace.files import temporary_folder

__all__ = ["GroupOf", "ProcessGroup", "joined", "one_thread", "process_group"]


@dataclass(frozen=True)
class ProcessGroup:
    """This process among `size` of them."""

    rank: int = 0
    size: int = 1

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over all processes of a tensor of the same shape in each; the same bits in all of them.

        Raises:
            ProcessLost: another process has ended.
        """
        if self.size == 1:
            return tensor
        total = tensor.clone()
        with _others_there():
            dist.all_reduce(total)
        return total / self.size

    def any(self, flag: bool) -> bool:
        """The flag is set in at least one process."""
        return bool(self.mean(torch.tensor([float(flag)])).item() > 0)

    def gather(self, row: Any) -> list[Any]:
        """What every process has, by rank; empty everywhere but at rank 0."""
        if self.size == 1:
            return [row]
        rows: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with _others_there():
            dist.gather_object(row, rows)
        return rows or []


@contextmanager
def _others_there() -> Iterator[None]:
    """Around what fails when a process of the group has closed its connections."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            f"a training process has ended early ({str(error).splitlines()[0]}); go on with --resume"
        ) from error


@contextmanager
def process_group(size: int, work: Callable[..., object], arguments: tuple[Any, ...]) -> Iterator[ProcessGroup]:
    """Starts `size - 1` processes that each call `work(group, *arguments)`; this one has rank 0 and is expected to do the same.

    Torch runs on one thread in each of them. The others take no notice of Ctrl-C: rank 0 says when to end. They end
    with this process, whatever ends it.

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


GroupOf = Callable[[int, Callable[..., object], tuple[Any, ...]], AbstractContextManager[ProcessGroup]]
"""What starts a group, as `process_group` does on this machine."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on one thread within the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _start(
    others: list[BaseProcess], size: int, rendezvous: str, work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    """Adds the processes of rank 1 and more to `others`, and waits until all of them run.

    Raises:
        ProcessLost: one of them has ended before it began.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    others += [
        context.Process(target=_work, args=(there, rank, size, rendezvous, work, arguments), daemon=True)
        for rank in range(1, size)
    ]
    resource_tracker.ensure_running()  # when it starts with the first process, it lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is blocked now stays so in the others
    try:
        for process in others:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    missing = len(others)
    while missing:  # who waits for a process that never came would wait for half an hour
        came = wait([here, *(process.sentinel for process in others)])
        if here not in came:
            raise ProcessLost("a training process could not start; what went wrong stands above")
        here.recv()
        missing -= 1


def _work(
    began: Connection, rank: int, size: int, rendezvous: str, work: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    """The life of a process of rank 1 or more, which says on `began` that it is there."""
    began.send(rank)
    end_with_parent()
    torch.set_num_threads(1)
    with joined(rank, size, rendezvous) as group:
        work(group, *arguments)


@contextmanager
def joined(rank: int, size: int, rendezvous: str) -> Iterator[ProcessGroup]:
    """This process as one of a group that meets at an address of `torch.distributed`.

    Raises:
        ProcessLost: another process has ended.
    """
    with _others_there():
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    try:
        yield ProcessGroup(rank, size)
    finally:
        dist.destroy_process_group()
