"""Items over the workers of all hosts, even while workers and hosts are lost: each item is counted exactly once.

An item whose worker or host is lost goes to another worker, and an item that hangs costs its worker. When no item is
left to dispatch, an idle worker also runs an item that takes much longer than the others. The pool drops every further
answer to an item that has one. Ray's `ActorPool` offers neither copies, time limits nor a replacement of lost workers.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from gnnplace.distributed.workers import PoolOptions, Role, Worker, Workers

if TYPE_CHECKING:
    from ray import ObjectRef

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_WAIT_S = 0.25
_MIN_COPIED_S = 0.25


@dataclass(frozen=True)
class Done(Generic[ResultT]):
    """The outcome of an item."""

    index: int
    """Index of the item."""
    value: ResultT | None
    """Result; None where there is a failure."""
    failure: str
    """Reason of the failure; empty where there is a value."""
    host: str
    wall_s: float
    """Seconds from dispatch to answer."""


@dataclass(eq=False)
class _Progress:
    """The items of one call of `results`."""

    waiting: deque[int]
    open: set[int]
    lost: Counter[int] = field(default_factory=Counter)
    finished_s: list[float] = field(default_factory=list)

    def lacks(self, run: _Run) -> bool:
        """Whether the item of a run belongs to this call and has no outcome yet."""
        return run.call is self and run.index in self.open

    def done(self, run: _Run, value: Any = None, failure: str = "") -> Done[Any]:
        """The outcome of an item, which it had not yet."""
        self.open.remove(run.index)
        return Done(run.index, value, failure, run.worker.node.name, run.wall_s)


@dataclass(frozen=True, eq=False)
class _Run:
    """An item that a worker runs."""

    worker: Worker
    call: _Progress
    index: int
    begin_s: float = field(default_factory=time.monotonic)

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self.begin_s


class Pool(Generic[ItemT, ResultT]):
    """Workers on every host of the connected cluster; close it, or use it as a context."""

    def __init__(
        self, role: Role, options: PoolOptions = PoolOptions(), on_warning: Callable[[str], None] = lambda text: None
    ) -> None:
        """`on_warning` receives a line for each host that is set aside."""
        self.tally: Counter[str] = Counter()
        """Counts of items: `dispatched` ones are `counted`, `dropped` (had an answer), `lost`, `hung`, or still running."""
        self._options = options
        self._workers = Workers(role, options, on_warning)
        self._running: dict[ObjectRef[Any], _Run] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts with a worker that is ready."""
        return tuple(dict.fromkeys(worker.node.name for worker in self._workers.ready))

    @property
    def num_workers(self) -> int:
        """Number of workers that are ready."""
        return len(self._workers.ready)

    def wait_ready(self) -> None:
        """Waits for the workers of all current hosts; without it items go to the workers that are ready.

        Raises:
            GnnplaceError: no host takes part.
        """
        self._workers.refresh()
        while self._workers.beginning or not self._workers.all:
            for reference in self._answered():
                self._workers.begun(reference)
            self._workers.refresh()

    def map(self, items: Sequence[ItemT]) -> list[Done[ResultT]]:
        """The outcomes in the order of the items; see `results`."""
        return sorted(self.results(items), key=lambda done: done.index)

    def results(self, items: Sequence[ItemT]) -> Iterator[Done[ResultT]]:
        """The outcome of each item, once, as soon as it is known.

        Raises:
            GnnplaceError: no host is left, or none takes part.
            Exception: the error that the work on an item raised; no further item is dispatched then.
        """
        now = _Progress(deque(range(len(items))), set(range(len(items))))
        while now.open:
            self._workers.refresh()
            self._dispatch(now, items)
            for reference in self._answered():
                if reference in self._workers.beginning:
                    self._workers.begun(reference)
                elif reference in self._running:
                    yield from self._taken(self._running.pop(reference), reference, now)
            yield from self._overdue(now)

    def close(self) -> None:
        """Ends all workers."""
        self._workers.close()
        self._running.clear()

    def __enter__(self) -> Pool[ItemT, ResultT]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _dispatch(self, now: _Progress, items: Sequence[ItemT]) -> None:
        for worker in self._workers.ready:
            if worker.is_busy:
                continue
            index = now.waiting.popleft() if now.waiting else self._straggler(now)
            if index is None:
                return
            worker.is_busy = True
            self._running[worker.actor.work.remote(items[index])] = _Run(worker, now, index)
            self.tally["dispatched"] += 1

    def _straggler(self, now: _Progress) -> int | None:
        """The item that has run longest, among those that one worker runs and that take much longer than others took."""
        if not now.finished_s:
            return None
        runs = list(filter(now.lacks, self._running.values()))
        copies = Counter(run.index for run in runs)
        limit_s = max(_MIN_COPIED_S, self._options.copy_after * statistics.median(now.finished_s))
        # An item that has cost a worker gets no copy: it may cost one worker after the other.
        slow = [run for run in runs if copies[run.index] == 1 and not now.lost[run.index] and run.wall_s > limit_s]
        return max(slow, key=lambda run: run.wall_s).index if slow else None

    def _answered(self) -> list[ObjectRef[Any]]:
        """The answers that have arrived, after a short wait for the first."""
        import ray

        references = [*self._workers.beginning, *self._running]
        if not references:
            time.sleep(_WAIT_S)
            return []
        ready, _ = ray.wait(references, num_returns=1, timeout=_WAIT_S)
        if ready and len(references) > 1:
            ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        return ready

    def _taken(self, run: _Run, reference: ObjectRef[Any], now: _Progress) -> Iterator[Done[ResultT]]:
        """Counts or drops the answer of a worker, or repeats the item of a lost one."""
        import ray

        run.worker.is_busy = False
        try:
            value = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except ray.exceptions.RayError:
            yield from self._repeated(run, now, "lost", "its worker was lost")
            return
        if not now.lacks(run):
            self.tally["dropped"] += 1
            return
        now.finished_s.append(run.wall_s)
        self.tally["counted"] += 1
        yield now.done(run, value)

    def _overdue(self, now: _Progress) -> Iterator[Done[ResultT]]:
        """Kills the workers whose items take too long."""
        for reference, run in list(self._running.items()):
            if run.wall_s > self._options.timeout_s:
                del self._running[reference]
                run.worker.is_busy = False
                reason = f"took longer than {self._options.timeout_s:.3g} s"
                yield from self._repeated(run, now, "hung", reason)

    def _repeated(
        self, run: _Run, now: _Progress, fault: Literal["lost", "hung"], reason: str
    ) -> Iterator[Done[ResultT]]:
        """Puts an item back in front, unless another worker runs it too, or it has cost too many workers."""
        self._workers.restart(run.worker, kill=fault == "hung")
        self.tally[fault] += 1
        if not now.lacks(run):
            return
        now.lost[run.index] += 1
        if any(other.call is now and other.index == run.index for other in self._running.values()):
            return
        if now.lost[run.index] < self._options.tries:
            now.waiting.appendleft(run.index)
        else:
            times = f"{now.lost[run.index]} times, the last time " if now.lost[run.index] > 1 else ""
            yield now.done(run, failure=f"{reason}, {times}on host {run.worker.node.name}")


def turn_s(pool: Pool[ItemT, ResultT], num_items: int, item: ItemT, repeats: int = 30) -> float:
    """Median seconds of a turn of the pool's loop while a worker has `num_items` items such as `item`: for benches.

    The worker is lost to the pool afterwards.
    """
    import ray

    pool.wait_ready()
    worker, nothing = pool._workers.ready[0], _Progress(deque(), set())
    worker.is_busy = True
    pool._running = {ray.put(0): _Run(worker, nothing, 0)}  # an answer is always there
    pool._running |= {worker.actor.work.remote(item): _Run(worker, nothing, index) for index in range(1, num_items)}
    taken_s = []
    for _ in range(repeats):
        begin_s = time.perf_counter()
        pool._dispatch(nothing, ())
        pool._answered()
        list(pool._overdue(nothing))
        taken_s.append(time.perf_counter() - begin_s)
    pool._running.clear()
    pool._workers.remove(worker)
    return statistics.median(taken_s)
