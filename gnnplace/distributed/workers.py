"""The workers of a pool: one actor per slot of every host, replaced when they are lost, also by those of hosts that join.

Nothing is restarted by Ray itself: what a lost worker had must go elsewhere, and only the pool knows what that was.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gnnplace.distributed.cluster import Node, host_options, machine_fingerprint, nodes
from gnnplace.errors import GnnplaceError, ProcessLost

__all__ = ["Role", "Staff", "StaffOptions", "Worker"]


if TYPE_CHECKING:
    from ray import ObjectRef


_LOOK_S = 0.5
_STILLBORN = 3


@dataclass(frozen=True)
class StaffOptions:
    """Where workers are, and how long is waited for them."""

    per_host: int | None = None
    """Workers of each host, which share its cores; None: one for each core."""
    begin_s: float = 60.0
    """For a worker until it answers at all; a host whose workers do not is set aside."""
    prepare_s: float = 300.0
    """From then on until it is ready, likewise."""
    patience_s: float = 60.0
    """For another host when none is left."""


@dataclass(frozen=True)
class Role:
    """What every worker is."""

    make: Callable[..., Callable[[Any], Any]]
    """Called once by each worker, with the arguments; what it gives is called with every item. A `GnnplaceError` sets the host aside."""
    arguments: Sequence[object] = ()
    """Sent to each host once."""
    objection: Callable[[Mapping[str, Any]], str] = lambda fingerprint: ""
    """Why a host with this fingerprint may not take part; empty where it may."""


@dataclass(eq=False)
class Worker:
    """An actor on a host; idle once it is ready."""

    node: Node
    actor: Any
    state: Literal["asked", "preparing", "ready"] = "asked"
    is_busy: bool = False
    since_s: float = field(default_factory=time.monotonic)


class _Actor:
    """In the worker's process."""

    def __init__(self, make: Callable[..., Callable[[Any], Any]], *arguments: Any) -> None:
        self._make, self._arguments = make, arguments

    def describe(self) -> dict[str, Any]:
        return machine_fingerprint()

    def prepare(self) -> None:
        self._work = self._make(*self._arguments)

    def work(self, item: Any) -> Any:
        return self._work(item)


class Staff:
    """The workers that there are now."""

    def __init__(self, role: Role, options: StaffOptions, on_warning: Callable[[str], None]) -> None:
        import ray

        self.workers: list[Worker] = []
        self.beginning: dict[ObjectRef[Any], Worker] = {}
        """Those that are not ready, by what they will answer."""
        self.set_aside: dict[str, str] = {}
        """Why, by the names of the hosts that do not take part."""
        self._options, self._objection, self._on_warning = options, role.objection, on_warning
        self._actor = ray.remote(_Actor)
        self._given = (role.make, *(ray.put(argument) for argument in role.arguments))
        self._refused: set[str] = set()
        self._stillborn: Counter[str] = Counter()
        self._looked_s = -math.inf
        self._staffed_s = time.monotonic()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Those with a worker that is ready."""
        return tuple(dict.fromkeys(worker.node.name for worker in self.workers if worker.state == "ready"))

    @property
    def idle(self) -> list[Worker]:
        """Workers that may be given something."""
        return [worker for worker in self.workers if worker.state == "ready" and not worker.is_busy]

    def look(self) -> None:
        """Starts the workers that are missing, gives up those that do not begin, and looks for hosts that are new.

        Raises:
            GnnplaceError: no host takes part.
            ProcessLost: there are no hosts any more.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for worker in list(self.beginning.values()):
            is_asked = worker.state == "asked"
            limit_s = self._options.begin_s if is_asked else self._options.prepare_s
            if now_s - worker.since_s > limit_s:
                why = "; other work of the cluster may have its cores" if is_asked else ""
                self.refuse(worker.node, f"no worker was ready within {limit_s:.0f} s{why}")
        known = nodes()
        alive = {node.node_id for node in known}
        for worker in [worker for worker in self.idle if worker.node.node_id not in alive]:
            self.lose(worker)
        present = Counter(worker.node.node_id for worker in self.workers)
        for node in known:
            slots = self._options.per_host or node.cores
            if node.node_id not in self._refused and node.cores:
                for _ in range(slots - present[node.node_id]):
                    self._start(node, node.cores / slots)
        if self.workers:
            self._staffed_s = now_s
        elif self.set_aside and all(node.node_id in self._refused or not node.cores for node in known):
            why = "; ".join(f"{host}: {reason}" for host, reason in self.set_aside.items())
            raise GnnplaceError(f"no host of the cluster can take part ({why})")
        elif now_s - self._staffed_s > self._options.patience_s:
            raise ProcessLost(
                f"no host with a core has been in the cluster for {self._options.patience_s:.0f} s; ray status says what is left"
            )

    def begun(self, reference: ObjectRef[Any]) -> None:
        """Takes the answer of a worker that is not ready yet."""
        import ray

        worker = self.beginning.pop(reference)
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, GnnplaceError):
                raise
            self.refuse(worker.node, str(error.cause))
            return
        except ray.exceptions.RayError as error:
            self.lose(worker)
            self._stillborn[worker.node.node_id] += 1
            if self._stillborn[worker.node.node_id] >= _STILLBORN:
                said = str(error).strip().split("\n")[0]
                self.refuse(worker.node, f"{_STILLBORN} workers in turn ended before they were ready: {said}")
            return
        if worker.state == "asked":
            objection = self._objection(answer)
            if objection:
                self.refuse(worker.node, objection)
                return
            worker.state, worker.since_s = "preparing", time.monotonic()
            self.beginning[worker.actor.prepare.remote()] = worker
        else:
            worker.state = "ready"
            self._stillborn[worker.node.node_id] = 0

    def lose(self, worker: Worker) -> None:
        """It takes no part any more; its process is killed if there is one."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(worker.actor)
        if worker in self.workers:
            self.workers.remove(worker)
        self.beginning = {reference: other for reference, other in self.beginning.items() if other is not worker}
        self._looked_s = -math.inf

    def refuse(self, node: Node, reason: str) -> None:
        """The host takes no part, and a warning says why."""
        if node.node_id not in self._refused:
            self._refused.add(node.node_id)
            self.set_aside[node.name] = reason
            self._on_warning(f"host {node.name} takes no part: {reason}")
        for worker in [worker for worker in self.workers if worker.node.node_id == node.node_id]:
            self.lose(worker)

    def close(self) -> None:
        """Ends all workers."""
        for worker in list(self.workers):
            self.lose(worker)

    def _start(self, node: Node, cores: float) -> None:
        actor: Any = self._actor.options(
            **host_options(node.node_id),
            num_cpus=cores if cores < 1 else int(cores),
            max_restarts=0,
            max_task_retries=0,
        ).remote(*self._given)
        worker = Worker(node, actor)
        self.workers.append(worker)
        self.beginning[actor.describe.remote()] = worker
