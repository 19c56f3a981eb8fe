"""The workers of a pool: one Ray actor per slot of every host, including hosts that join later.

Ray restarts the process of a lost worker on its host. It does not repeat the lost item: the pool decides which worker
runs that item next.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gnnplace.distributed.cluster import RESTART_RETRIES, Node, host_options, machine_fingerprint, nodes
from gnnplace.errors import GnnplaceError, ProcessLost

if TYPE_CHECKING:
    from ray import ObjectRef


_REFRESH_S = 0.5
_MAX_LOSSES = 3


@dataclass(frozen=True)
class PoolOptions:
    """The number of workers, and limits for workers and items that do not come back."""

    per_host: int | None = None
    """Workers of each host, which share its cores; None: one per core."""
    begin_s: float = 60.0
    """Seconds until a worker's first answer; a host whose workers take longer is set aside."""
    prepare_s: float = 300.0
    """Seconds from the first answer until the worker is ready; a host whose workers take longer is set aside."""
    patience_s: float = 60.0
    """Seconds to wait for another host when none is left."""
    timeout_s: float = math.inf
    """Seconds of one item, after which its worker is killed."""
    tries: int = 3
    """Lost or killed workers after which an item has failed."""
    copy_after: float = 2.0
    """Multiple of the median seconds of finished items after which an idle worker runs the item too."""


@dataclass(frozen=True)
class Role:
    """The work of a pool's workers."""

    make: Callable[..., Callable[[Any], Any]]
    """Called once by each worker with `arguments`; returns the function of an item. A `GnnplaceError` sets the host aside."""
    arguments: Sequence[object] = ()
    """Sent to each host once."""
    objection: Callable[[Mapping[str, Any]], str] = lambda fingerprint: ""
    """Reason for which a host with this fingerprint may not take part; empty where it may."""


@dataclass(eq=False)
class Worker:
    """An actor on a host; idle once it is ready."""

    node: Node
    actor: Any
    state: Literal["starting", "preparing", "ready"] = "starting"
    is_busy: bool = False
    since_s: float = field(default_factory=time.monotonic)


class _Actor:
    """The worker in its own process."""

    def __init__(self, make: Callable[..., Callable[[Any], Any]], *arguments: Any) -> None:
        self._make, self._arguments = make, arguments
        self._work: Callable[[Any], Any] | None = None

    def describe(self) -> dict[str, Any]:
        return machine_fingerprint()

    def prepare(self) -> None:
        self._work = self._work or self._make(*self._arguments)

    def work(self, item: Any) -> Any:
        self.prepare()  # again, where Ray has restarted an idle worker
        assert self._work is not None
        return self._work(item)


