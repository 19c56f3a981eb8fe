"""Seconds that were measured on real devices, by op signature, so that other models reuse them."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.cost.cost_model import Efficiency, RooflineCost, stated_time_s
from gnnplace.devices.real_names import host_of
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology, shown
from gnnplace.files import read_json, write_text
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import allowed_mask

__all__ = [
    "FORMAT",
    "CostStore",
    "KindCosts",
    "LinkCosts",
    "MeasuredCost",
    "SegmentCosts",
    "median_links",
    "read_costs",
    "write_costs",
]

_Key = TypeVar("_Key", bound=Hashable)

FORMAT = "gnnplace.costs/1"


@dataclass(frozen=True)
class KindCosts:
    """What was measured on devices of one kind."""

    op_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by op signature."""
    dispatch_overhead_s: float | None = None
    segment: SegmentCosts | None = None
    """What a segment costs besides its ops; None: not measured."""
    efficiency: Mapping[str, Efficiency] | None = None
    """The roofline fitted to `op_s`, by op class; None: not fitted."""
    launch_s: float | None = None
    """Of that fit."""


@dataclass(frozen=True)
class SegmentCosts:
    """What it takes to begin a segment.

    >>> known = CostStore({"core": KindCosts(segment=SegmentCosts(overhead_s=3e-6, intake_s_per_byte=5e-10))})
    >>> core = MeasuredCost(known).calibrated(Topology("one", (Device("cpu:0", "core"),))).devices[0]
    >>> core.segment_overhead_s, round(core.intake_bandwidth_bytes_per_s)
    (3e-06, 2000000000)
    """

    overhead_s: float
    intake_s_per_byte: float
    """For the copies that it waits for, besides what their links take."""


@dataclass(frozen=True)
class LinkCosts:
    """What was measured between two devices, or as the median between devices of two kinds."""

    latency_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class CostStore:
    """Measured costs of one machine: by device kind, by pair of kinds and by pair of devices, each (source, target)."""

    kinds: Mapping[str, KindCosts] = field(default_factory=dict)
    links: Mapping[tuple[str, str], LinkCosts] = field(default_factory=dict)
    """By kinds."""
    device_links: Mapping[tuple[str, str], LinkCosts] = field(default_factory=dict)
    """By names, such as `cpu:0` and `cuda:1`; their kinds are in `links` too."""

    def of_devices(self, devices: Iterable[Device]) -> CostStore:
        """What is known of these devices, of others of their kinds, and between them.

        >>> store = CostStore({"core": KindCosts({"Relu 4": 2e-6}), "gpu": KindCosts()})
        >>> list(store.of_devices([Device("cpu:0", "core")]).kinds)
        ['core']
        """
        kind_of = {device.name: device.kind for device in devices}
        kinds = set(kind_of.values())
        return CostStore(
            {kind: costs for kind, costs in self.kinds.items() if kind in kinds},
            {ends: costs for ends, costs in self.links.items() if set(ends) <= kinds},
            {ends: costs for ends, costs in self.device_links.items() if set(ends) <= kind_of.keys()},
        )


