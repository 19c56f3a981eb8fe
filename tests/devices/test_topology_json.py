"""Topology files: round trips, and errors in one line."""

import json
from pathlib import Path

import pytest

from gnnplace.devices.json_format import FORMAT, read_topology, topology_from_json, topology_to_json
from gnnplace.devices.presets import preset
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology

DEVICE = {"name": "a"}
LINK = {"source": "a", "target": "b", "latency_s": 1e-6, "bandwidth_bytes_per_s": 1e9}


def document(*devices: object, links: object = ()) -> dict[str, object]:
    return {"format": FORMAT, "devices": list(devices), "links": list(links) if isinstance(links, tuple) else links}


BUS = (Link("a", "b", 0.0, 1.5, "bus"), Link("b", "a", 1e-6, 2.0, "bus"))


@pytest.mark.parametrize(
    "topology",
    [preset("k40x4"), preset("haswellx2"), Topology("bus", (Device("a"), Device("b", memory_bytes=0)), BUS)],
    ids=lambda topology: topology.name,
)
def test_a_written_topology_is_read_back_equal(topology: Topology, tmp_path: Path) -> None:
    (tmp_path / f"{topology.name}.json").write_text(json.dumps(topology_to_json(topology)))
    assert read_topology(tmp_path / f"{topology.name}.json") == topology


def test_the_document_has_exactly_the_keys_of_the_contract() -> None:
    written = topology_to_json(preset("k40"))
    assert set(written) == {"format", "devices", "links"}
    assert set(written["devices"][0]) == {
        "name", "kind", "memory_bytes", "peak_flops_per_s", "memory_bandwidth_bytes_per_s", "dispatch_overhead_s", "slots",
    }  # fmt: skip
    assert set(written["links"][0]) == {"source", "target", "latency_s", "bandwidth_bytes_per_s", "channel"}


def test_measured_costs_of_segments_survive_the_round_trip() -> None:
    device = Device("a", segment_overhead_s=5e-5, intake_bandwidth_bytes_per_s=2e10)
    written = topology_to_json(Topology("t", (device,)))
    assert written["devices"][0]["segment_overhead_s"] == 5e-5
    assert topology_from_json(written).devices == (device,)


def test_a_device_needs_only_its_name() -> None:
    device = topology_from_json(document(DEVICE)).devices[0]
    assert device == Device("a", kind="a", memory_bytes=None, dispatch_overhead_s=0.0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (3, "'format"),
        ({"format": "gnnplace.graph/1"}, "expected 'gnnplace.topology/1'"),
        (document(), "has no device"),
        ({"format": FORMAT, "devices": {"a": 1}}, "expected a list of objects"),
        (document("a"), "expected a list of objects"),
        (document({"kind": "k40"}), "has no 'name'"),
        (document({"name": 3}), "'name' of device 3 is 3; expected str"),
        (document({"name": "a", "memory_bytes": 1.5}), "'memory_bytes' of device 'a' is 1.5; expected int or null"),
        (document({"name": "a", "memory_bytes": True}), "is True"),
        (document({"name": "a", "memory_bytes": -1}), "-1 bytes"),
        (document({"name": "a", "memory_byte": 1}), "did you mean 'memory_bytes'?"),
        (document({"name": "a", "peak_flops_per_s": 1e12}), "expected dict"),
        (document({"name": "a", "peak_flops_per_s": {"float32": "fast"}}), "'fast'; expected a number"),
        (document({"name": "a", "peak_flops_per_s": {"float32": float("nan")}}), "is nan"),
        (document({"name": "a", "memory_bandwidth_bytes_per_s": 0}), "above zero"),
        (document({"name": "a", "dispatch_overhead_s": float("nan")}), "dispatch_overhead_s is nan"),
        (document({"name": "a", "dispatch_overhead_s": 10**400}), "dispatch_overhead_s is inf"),
        (document({"name": "a", "peak_flops_per_s": {"float32": 10**400}}), "is inf; a rate is finite"),
        (document({"name": "a", "segment_overhead_s": -1}), "segment_overhead_s is -1"),
        (document({"name": "a", "intake_bandwidth_bytes_per_s": 0}), "intake_bandwidth_bytes_per_s is 0"),
        (document({"name": "a", "slots": 2}), "2 slots"),
        (document(DEVICE, DEVICE), "two devices are named 'a'"),
        (document(DEVICE, links=(LINK,)), "names the device 'b'"),
        (document(DEVICE, {"name": "b"}, links=(LINK, LINK)), "two links lead from 'a' to 'b'"),
        (document(DEVICE, links=({**LINK, "target": "a"},)), "link to itself"),
        (document(DEVICE, {"name": "b"}, links=({"source": "a", "target": "b"},)), "has no 'latency_s'"),
        (document(DEVICE, {"name": "b"}, links=({**LINK, "bandwidth_bytes_per_s": 0},)), "above zero"),
        (document(DEVICE, {"name": "b"}, links=({**LINK, "latency_s": float("inf")},)), "latency_s is inf"),
    ],
)
def test_a_broken_document_is_refused_in_one_line_that_names_the_file(broken: object, message: str) -> None:
    with pytest.raises(InvalidTopology) as error:
        topology_from_json(broken, "rack.json")
    assert str(error.value).startswith("rack.json: ")
    assert message.lstrip("'") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, "", '{"format": "gnnplace.topology/1", "dev', "\x89PNG"])
def test_a_missing_or_truncated_file_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "rack.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidTopology, match=r"rack\.json"):
        read_topology(path)
