"""Measured costs: their file, and their precedence over the roofline."""

import json
from pathlib import Path

import numpy as np
import pytest

from gnnplace.cost.cost_model import CostModel, Efficiency
from gnnplace.cost.measured import (
    FORMAT,
    CostStore,
    KindCosts,
    LinkCosts,
    MeasuredCost,
    SegmentCosts,
    read_costs,
    write_costs,
)  # fmt: skip
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.graph.op_graph import Op, OpGraph

STORE = CostStore(
    {
        "k": KindCosts({"relu": 1e-3, "conv": 2e-3}, dispatch_overhead_s=7e-6),
        "f": KindCosts({}, efficiency={"other": Efficiency(0.5, 0.5)}, launch_s=3e-6),
    },
    {("k", "f"): LinkCosts(1e-5, 2e9, 1e-6)},
    {("k:7", "f:0"): LinkCosts(3e-5, 1e9)},
)
DEVICES = Device("k:0", "k", dispatch_overhead_s=1.0), Device("f:0", "f", None, {"float32": 1e9}, 1e9, 1.0)
TOPOLOGY = Topology("t", DEVICES, (Link("k:0", "f:0", 1.0, 1.0, "bus"), Link("f:0", "k:0", 1.0, 1.0)))


def test_a_written_store_is_read_back_equal(tmp_path: Path) -> None:
    write_costs(STORE, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == STORE
    write_costs(CostStore(), tmp_path / "empty.json")
    assert read_costs(tmp_path / "empty.json") == CostStore()


def test_ops_take_stated_seconds_else_measured_ones_else_the_fitted_roofline() -> None:
    relu, conv = Op("a", signature="relu", flops=1e6), Op("b", signature="conv", time_s={"k:0": 5.0})
    graph = OpGraph.build("g", [relu, conv, Op("c", signature="", time_s={"k": 4.0}, flops=1e6)])
    cost = MeasuredCost(STORE)
    assert isinstance(cost, CostModel)
    # 1e6 FLOP at half of 1e9 per second are 2 ms; the fitted launch is 3 us.
    expected = [[1e-3, 2.003e-3], [5.0, 3e-6], [4.0, 2.003e-3]]
    assert cost.op_time_s(graph, TOPOLOGY) == pytest.approx(np.array(expected))


def test_an_op_without_measured_seconds_on_a_device_without_rates_is_an_error() -> None:
    graph = OpGraph.build("g", [Op("a", signature="new", flops=1.0)])
    with pytest.raises(InvalidTopology, match="'k:0' states no peak_flops_per_s"):
        MeasuredCost(STORE).op_time_s(graph, TOPOLOGY)


def test_an_op_takes_forever_where_it_may_not_run_even_with_measured_seconds() -> None:
    graph = OpGraph.build("g", [Op("a", signature="relu", devices=("f",))])
    assert MeasuredCost(STORE).op_time_s(graph, TOPOLOGY)[0].tolist() == [np.inf, 3e-6]


def test_calibration_replaces_only_measured_costs() -> None:
    topology = MeasuredCost(STORE).calibrated(TOPOLOGY)
    assert topology.dispatch_overhead_s.tolist() == [7e-6, pytest.approx(1.0 + 9e-6, abs=1e-9)]
    assert topology.links == (Link("k:0", "f:0", 1e-5 - (1e-5 - 1e-6), 2e9, "bus"), Link("f:0", "k:0", 1.0, 1.0))


def test_segment_costs_calibrate_the_overhead_and_the_intake_bandwidth_of_a_device() -> None:
    store = CostStore({"k": KindCosts(segment=SegmentCosts(overhead_s=3e-6, intake_s_per_byte=5e-10))})
    device = MeasuredCost(store).calibrated(TOPOLOGY).devices[0]
    assert (device.segment_overhead_s, device.intake_bandwidth_bytes_per_s) == (3e-6, pytest.approx(2e9))
    free = CostStore({"k": KindCosts(segment=SegmentCosts(3e-6, 0.0))})
    assert MeasuredCost(free).calibrated(TOPOLOGY).devices[0].intake_bandwidth_bytes_per_s is None


def test_costs_of_some_devices_leave_out_other_devices_and_their_links() -> None:
    others = CostStore(STORE.kinds, STORE.links)
    assert STORE.of_devices(TOPOLOGY.devices) == others  # k:7 is none of these devices
    assert STORE.of_devices([*TOPOLOGY.devices, Device("k:7", "k")]) == STORE
    assert STORE.of_devices([Device("k:7", "k")]) == CostStore({"k": STORE.kinds["k"]})


def cores(kind: str = "k") -> Topology:
    """Three devices of a kind, linked with each other."""
    names = ("cpu:0", "cpu:1", "cpu:2")
    links = tuple(Link(a, b, 1.0, 1.0) for a in names for b in names if a != b)
    return Topology("cores", tuple(Device(name, kind) for name in names), links)


def test_a_link_has_the_costs_of_its_devices_else_those_of_their_kinds() -> None:
    near, far, usual = LinkCosts(1e-6, 1e10), LinkCosts(9e-6, 1e9), LinkCosts(2e-6, 5e9)
    between = {("cpu:0", "cpu:1"): near, ("cpu:1", "cpu:2"): far}
    found = MeasuredCost(CostStore({}, {("k", "k"): usual}, between)).calibrated(cores())
    costs = {(link.source, link.target): LinkCosts(link.latency_s, link.bandwidth_bytes_per_s) for link in found.links}
    assert (costs["cpu:0", "cpu:1"], costs["cpu:1", "cpu:2"]) == (near, far)
    assert {costs[ends] for ends in costs.keys() - between.keys()} == {usual}


def test_what_waking_takes_on_all_links_to_a_device_is_paid_once_after_each_wait() -> None:
    near, far, unknown = LinkCosts(10e-6, 1e10, 2e-6), LinkCosts(30e-6, 1e9, 5e-6), LinkCosts(7e-6, 1e9)
    links = {("cpu:1", "cpu:0"): near, ("cpu:2", "cpu:0"): far, ("cpu:0", "cpu:1"): near, ("cpu:2", "cpu:1"): unknown}
    store = CostStore({"k": KindCosts(dispatch_overhead_s=4e-6)}, {("k", "k"): near}, links)
    found = MeasuredCost(store).calibrated(cores())
    assert found.dispatch_overhead_s.tolist() == pytest.approx([12e-6, 4e-6, 12e-6])
    latency_s = {(link.source, link.target): link.latency_s for link in found.links}
    assert latency_s["cpu:1", "cpu:0"] == pytest.approx(2e-6)
    # With the 8 us of waking that are in the overhead, a hand-over of one value takes the 30 us that were measured.
    assert latency_s["cpu:2", "cpu:0"] == pytest.approx(22e-6)
    assert latency_s["cpu:0", "cpu:1"] == pytest.approx(10e-6)
    assert latency_s["cpu:2", "cpu:1"] == pytest.approx(7e-6)


def test_devices_of_unknown_kinds_get_no_costs_from_equal_names() -> None:
    store = CostStore({}, {("k", "k"): LinkCosts(2e-6, 5e9)}, {("cpu:0", "cpu:1"): LinkCosts(1e-6, 1e10)})
    assert MeasuredCost(store).calibrated(cores("elsewhere")) == cores("elsewhere")


def test_a_file_without_links_between_devices_is_read(tmp_path: Path) -> None:
    write_costs(STORE, tmp_path / "costs.json")
    text = (tmp_path / "costs.json").read_text()
    (tmp_path / "costs.json").write_text(text.replace("device_links", "other"))
    assert read_costs(tmp_path / "costs.json") == CostStore(STORE.kinds, STORE.links)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([], "format"),
        ({"format": "gnnplace.graph/1"}, "format"),
        ({"format": FORMAT, "kinds": []}, "expected an object"),
        ({"format": FORMAT, "device_links": {}}, "expected a list of objects"),
        ({"format": FORMAT, "device_links": [{"source": "a", "target": "b"}]}, "'latency_s' is None"),
        ({"format": FORMAT, "kinds": {"k": 3}}, "'k' is 3; expected an object"),
        ({"format": FORMAT, "kinds": {"k": {"op_s": {"relu": float("nan")}}}}, "'relu' is nan"),
        ({"format": FORMAT, "kinds": {"k": {"op_s": {"relu": -1}}}}, "'relu' is -1"),
        ({"format": FORMAT, "kinds": {"k": {"op_s": {"relu": "1"}}}}, "'relu' is '1'"),
        ({"format": FORMAT, "kinds": {"k": {"efficiency": {"other": {"compute": 0.5}}}}}, "'bandwidth' is None"),
        ({"format": FORMAT, "links": [{"source_kind": "k", "latency_s": 0}]}, "'target_kind' is None"),
        (
            {
                "format": FORMAT,
                "device_links": [{"source": "a", "target": "b", "latency_s": 0, "bandwidth_bytes_per_s": 0}],
            },
            "the link a -> b has a bandwidth of zero",
        ),
    ],
)
def test_a_broken_store_is_refused_in_one_line_that_names_the_file(
    broken: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(broken))
    with pytest.raises(InvalidTopology) as error:
        read_costs(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