@dataclass(frozen=True)
class MeasuredCost:
    """Stated seconds first, then measured ones where the op's signature is known, else the roofline, fitted if it was.

    >>> from gnnplace.graph.op_graph import Op
    >>> known = KindCosts({"Relu 4": 2e-6}, dispatch_overhead_s=1e-5, segment=SegmentCosts(3e-6, 0.0))
    >>> cost, core = MeasuredCost(CostStore({"core": known})), Topology("one", (Device("cpu:0", "core"),))
    >>> cost.op_time_s(OpGraph.build("g", [Op("a", "Relu", signature="Relu 4")]), core).tolist()
    [[2e-06]]
    >>> cost.calibrated(core).devices[0].dispatch_overhead_s, cost.calibrated(core).devices[0].segment_overhead_s
    (1e-05, 3e-06)
    """

    store: CostStore
    roofline: RooflineCost = field(default_factory=RooflineCost)

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        Raises:
            InvalidTopology: a device lacks a rate that is needed for an op whose time nobody knows.
        """
        allowed = allowed_mask(graph, topology)
        columns = []
        for index, device in enumerate(topology.devices):
            costs = self.store.kinds.get(device.kind, KindCosts())
            measured = np.array([costs.op_s.get(signature, np.nan) for signature in graph.signatures], dtype=np.float64)
            stated = stated_time_s(graph, device)
            known = np.where(np.isnan(stated), measured, stated)
            columns.append(self._fitted(costs).completed(graph, device, known, allowed[:, index]))
        return np.stack(columns, axis=1)

    def calibrated(self, topology: Topology) -> Topology:
        """The topology with the measured dispatch overheads, latencies and bandwidths.

        A link has the costs between its two devices where they are known, else those between their kinds. Where nothing is known of
        the kinds, the devices are of another machine, whatever their names.
        """
        kind_of = {device.name: device.kind for device in topology.devices}
        return dataclasses.replace(
            topology,
            devices=tuple(self._device(device) for device in topology.devices),
            links=tuple(self._link(link, kind_of) for link in topology.links),
        )

    def _fitted(self, costs: KindCosts) -> RooflineCost:
        if costs.efficiency is None:
            return self.roofline
        launch = {} if costs.launch_s is None else {"launch_s": costs.launch_s, "host_launch_s": costs.launch_s}
        return dataclasses.replace(self.roofline, efficiency={**self.roofline.efficiency, **costs.efficiency}, **launch)

    def _device(self, device: Device) -> Device:
        costs = self.store.kinds.get(device.kind, KindCosts())
        if costs.dispatch_overhead_s is not None:
            device = dataclasses.replace(device, dispatch_overhead_s=costs.dispatch_overhead_s)
        if costs.segment is not None:
            per_byte = costs.segment.intake_s_per_byte
            device = dataclasses.replace(
                device,
                segment_overhead_s=costs.segment.overhead_s,
                intake_bandwidth_bytes_per_s=1 / per_byte if per_byte else None,
            )
        return device

    def _link(self, link: Link, kind_of: Mapping[str, str]) -> Link:
        of_kinds = self.store.links.get((kind_of[link.source], kind_of[link.target]))
        if of_kinds is None or host_of(link.source) != host_of(link.target):
            return link  # between hosts it is the network that counts
        costs = self.store.device_links.get((link.source, link.target), of_kinds)
        return dataclasses.replace(link, latency_s=costs.latency_s, bandwidth_bytes_per_s=costs.bandwidth_bytes_per_s)


def median_links(found: Iterable[tuple[_Key, LinkCosts]]) -> dict[_Key, LinkCosts]:
    """The median latency and the median bandwidth by key.

    >>> median_links([("a", LinkCosts(1.0, 10.0)), ("a", LinkCosts(3.0, 20.0))])
    {'a': LinkCosts(latency_s=2.0, bandwidth_bytes_per_s=15.0)}
    """
    several: dict[_Key, list[LinkCosts]] = defaultdict(list)
    for key, costs in found:
        several[key].append(costs)
    return {
        key: LinkCosts(
            statistics.median(one.latency_s for one in costs),
            statistics.median(one.bandwidth_bytes_per_s for one in costs),
        )
        for key, costs in several.items()
    }


def write_costs(store: CostStore, path: Path) -> None:
    """Writes a store; `read_costs` gives it back equal.

    >>> from gnnplace.files import temporary_folder
    >>> store = CostStore({"core": KindCosts({"Relu 4": 2e-6})}, {("core", "core"): LinkCosts(1e-5, 1e10)})
    >>> with temporary_folder() as folder:
    ...     write_costs(store, folder / "costs.json")
    ...     read_costs(folder / "costs.json") == store
    True
    """
    document = {
        "format": FORMAT,
        "kinds": {kind: dataclasses.asdict(costs) for kind, costs in store.kinds.items()},
        "links": _links_to_json(store.links, "source_kind", "target_kind"),
        "device_links": _links_to_json(store.device_links, "source", "target"),
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def read_costs(path: Path) -> CostStore:
    """The store in a file.

    >>> from gnnplace.files import temporary_folder
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "costs.json").write_text(f'{{"format": "{FORMAT}", "kinds": {{}}, "links": []}}')
    ...     read_costs(folder / "costs.json")
    CostStore(kinds={}, links={}, device_links={})

    Raises:
        InvalidTopology: the file is missing, is no JSON, or holds something else than finite costs.
    """
    document = read_json(path, InvalidTopology)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidTopology(f'{path}: "format" is not {FORMAT!r}; is this a file of measured costs?')
    kinds, links, device_links = document.get("kinds", {}), document.get("links", []), document.get("device_links", [])
    if not (isinstance(kinds, dict) and isinstance(links, list) and isinstance(device_links, list)):
        raise InvalidTopology(f"{path}: 'kinds' (an object), 'links' and 'device_links' (lists) are expected")
    return CostStore(
        {kind: _kind_from_json(row, f"{path}: kind {kind!r}") for kind, row in kinds.items()},
        dict(_link_from_json(row, "source_kind", "target_kind", f"{path}: a link") for row in links),
        dict(_link_from_json(row, "source", "target", f"{path}: a link of devices") for row in device_links),
    )


def _kind_from_json(row: Any, where: str) -> KindCosts:
    entries = _object(row, where)
    op_s = _object(entries.get("op_s", {}), where)
    dispatch_s, efficiency, launch_s = (entries.get(key) for key in ("dispatch_overhead_s", "efficiency", "launch_s"))
    segment = entries.get("segment")
    return KindCosts(
        {signature: _cost(value, f"{where}: op {signature!r}") for signature, value in op_s.items()},
        None if dispatch_s is None else _cost(dispatch_s, where),
        None if segment is None else _segment(segment, where),
        None
        if efficiency is None
        else {name: _efficiency(pair, where) for name, pair in _object(efficiency, where).items()},
        None if launch_s is None else _cost(launch_s, where),
    )


def _links_to_json(links: Mapping[tuple[str, str], LinkCosts], source: str, target: str) -> list[dict[str, Any]]:
    """A row per link, which names its ends under the keys `source` and `target`."""
    return [{source: ends[0], target: ends[1], **dataclasses.asdict(costs)} for ends, costs in links.items()]


def _link_from_json(row: Any, source: str, target: str, where: str) -> tuple[tuple[str, str], LinkCosts]:
    entries = _object(row, where)
    bandwidth = _cost(entries.get("bandwidth_bytes_per_s"), where)
    if bandwidth == 0:
        raise InvalidTopology(f"{where} has a bandwidth of zero; measure again")
    first, last = entries.get(source), entries.get(target)
    if not (isinstance(first, str) and isinstance(last, str)):
        raise InvalidTopology(f"{where} leads from {shown(first)} to {shown(last)}; expected two names")
    return (first, last), LinkCosts(_cost(entries.get("latency_s"), where), bandwidth)


def _segment(row: Any, where: str) -> SegmentCosts:
    entries = _object(row, where)
    return SegmentCosts(_cost(entries.get("overhead_s"), where), _cost(entries.get("intake_s_per_byte"), where))


def _efficiency(row: Any, where: str) -> Efficiency:
    entries = _object(row, where)
    return Efficiency(_cost(entries.get("compute"), where), _cost(entries.get("bandwidth"), where))


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidTopology(f"{where}: {shown(value)} is found where an object is expected")
    return value


def _cost(value: Any, where: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InvalidTopology(f"{where} has the cost {shown(value)}; expected a finite number, not negative")
    return float(value)
