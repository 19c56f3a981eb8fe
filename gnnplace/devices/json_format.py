"""Topologies as files: `gnnplace.topology/1`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology, shown
from gnnplace.files import read_json, write_text

__all__ = ["FORMAT", "read_topology", "topology_from_json", "topology_to_json", "write_topology"]

FORMAT = "gnnplace.topology/1"

_NUMBER = (int, float)
_DEVICE_KEYS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "kind": (str,),
    "memory_bytes": (int, type(None)),
    "peak_flops_per_s": (dict,),
    "memory_bandwidth_bytes_per_s": (*_NUMBER, type(None)),
    "dispatch_overhead_s": _NUMBER,
    "segment_overhead_s": _NUMBER,
    "intake_bandwidth_bytes_per_s": (*_NUMBER, type(None)),
    "slots": (int,),
}
_LINK_KEYS: Mapping[str, tuple[type, ...]] = {
    "source": (str,),
    "target": (str,),
    "latency_s": _NUMBER,
    "bandwidth_bytes_per_s": _NUMBER,
    "channel": (str, type(None)),
}


def read_topology(path: Path) -> Topology:
    """The topology in a file, named after it.

    >>> from gnnplace.files import temporary_folder
    >>> with temporary_folder() as folder:
    ...     path = folder / "mine.json"
    ...     _ = path.write_text('{"format": "gnnplace.topology/1", "devices": [{"name": "a"}, {"name": "b"}]}')
    ...     read_topology(path).name, read_topology(path).device_names
    ('mine', ('a', 'b'))

    Raises:
        InvalidTopology: the file is missing, is no JSON, or breaks a rule of the format.
    """
    return topology_from_json(read_json(path, InvalidTopology), str(path), path.stem)


def write_topology(topology: Topology, path: Path) -> None:
    """Writes a topology; `read_topology` gives the same devices and links back.

    >>> from gnnplace.files import temporary_folder
    >>> pair = Topology("pair", (Device("a", memory_bytes=2**30), Device("b")), (Link("a", "b", 1e-6, 1e9),))
    >>> with temporary_folder() as folder:
    ...     write_topology(pair, folder / "pair.json")
    ...     read_topology(folder / "pair.json") == pair
    True
    """
    write_text(path, json.dumps(topology_to_json(topology), indent=1) + "\n")


def topology_from_json(document: Any, where: str = "topology", name: str = "topology") -> Topology:
    """The topology that a parsed `gnnplace.topology/1` document describes; `where` is named in errors.

    Only the name of a device is required: absent memory is unlimited, an absent kind is the name. A key that the format
    does not have is refused, since a misspelt capacity would otherwise be read as an unlimited one.

    >>> topology_from_json({"format": FORMAT, "devices": [{"name": "a"}], "links": []}).device_names
    ('a',)
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InvalidTopology(f'{where}: "format" is {shown(found)}; expected {FORMAT!r}')
    devices = [_checked(row, _DEVICE_KEYS, ("name",), "device", where) for row in _rows(document, "devices", where)]
    links = [
        _checked(row, _LINK_KEYS, ("source", "target", "latency_s", "bandwidth_bytes_per_s"), "link", where)
        for row in _rows(document, "links", where)
    ]
    try:
        return Topology(name, tuple(_device(row) for row in devices), tuple(_link(row) for row in links))
    except InvalidTopology as error:
        raise InvalidTopology(f"{where}: {error}") from None


def topology_to_json(topology: Topology) -> dict[str, Any]:
    """The `gnnplace.topology/1` document of a topology.

    >>> document = topology_to_json(Topology("one", (Device("a", kind="k40", memory_bytes=2**30),)))
    >>> document["format"], document["devices"][0]["memory_bytes"], document["links"]
    ('gnnplace.topology/1', 1073741824, [])
    """
    return {
        "format": FORMAT,
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "peak_flops_per_s": dict(device.peak_flops_per_s),
                "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
                "dispatch_overhead_s": device.dispatch_overhead_s,
                **_segment_costs(device),
                "slots": device.slots,
            }
            for device in topology.devices
        ],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "latency_s": link.latency_s,
                "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s,
                "channel": link.channel,
            }
            for link in topology.links
        ],
    }


def _segment_costs(device: Device) -> dict[str, float]:
    """Of devices that were measured; published figures say nothing of them."""
    costs = {
        "segment_overhead_s": device.segment_overhead_s,
        "intake_bandwidth_bytes_per_s": device.intake_bandwidth_bytes_per_s,
    }
    return {key: value for key, value in costs.items() if value}


def _device(row: Mapping[str, Any]) -> Device:
    bandwidth, intake = (row.get(f"{what}_bandwidth_bytes_per_s") for what in ("memory", "intake"))
    return Device(
        name=row["name"],
        kind=row.get("kind", ""),
        memory_bytes=row.get("memory_bytes"),
        peak_flops_per_s={dtype: float(rate) for dtype, rate in row.get("peak_flops_per_s", {}).items()},
        memory_bandwidth_bytes_per_s=None if bandwidth is None else float(bandwidth),
        dispatch_overhead_s=float(row.get("dispatch_overhead_s", 0.0)),
        segment_overhead_s=float(row.get("segment_overhead_s", 0.0)),
        intake_bandwidth_bytes_per_s=None if intake is None else float(intake),
        slots=row.get("slots", 1),
    )


def _link(row: Mapping[str, Any]) -> Link:
    return Link(
        row["source"],
        row["target"],
        float(row["latency_s"]),
        float(row["bandwidth_bytes_per_s"]),
        row.get("channel"),
    )


def _rows(document: Mapping[str, Any], key: str, where: str) -> list[Any]:
    rows = document.get(key, [])
    if not isinstance(rows, list):
        raise InvalidTopology(f"{where}: {key!r} is {shown(rows)}; expected a list of objects")
    return rows


def _checked(
    row: Any, keys: Mapping[str, tuple[type, ...]], required: tuple[str, ...], what: str, where: str
) -> Mapping[str, Any]:
    """The row, once every key is known, every required one is there and every value has its type."""
    if not isinstance(row, dict):
        raise InvalidTopology(f"{where}: a {what} is {shown(row)}; expected an object")
    ends = f"{row.get('source')} -> {row.get('target')}" if what == "link" else row.get("name")
    label = f"{what} {shown(ends)}"
    for key in required:
        if key not in row:
            raise InvalidTopology(f"{where}: {label} has no {key!r}, which is required")
    for key, value in row.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(keys)}"
            raise InvalidTopology(f"{where}: {label} has the unknown key {key!r}; {hint}")
        if not _has_type(value, keys[key]):
            expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in keys[key])
            raise InvalidTopology(f"{where}: {key!r} of {label} is {shown(value)}; expected {expected}")
    for dtype, rate in row.get("peak_flops_per_s", {}).items():
        if not _has_type(rate, _NUMBER):
            raise InvalidTopology(
                f"{where}: peak_flops_per_s[{dtype!r}] of {label} is {shown(rate)}; expected a number"
            )
    return row


def _has_type(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
