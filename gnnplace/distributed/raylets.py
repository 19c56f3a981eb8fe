"""Several raylets on this machine, each standing for a host of one core: for tests and benches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from gnnplace.distributed.cluster import connected, require_ray

_END_S = 10.0
_CHECKS = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
"""Ray's settings by which a killed host is known to be lost after about 2 s, by default after 15 s; a busy one has longer to answer."""


class LocalCluster:
    """Hosts that can be added and removed."""

    def __init__(self, store_bytes: int) -> None:
        """Starts `host1`; each host's object store has `store_bytes`."""
        from ray.cluster_utils import Cluster

        self._options = {"num_cpus": 1, "object_store_memory": store_bytes}
        head = {**self._options, "node_name": "host1", "include_dashboard": False, "_system_config": _CHECKS}
        before = set(psutil.Process().children())
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._own = set(psutil.Process().children()) - before
        self.address = str(self._cluster.address)
        """HOST:PORT of the head node."""
        self.shutdown: Callable[[], None] = self._cluster.shutdown
        """Ends all hosts."""

    def add(self, name: str) -> object:
        """Adds a host."""
        before = set(psutil.Process().children())
        host: object = self._cluster.add_node(node_name=name, **self._options)
        self._own |= set(psutil.Process().children()) - before
        return host

    def remove(self, host: object, *, at_once: bool = False) -> None:
        """Removes a host; with `at_once` its processes are killed, as by a power failure."""
        if host in self._cluster.list_all_nodes():
            self._cluster.remove_node(host, allow_graceful=not at_once)

    def processes(self) -> list[psutil.Process]:
        """The live processes of all hosts, those of workers included."""
        found = []
        for process in self._own:
            with suppress(psutil.NoSuchProcess):
                found += [process, *process.children(recursive=True)]
        return found


@contextmanager
def local_cluster(num_hosts: int, store_bytes: int = 100_000_000) -> Iterator[LocalCluster]:
    """A cluster of `host1`, `host2` and so on, to which this process is connected; no process of it outlives the block.

    Raises:
        MissingDependency: Ray is not installed.
    """
    require_ray()
    cluster = LocalCluster(store_bytes)
    try:
        for number in range(2, num_hosts + 1):
            cluster.add(f"host{number}")
        with connected(cluster.address):
            yield cluster
    finally:
        started = cluster.processes()
        cluster.shutdown()
        _, left = psutil.wait_procs(started, timeout=_END_S)
        for process in left:
            process.kill()
