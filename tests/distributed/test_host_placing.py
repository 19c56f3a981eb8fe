"""A model placed over the devices of several hosts, from the command line's text to outputs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.api import PlaceOptions, compare, place
from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts, MeasuredCost
from gnnplace.devices.spec import load_topology
from gnnplace.distributed.cluster import Host
from gnnplace.distributed.execution import DistributedSession
from gnnplace.distributed.host_devices import (
    HOST_BANDWIDTH_BYTES_PER_S,
    HOST_LATENCY_S,
    HostDevices,
    HostsTopology,
    devices_on_hosts,
)
from gnnplace.distributed.plugin import RayHosts
from gnnplace.errors import InvalidTopology, UnsupportedModel
from gnnplace.onnx_io.model import OnnxModel

HOSTS = "host1/cpu:0,host2/cpu:0"


@pytest.fixture(scope="module", autouse=True)
def cache_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache that is empty at first, so that the links between hosts are probed once for all tests."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GNNPLACE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def two_hosts() -> HostsTopology:
    own = load_topology("cpu:0")
    return HostsTopology("two", tuple(HostDevices(Host(name, name, 1, 0, {}), own) for name in ("a", "b")))


def test_every_host_describes_its_own_devices(cluster: Any) -> None:
    topology = devices_on_hosts(HOSTS).topology()
    (here,) = load_topology("cpu:0").devices
    assert topology.device_names == ("host1/cpu:0", "host2/cpu:0")
    assert {device.kind for device in topology.devices} == {here.kind}
    assert {device.memory_bytes for device in topology.devices} == {here.memory_bytes}
    assert topology.channel_names == ("host1->host2", "host2->host1")
    assert {(link.latency_s, link.bandwidth_bytes_per_s) for link in topology.links} == {
        (HOST_LATENCY_S, HOST_BANDWIDTH_BYTES_PER_S)
    }


def test_auto_means_all_devices_of_all_hosts(cluster: Any) -> None:
    own = load_topology("auto", with_gpus=False).device_names
    found = devices_on_hosts("auto").topology()
    assert found.device_names == tuple(f"{host}/{name}" for host in ("host1", "host2") for name in own)
    assert RayHosts(cluster.address).own("auto")
    assert not RayHosts(cluster.address).own("cpu:0")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("host1/cpu:0,cpu:1", "'cpu:1' names no host; name one for every device, such as host1/cpu:1"),
        ("host1/cpu:0,hots2/cpu:0", "the cluster has no host 'hots2', but host1, host2; did you mean 'host2'?"),
        ("host1/cpu:0,host2/cpu:99", "host 'host2': devices 'cpu:99': core 99 is not open to this process"),
    ],
)
def test_missing_devices_are_refused_in_one_line(cluster: Any, spec: str, message: str) -> None:
    with pytest.raises(InvalidTopology, match=message.replace("?", r"\?")):
        devices_on_hosts(spec)


def test_links_between_hosts_are_probed_once_and_stored(cluster: Any) -> None:
    first, second = (RayHosts(cluster.address).topology(HOSTS).links for _ in range(2))
    assert first == second
    ((latency_s, bandwidth_bytes_per_s),) = {(link.latency_s, link.bandwidth_bytes_per_s) for link in first}
    assert latency_s != HOST_LATENCY_S
    assert 1e-5 < latency_s < 1.0
    assert 1e6 < bandwidth_bytes_per_s < 1e11


def test_measurements_of_a_kind_serve_all_its_hosts_and_leave_the_links_between_hosts_unchanged() -> None:
    hosts = two_hosts()
    kind = hosts.parts[0].topology.devices[0].kind
    measured = CostStore({kind: KindCosts({"Relu 4": 2e-6}, 3e-6)}, {(kind, kind): LinkCosts(1e-9, 1e12)})
    calibrated = MeasuredCost(hosts.costs([measured, CostStore()])).calibrated(
        hosts.topology({("a", "b"): LinkCosts(0.5, 1e6)})
    )
    assert [device.dispatch_overhead_s for device in calibrated.devices] == [3e-6, 3e-6]
    assert [(link.latency_s, link.bandwidth_bytes_per_s) for link in calibrated.links] == [
        (0.5, 1e6),
        (HOST_LATENCY_S, HOST_BANDWIDTH_BYTES_PER_S),
    ]


def test_a_model_is_profiled_planned_measured_saved_and_run_over_hosts(
    cluster: Any, small_model: Callable[[str], OnnxModel], tmp_path: Path
) -> None:
    path = small_model("shared_weights").path
    options = PlaceOptions(planner="heft", measure=True, force=True, ray=cluster.address, dims={"N": 4})
    plan = place(path, HOSTS, options)
    assert plan.measured is not None
    labels = [run["label"] for run in plan.measured["runs"]]
    assert sorted(labels[:-1]) == ["annealing", "heft", "single"]
    assert labels[-1].startswith("one session on host")
    assert all(run["median_s"] > 0 and run["repeats"] >= 15 for run in plan.measured["runs"])
    latencies = {link.latency_s for link in plan.setup.topology.links}
    assert len(latencies) == 1
    assert latencies != {HOST_LATENCY_S}
    folder = plan.save(tmp_path / "placed")
    saved = json.loads((folder / "placement.json").read_text(encoding="utf-8"))
    assert saved["devices"] == HOSTS.split(",")
    with DistributedSession(folder, cluster.address) as session:
        (found,) = session.run(None, {"x": np.ones((4, 2), np.float32)})
    x, w, bias = np.ones((4, 2), np.float32), np.array([[1, 2], [3, 4]], np.float32), np.array([0.5, -0.5], np.float32)
    np.testing.assert_allclose(found, (x @ w + bias) @ w + bias)


def test_planners_are_compared_on_the_devices_of_hosts(cluster: Any) -> None:
    (row,) = compare("zoo:layered_200", HOSTS, ["heft"], PlaceOptions(ray=cluster.address))
    assert (row["feasible"], row["error"]) == (True, None)


def test_devices_of_hosts_need_a_cluster() -> None:
    with pytest.raises(InvalidTopology, match="host1/cpu:0 is on another host; name its cluster by --ray ADDRESS"):
        place("zoo:layered_200", HOSTS)


def test_measuring_several_input_sizes_over_hosts_is_refused(
    cluster: Any, small_model: Callable[[str], OnnxModel], tmp_path: Path
) -> None:
    options = PlaceOptions(planner="heft", measure=True, force=True, ray=cluster.address, dims={"N": (1, 4)})
    with pytest.raises(UnsupportedModel, match="one size of the inputs can be measured"):
        place(small_model("chain").path, HOSTS, options)
