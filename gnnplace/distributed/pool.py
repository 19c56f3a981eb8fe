"""Items over the workers of all hosts, whatever becomes of workers and hosts: each item has one result, and is counted once.

An item whose worker or host is lost goes to another one; an item that hangs costs its worker; when there is nothing left to
hand out, what runs much longer than the rest is given out a second time. Only the driver decides what counts: it drops
every answer to an item that has one.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gnnplace.distributed.workers import Role, Staff, StaffOptions, Worker

if TYPE_CHECKING:
    from ray import ObjectRef

__all__ = ["Done", "Pool", "PoolOptions", "Tally", "turn_s"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_WAIT_S = 0.25
_LEAST_COPIED_S = 0.25


@dataclass(frozen=True)
class PoolOptions:
    """What is done about items that do not come back."""

    staff: StaffOptions = StaffOptions()
    timeout_s: float = math.inf
    """For one item, after which its worker is killed."""
    retry_hung: bool = False
    """An item that took too long is tried again like one whose worker is lost; else it has failed."""
    tries: int = 3
    """After so many lost workers the item itself is held to be the reason, and has failed."""
    copy_after: float = 2.0
    """Times the median seconds of the items that are done: what runs longer is given to an idle worker too."""


@dataclass(frozen=True)
class Done(Generic[ResultT]):
    """What became of an item."""

    index: int
    """Of the item; each is there once."""
    value: ResultT | None
    """None where there is a failure."""
    failure: str
    """Empty where there is a value."""
    host: str
    """Where that was."""
    wall_s: float
    """From handing it out to the answer."""


@dataclass
class Tally:
    """What has become of everything that was handed out: the first is the sum of the others and of what still runs."""

    handed_out: int = 0
    counted: int = 0
    dropped: int = 0
    """Answers to items that had one."""
    lost: int = 0
    """With their workers."""
    hung: int = 0
    """Stopped at the time limit."""


@dataclass(frozen=True, eq=False)
class _Run:
    """An item at a worker, in one call of `results`."""

    worker: Worker
    call: int
    index: int
    begin_s: float = field(default_factory=time.monotonic)

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self.begin_s


@dataclass(eq=False)
class _Progress:
    """Of the items of one call."""

    waiting: deque[int]
    open: set[int]
    lost: Counter[int] = field(default_factory=Counter)
    finished_s: list[float] = field(default_factory=list)


class Pool(Generic[ItemT, ResultT]):
    """Workers on every host of the cluster that this process is connected to; close it, or use it as a context."""

    def __init__(
        self, role: Role, options: PoolOptions = PoolOptions(), on_warning: Callable[[str], None] = lambda text: None
    ) -> None:
        """`on_warning` is told of hosts that are set aside."""
        self.tally = Tally()
        self._options = options
        self._staff = Staff(role, options.staff, on_warning)
        self._running: dict[ObjectRef[Any], _Run] = {}
        self._call = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """Those with a worker that is ready."""
        return self._staff.hosts

    @property
    def num_workers(self) -> int:
        """That are ready."""
        return sum(worker.state == "ready" for worker in self._staff.workers)

    @property
    def set_aside(self) -> dict[str, str]:
        """Why, by the names of the hosts that do not take part."""
        return dict(self._staff.set_aside)

    def wait_ready(self) -> None:
        """Until the workers of all hosts that are there are ready; otherwise items go to those that are.

        Raises:
            GnnplaceError: no host takes part.
        """
        self._staff.look()
        while self._staff.beginning or not self._staff.workers:
            for reference in self._answered():
                self._staff.begun(reference)
            self._staff.look()

    def map(self, items: Sequence[ItemT]) -> list[Done[ResultT]]:
        """What became of the items, in their order; see `results`."""
        return sorted(self.results(items), key=lambda done: done.index)

    def results(self, items: Sequence[ItemT]) -> Iterator[Done[ResultT]]:
        """What became of each item, once, as soon as it is known.

        Raises:
            GnnplaceError: no host is left, or none takes part.
            Exception: what the work on an item raised; nothing more is handed out then.
        """
        self._call += 1
        now = _Progress(deque(range(len(items))), set(range(len(items))))
        while now.open:
            self._staff.look()
            self._hand_out(now, items)
            for reference in self._answered():
                if reference in self._staff.beginning:
                    self._staff.begun(reference)
                elif reference in self._running:
                    yield from self._taken(self._running.pop(reference), reference, now)
            yield from self._overdue(now)

    def close(self) -> None:
        """Ends all workers."""
        self._staff.close()
        self._running.clear()

    def __enter__(self) -> Pool[ItemT, ResultT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hand_out(self, now: _Progress, items: Sequence[ItemT]) -> None:
        for worker in self._staff.idle:
            index = now.waiting.popleft() if now.waiting else self._slowest(now)
            if index is None:
                return
            worker.is_busy = True
            self._running[worker.actor.work.remote(items[index])] = _Run(worker, self._call, index)
            self.tally.handed_out += 1

    def _slowest(self, now: _Progress) -> int | None:
        """The item that runs longest of those that run much longer than others took, and only once."""
        if not now.finished_s:
            return None
        runs = [run for run in self._running.values() if run.call == self._call and run.index in now.open]
        copies = Counter(run.index for run in runs)
        limit_s = max(_LEAST_COPIED_S, self._options.copy_after * statistics.median(now.finished_s))
        slow = [run for run in runs if copies[run.index] == 1 and run.wall_s > limit_s]
        return max(slow, key=lambda run: run.wall_s).index if slow else None

    def _answered(self) -> list[ObjectRef[Any]]:
        """What has come, after a short wait for the first."""
        import ray

        references = [*self._staff.beginning, *self._running]
        if not references:
            time.sleep(_WAIT_S)
            return []
        ready, _ = ray.wait(references, num_returns=1, timeout=_WAIT_S)
        if ready and len(references) > 1:
            ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        return ready

    def _taken(self, run: _Run, reference: ObjectRef[Any], now: _Progress) -> Iterator[Done[ResultT]]:
        """The answer of a worker: it counts, is dropped, or is none because the worker is lost."""
        import ray

        run.worker.is_busy = False
        try:
            value = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except ray.exceptions.RayError:
            self._staff.lose(run.worker)
            self.tally.lost += 1
            yield from self._again(run, now, "its worker was lost", self._options.tries)
            return
        if self._is_settled(run, now):
            self.tally.dropped += 1
            return
        now.finished_s.append(run.wall_s)
        self.tally.counted += 1
        yield self._settled(run, now, value, "")

    def _overdue(self, now: _Progress) -> Iterator[Done[ResultT]]:
        """Kills the workers whose items take too long."""
        for reference, run in list(self._running.items()):
            if run.wall_s > self._options.timeout_s:
                del self._running[reference]
                self._staff.lose(run.worker)
                self.tally.hung += 1
                why = f"took longer than {self._options.timeout_s:.3g} s"
                yield from self._again(run, now, why, self._options.tries if self._options.retry_hung else 1)

    def _again(self, run: _Run, now: _Progress, why: str, tries: int) -> Iterator[Done[ResultT]]:
        """Puts an item back in front, unless it runs elsewhere too, or has cost too many workers."""
        if self._is_settled(run, now):
            return
        now.lost[run.index] += 1
        if any(other.call == run.call and other.index == run.index for other in self._running.values()):
            return
        if now.lost[run.index] < tries:
            now.waiting.appendleft(run.index)
        else:
            times = f"{now.lost[run.index]} times, the last time " if now.lost[run.index] > 1 else ""
            yield self._settled(run, now, None, f"{why}, {times}on host {run.worker.node.name}")

    def _is_settled(self, run: _Run, now: _Progress) -> bool:
        return run.call != self._call or run.index not in now.open

    def _settled(self, run: _Run, now: _Progress, value: ResultT | None, failure: str) -> Done[ResultT]:
        now.open.remove(run.index)
        return Done(run.index, value, failure, run.worker.node.name, run.wall_s)


def turn_s(pool: Pool[ItemT, ResultT], num_items: int, item: ItemT, repeats: int = 30) -> float:
    """Median seconds of a turn of the driver's loop while a worker has so many items, each as long as this one: for benches.

    The worker is lost to the pool afterwards.
    """
    import ray

    pool.wait_ready()
    worker = pool._staff.idle[0]
    worker.is_busy = True
    pool._running = {ray.put(0): _Run(worker, -1, 0)}  # something has always come
    pool._running |= {worker.actor.work.remote(item): _Run(worker, -1, index) for index in range(1, num_items)}
    nothing = _Progress(deque(), set())
    taken_s = []
    for _ in range(repeats):
        begin_s = time.perf_counter()
        pool._hand_out(nothing, ())
        pool._answered()
        list(pool._overdue(nothing))
        taken_s.append(time.perf_counter() - begin_s)
    pool._running.clear()
    pool._staff.lose(worker)
    return statistics.median(taken_s)
