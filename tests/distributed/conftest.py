"""A cluster on this machine: several raylets, each of which stands for a host."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnplace.distributed.raylets import LocalCluster, local_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing here runs without Ray."""
    if importlib.util.find_spec("ray") is None:
        for item in items:
            if "distributed" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="ray is not installed"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two hosts, `host1` and `host2`, of one core each, to which this process is connected.

    A test may add hosts; it removes them again.
    """
    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as environment:
        # workers import the functions of tests
        environment.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]))
        with local_cluster(num_hosts=2) as found:
            yield found


@pytest.fixture
def third_host(cluster: LocalCluster) -> Iterator[object]:
    """One more host of the cluster, `host3`, which the test may take away."""
    host = cluster.add("host3")
    yield host
    cluster.remove(host)
