"""The process that a host of a placed model has, as the driver sees it: started, looked after, started again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gnnplace.distributed.cluster import Node, host_options
from gnnplace.distributed.execution.host_worker import HostFacts, HostParts, HostWorker
from gnnplace.errors import GnnplaceError, ProcessLost

__all__ = ["HostProcess"]

_MORE_THREADS = 8  # than there are requests: for messages
_ANSWER_S = 10.0  # a process that says nothing for so long is taken for lost
_LOOK_S = 1.0


class HostProcess:
    """One actor on one host; after `start` it has its parts."""

    def __init__(self, host: Node, parts: HostParts, max_in_flight: int) -> None:
        self.host, self._parts = host, parts
        self._threads = max_in_flight + _MORE_THREADS
        self.actor: Any = None
        self._loading: Any = None

    @property
    def devices(self) -> Sequence[str]:
        """Names."""
        return list(self._parts.steps)

    def start(self) -> None:
        """Begins to start the process and to load the parts; `loaded` waits for it."""
        import ray

        options = {**host_options(self.host.node_id), "num_cpus": 0, "max_concurrency": self._threads}
        self.actor = ray.remote(HostWorker).options(**options).remote(self.host.name, self._parts)
        self._loading = self.actor.load.remote()

    def loaded(self) -> HostFacts:
        """What the host says of its parts.

        Raises:
            ProcessLost: the process ended, or its host is gone.
            GnnplaceError: a session cannot be created.
        """
        import ray

        while not ray.wait([self._loading], timeout=_LOOK_S)[0]:
            if not self.host_lives():
                raise ProcessLost(self.gone())
        try:
            found: HostFacts | GnnplaceError = ray.get(self._loading)
        except ray.exceptions.RayError as error:
            if not self.host_lives():
                raise ProcessLost(self.gone()) from None
            reason = str(error).strip().rpartition("\n")[2].strip()
            raise ProcessLost(
                f"the process of {', '.join(self.devices)} ended while it loaded its parts ({reason})"
            ) from None
        if isinstance(found, GnnplaceError):
            raise found
        return found

    def host_lives(self) -> bool:
        """The cluster has heard of it lately."""
        import ray

        return any(node["NodeID"] == self.host.node_id and node["Alive"] for node in ray.nodes())

    def gone(self) -> str:
        """What to say when the host is lost."""
        return (
            f"the host {self.host.name!r} is gone, and with it {', '.join(self.devices)}; "
            "bring it back and open the session again, or place the model on the others"
        )

    def kill(self) -> None:
        """Ends the process at once."""
        import ray

        if self.actor is not None and ray.is_initialized():
            ray.kill(self.actor)

    @staticmethod
    def lost(processes: Iterable[HostProcess]) -> list[HostProcess]:
        """Those that do not answer any more."""
        import ray

        asked = [(process, process.actor.alive.remote()) for process in processes]
        ray.wait([answer for _, answer in asked], num_returns=len(asked), timeout=_ANSWER_S)
        missing = []
        for process, answer in asked:
            try:
                ray.get(answer, timeout=0)
            except ray.exceptions.RayError:  # a time that is over is one too
                missing.append(process)
        return missing
