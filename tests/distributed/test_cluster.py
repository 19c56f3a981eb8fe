"""A connection to a cluster, and the hosts in it."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gnnplace.distributed import cluster as clusters
from gnnplace.distributed import connected, hosts
from gnnplace.distributed.calls import called_on_all
from gnnplace.distributed.cluster import machine_fingerprint, nodes
from gnnplace.distributed.raylets import LocalCluster
from gnnplace.distributed.training import _free_port
from gnnplace.errors import GnnplaceError, MissingDependency
from tests.patience import PATIENCE_S


def test_every_host_has_its_name_cores_and_fingerprint(cluster: LocalCluster) -> None:
    found = [(host.name, host.cores, host.fingerprint) for host in hosts()]
    assert found == [("host1", 1, machine_fingerprint()), ("host2", 1, machine_fingerprint())]


def test_a_nested_connection_shares_the_outer_connection(cluster: LocalCluster) -> None:
    with connected(cluster.address), connected("auto"):
        assert len(hosts()) == 2
    assert len(hosts()) == 2


def test_a_second_cluster_at_the_same_time_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(GnnplaceError, match=r"10\.0\.0\.1:6379: this process is connected to .* already"):
        connected("10.0.0.1:6379").__enter__()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        *((text, "expected HOST:PORT") for text in ("somewhere", "ray://10.0.0.1:10001", "10.0.0.1:99999")),
        ("127.0.0.1:9", r"127\.0\.0\.1:9: no cluster answers there"),
    ],
)
def test_an_address_that_is_malformed_or_without_a_cluster_is_refused(address: str, message: str) -> None:
    with pytest.raises(GnnplaceError, match=message):
        clusters._check_reachable(address)


def test_the_address_of_another_server_is_refused_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(GnnplaceError, match="no Ray cluster answers there within 1 s"):
            clusters._check_reachable(address)


def test_a_ray_that_does_not_start_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def start(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(GnnplaceError, match=r"^--ray local: The current node timed out during startup\."):
        clusters._init("local")


def test_hosts_are_sorted_by_the_numbers_in_their_names() -> None:
    assert sorted(["host10", "host2", "10.0.0.2", "a"], key=clusters._by_number) == ["10.0.0.2", "a", "host2", "host10"]


def test_a_connection_without_ray_raises_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r'pip install "gnnplace\[ray\]"'), connected("auto"):
        pass


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_functions_called_on_a_host_have_the_usual_priority(cluster: LocalCluster) -> None:
    import ray

    assert ray.get(ray.remote(niceness).options(num_cpus=0).remote()) > 0
    assert called_on_all([(node, niceness, ()) for node in nodes()]) == [0, 0]


def test_a_cluster_with_a_token_is_reached_by_its_address(tmp_path: Path) -> None:
    port = _free_port()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment |= {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    start += ["--num-cpus=1", "--include-dashboard=false", "--disable-usage-stats", "--node-name=alone"]
    with subprocess.Popen(start, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            wait_for_port(port)
            names = f"with connected('127.0.0.1:{port}'), connected('127.0.0.1:{port}'): print([host.name for host in hosts()])"
            client = [sys.executable, "-c", f"from gnnplace.distributed import connected, hosts\n{names}"]
            found = subprocess.run(
                client, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            assert found.stdout == "['alone']\n", found.stderr
        finally:
            below = psutil.Process(started.pid).children(recursive=True)
            started.terminate()
            started.wait(PATIENCE_S)
            for process in psutil.wait_procs(below, timeout=5)[1]:
                process.kill()


def wait_for_port(port: int) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        time.sleep(0.1)
    raise AssertionError("the cluster does not begin")