class Workers:
    """The current workers."""

    def __init__(self, role: Role, options: PoolOptions, on_warning: Callable[[str], None]) -> None:
        import ray

        self.all: list[Worker] = []
        self.beginning: dict[ObjectRef[Any], Worker] = {}
        """Workers that are not ready, by the reference to their next answer."""
        self._options, self._objection, self._on_warning = options, role.objection, on_warning
        self._actor = ray.remote(_Actor)
        self._arguments = (role.make, *(ray.put(argument) for argument in role.arguments))
        self._refused: dict[str, str] = {}
        """Name and reason of each node that takes no part."""
        self._losses: Counter[str] = Counter()
        """Workers of each node that were lost in a row before they were ready."""
        self._refreshed_s = -math.inf
        self._had_workers_s = time.monotonic()

    @property
    def ready(self) -> list[Worker]:
        """Workers that run items."""
        return [worker for worker in self.all if worker.state == "ready"]

    def refresh(self) -> None:
        """Starts missing workers, also on new hosts, and sets hosts aside whose workers take too long to begin.

        Raises:
            GnnplaceError: no host takes part, or (as `ProcessLost`) none is left.
        """
        now_s = time.monotonic()
        if now_s - self._refreshed_s < _REFRESH_S:
            return
        self._refreshed_s = now_s
        for worker in list(self.beginning.values()):
            starting = worker.state == "starting"
            limit_s = self._options.begin_s if starting else self._options.prepare_s
            if now_s - worker.since_s > limit_s:
                reason = "; other work of the cluster may have its cores" if starting else ""
                self._refuse(worker.node, f"no worker was ready within {limit_s:.0f} s{reason}")
        known = {node.node_id: node for node in nodes() if node.cores}
        for worker in [each for each in self.all if not each.is_busy and each.node.node_id not in known]:
            self.remove(worker)
        present = Counter(worker.node.node_id for worker in self.all)
        able = [node for node_id, node in known.items() if node_id not in self._refused]
        for node in able:
            slots = self._options.per_host or node.cores
            for _ in range(slots - present[node.node_id]):
                self._start(node, node.cores / slots)
        if self.all:
            self._had_workers_s = now_s
        elif self._refused and not able:
            raise GnnplaceError(f"no host of the cluster can take part ({'; '.join(self._refused.values())})")
        elif now_s - self._had_workers_s > self._options.patience_s:
            raise ProcessLost(
                f"no host with a core has been in the cluster for {self._options.patience_s:.0f} s; ray status lists what is left"
            )

    def begun(self, reference: ObjectRef[Any]) -> None:
        """Takes the answer of a worker that is not ready yet, and starts its next stage."""
        import ray

        worker = self.beginning.pop(reference)
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, GnnplaceError):
                raise
            self._refuse(worker.node, str(error.cause))
            return
        except ray.exceptions.RayError as error:
            self.remove(worker)
            self._losses[worker.node.node_id] += 1
            if self._losses[worker.node.node_id] >= _MAX_LOSSES:
                reason = str(error).strip().split("\n")[0]
                self._refuse(worker.node, f"{_MAX_LOSSES} workers in turn ended before they were ready: {reason}")
            return
        if worker.state == "starting":
            objection = self._objection(answer)
            if objection:
                self._refuse(worker.node, objection)
                return
            self._prepare(worker)
        else:
            worker.state = "ready"
            self._losses[worker.node.node_id] = 0

    def restart(self, worker: Worker, *, kill: bool = False) -> None:
        """Prepares a lost worker again in the process that Ray restarts; `kill` ends a process that hangs."""
        import ray

        if kill:
            ray.kill(worker.actor, no_restart=False)
        if worker in self.all:
            self._prepare(worker)

    def remove(self, worker: Worker) -> None:
        """Removes a worker and ends its process."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(worker.actor)
        if worker in self.all:
            self.all.remove(worker)
        self.beginning = {reference: other for reference, other in self.beginning.items() if other is not worker}
        self._refreshed_s = -math.inf

    def close(self) -> None:
        """Ends all workers."""
        for worker in list(self.all):
            self.remove(worker)

    def _refuse(self, node: Node, reason: str) -> None:
        if node.node_id not in self._refused:
            self._refused[node.node_id] = f"{node.name}: {reason}"
            self._on_warning(f"host {node.name} takes no part: {reason}")
        for worker in [worker for worker in self.all if worker.node.node_id == node.node_id]:
            self.remove(worker)

    def _prepare(self, worker: Worker) -> None:
        worker.state, worker.since_s = "preparing", time.monotonic()
        self.beginning[worker.actor.prepare.options(max_task_retries=RESTART_RETRIES).remote()] = worker

    def _start(self, node: Node, cores: float) -> None:
        num_cpus = cores if cores < 1 else int(cores)
        options = {**host_options(node.node_id), "num_cpus": num_cpus, "max_restarts": -1, "max_task_retries": 0}
        worker = Worker(node, self._actor.options(**options).remote(*self._arguments))
        self.all.append(worker)
        self.beginning[worker.actor.describe.remote()] = worker
