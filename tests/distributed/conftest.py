"""A cluster on this machine: several raylets, each of which stands for a host."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gnnplace.distributed import connected

STORE_BYTES = 100_000_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing here runs without Ray."""
    if importlib.util.find_spec("ray") is None:
        for item in items:
            if "distributed" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="ray is not installed"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two hosts, `host1` and `host2`, of one core each, to which this process is connected; a `ray.cluster_utils.Cluster`.

    A test may add hosts; it removes them again.
    """
    from ray.cluster_utils import Cluster

    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    head = {"num_cpus": 1, "node_name": "host1", "object_store_memory": STORE_BYTES, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", paths)  # workers import the functions of tests
        started = Cluster(initialize_head=True, head_node_args=head)
        try:
            started.add_node(num_cpus=1, node_name="host2", object_store_memory=STORE_BYTES)
            with connected(started.address):
                yield started
        finally:
            started.shutdown()
    mine = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    _, left = psutil.wait_procs(mine, timeout=10)
    for process in left:
        process.kill()


@pytest.fixture
def third_host(cluster: Any) -> Iterator[Any]:
    """One more host of the cluster, `host3`, which the test may take away."""
    node = cluster.add_node(num_cpus=1, node_name="host3", object_store_memory=STORE_BYTES)
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)
