"""Measured costs of real devices: ops by signature, so that other models reuse them; dispatch, segments, links."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.cost.cost_model import Efficiency, RooflineCost, stated_time_s
from gnnplace.devices.real_names import host_of
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.files import read_json, write_text
from gnnplace.graph.op_graph import OpGraph
from gnnplace.json_fields import JsonObject, checked_format
from gnnplace.placement import allowed_mask

_Key = TypeVar("_Key", bound=Hashable)

FORMAT = "gnnplace.costs/1"


@dataclass(frozen=True)
class SegmentCosts:
    """Costs of beginning a segment."""

    overhead_s: float
    intake_s_per_byte: float
    """Seconds per byte of the copies that the segment waits for, besides the seconds of their links."""


@dataclass(frozen=True)
class KindCosts:
    """Measured costs of the devices of one kind; None: not measured."""

    op_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by op signature."""
    dispatch_overhead_s: float | None = None
    segment: SegmentCosts | None = None
    """Costs of a segment besides its ops."""
    efficiency: Mapping[str, Efficiency] | None = None
    """The roofline fitted to `op_s`, by op class."""
    launch_s: float | None = None
    """Launch seconds of that fit."""


@dataclass(frozen=True)
class LinkCosts:
    """Measured costs of a link between two devices, or their medians over the devices of two kinds."""

    latency_s: float
    """Seconds until a waiting device has the first value of a hand-over, if it is small."""
    bandwidth_bytes_per_s: float
    next_value_s: float | None = None
    """Seconds of each further small value of a hand-over; None: not measured, and taken to be those of the first."""

    @property
    def waking_s(self) -> float:
        """Seconds that a hand-over takes once, however many values it has."""
        return 0.0 if self.next_value_s is None else max(self.latency_s - self.next_value_s, 0.0)


@dataclass(frozen=True)
class CostStore:
    """Measured costs of one machine; keys of links are (source, target)."""

    kinds: Mapping[str, KindCosts] = field(default_factory=dict)
    links: Mapping[tuple[str, str], LinkCosts] = field(default_factory=dict)
    """Costs by pair of device kinds."""
    device_links: Mapping[tuple[str, str], LinkCosts] = field(default_factory=dict)
    """Costs by pair of device names, such as `cpu:0` and `cuda:1`; `links` has their kinds too."""

    def of_devices(self, devices: Iterable[Device]) -> CostStore:
        """The costs of these devices, their kinds, and the links between them."""
        kind_of = {device.name: device.kind for device in devices}
        kinds = set(kind_of.values())
        return CostStore(
            {kind: costs for kind, costs in self.kinds.items() if kind in kinds},
            {ends: costs for ends, costs in self.links.items() if set(ends) <= kinds},
            {ends: costs for ends, costs in self.device_links.items() if set(ends) <= kind_of.keys()},
        )


@dataclass(frozen=True)
class MeasuredCost:
    """Cost model: stated seconds first, then measured ones of the op's signature, else the roofline, fitted if possible."""

    store: CostStore
    roofline: RooflineCost = field(default_factory=RooflineCost)

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        Raises:
            InvalidTopology: a device lacks a rate for an op without stated or measured seconds.
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

        A link has the costs between its two devices where they are known, else those between their kinds. Where the store
        knows nothing of the kinds, the devices belong to another machine, whatever their names.

        A channel carries one value after the other, while the values of one hand-over come together and wake the device once. So
        a link's latency is that of one more value, and what waking takes on all links to a device is part of its dispatch
        overhead, which it pays after each wait.
        """
        kind_of = {device.name: device.kind for device in topology.devices}
        costs = [self._link_costs(link, kind_of) for link in topology.links]
        waking_s: dict[str, float] = {}
        for link, found in zip(topology.links, costs, strict=True):
            waking_s[link.target] = min(waking_s.get(link.target, math.inf), 0.0 if found is None else found.waking_s)
        return dataclasses.replace(
            topology,
            devices=tuple(self._device(device, waking_s.get(device.name, 0.0)) for device in topology.devices),
            links=tuple(
                link if found is None else _calibrated_link(link, found, waking_s[link.target])
                for link, found in zip(topology.links, costs, strict=True)
            ),
        )

    def _fitted(self, costs: KindCosts) -> RooflineCost:
        if costs.efficiency is None:
            return self.roofline
        launch = {} if costs.launch_s is None else {"launch_s": costs.launch_s, "host_launch_s": costs.launch_s}
        efficiency = {**self.roofline.efficiency, **costs.efficiency}
        return dataclasses.replace(self.roofline, efficiency=efficiency, scaling=None, **launch)

    def _device(self, device: Device, waking_s: float) -> Device:
        costs = self.store.kinds.get(device.kind, KindCosts())
        call_s = device.dispatch_overhead_s if costs.dispatch_overhead_s is None else costs.dispatch_overhead_s
        device = dataclasses.replace(device, dispatch_overhead_s=call_s + waking_s)
        if costs.segment is not None:
            per_byte = costs.segment.intake_s_per_byte
            device = dataclasses.replace(
                device,
                segment_overhead_s=costs.segment.overhead_s,
                intake_bandwidth_bytes_per_s=1 / per_byte if per_byte else None,
            )
        return device

    def _link_costs(self, link: Link, kind_of: Mapping[str, str]) -> LinkCosts | None:
        """The measured costs of a link; None without any, and between hosts, where it is the network that counts."""
        of_kinds = self.store.links.get((kind_of[link.source], kind_of[link.target]))
        if of_kinds is None or host_of(link.source) != host_of(link.target):
            return None
        return self.store.device_links.get((link.source, link.target), of_kinds)


def _calibrated_link(link: Link, costs: LinkCosts, waking_s: float) -> Link:
    latency_s = costs.latency_s - waking_s
    return dataclasses.replace(link, latency_s=latency_s, bandwidth_bytes_per_s=costs.bandwidth_bytes_per_s)


def medians(rows: Iterable[tuple[_Key, Sequence[float]]]) -> dict[_Key, list[float]]:
    """Median of each figure by key; all rows have the same figures."""
    several: dict[_Key, list[Sequence[float]]] = defaultdict(list)
    for key, figures in rows:
        several[key].append(figures)
    return {key: [statistics.median(column) for column in zip(*found, strict=True)] for key, found in several.items()}


def median_links(found: Iterable[tuple[_Key, LinkCosts]]) -> dict[_Key, LinkCosts]:
    """Medians of each figure by key; that of `next_value_s` over the links where it was measured."""
    several: dict[_Key, list[LinkCosts]] = defaultdict(list)
    for key, costs in found:
        several[key].append(costs)
    return {
        key: LinkCosts(
            statistics.median(one.latency_s for one in costs),
            statistics.median(one.bandwidth_bytes_per_s for one in costs),
            statistics.median(known)
            if (known := [one.next_value_s for one in costs if one.next_value_s is not None])
            else None,
        )
        for key, costs in several.items()
    }


def write_costs(store: CostStore, path: Path) -> None:
    """Writes a store as JSON."""
    document = {
        "format": FORMAT,
        "kinds": {kind: dataclasses.asdict(costs) for kind, costs in store.kinds.items()},
        "links": _links_to_json(store.links, "source_kind", "target_kind"),
        "device_links": _links_to_json(store.device_links, "source", "target"),
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _links_to_json(links: Mapping[tuple[str, str], LinkCosts], source: str, target: str) -> list[dict[str, Any]]:
    """A row per link; `source` and `target` are the keys of its ends."""
    return [{source: ends[0], target: ends[1], **dataclasses.asdict(costs)} for ends, costs in links.items()]


def read_costs(path: Path) -> CostStore:
    """Reads a store that `write_costs` wrote.

    Raises:
        InvalidTopology: the file is missing, is no JSON, or holds anything but finite costs.
    """
    document = checked_format(read_json(path, InvalidTopology), FORMAT, str(path), InvalidTopology)
    kinds = document.object("kinds")
    return CostStore(
        {kind: _kind_from_json(kinds.object(kind)) for kind in kinds.fields},
        _links_from_json(document.objects("links"), "source_kind", "target_kind"),
        _links_from_json(document.objects("device_links"), "source", "target"),
    )


def _kind_from_json(row: JsonObject) -> KindCosts:
    op_s, segment, efficiency = row.object("op_s"), row.object("segment"), row.object("efficiency")
    classes = {name: efficiency.object(name) for name in efficiency.fields}
    return KindCosts(
        op_s={signature: op_s.cost(signature) for signature in op_s.fields},
        dispatch_overhead_s=None if row.fields.get("dispatch_overhead_s") is None else row.cost("dispatch_overhead_s"),
        segment=SegmentCosts(segment.cost("overhead_s"), segment.cost("intake_s_per_byte")) if segment.fields else None,
        efficiency={name: Efficiency(each.cost("compute"), each.cost("bandwidth")) for name, each in classes.items()}
        or None,
        launch_s=None if row.fields.get("launch_s") is None else row.cost("launch_s"),
    )


def _links_from_json(rows: Iterable[JsonObject], source: str, target: str) -> dict[tuple[str, str], LinkCosts]:
    found = {}
    for row in rows:
        ends = row.text(source), row.text(target)
        next_value_s = None if row.fields.get("next_value_s") is None else row.cost("next_value_s")
        found[ends] = LinkCosts(row.cost("latency_s"), row.cost("bandwidth_bytes_per_s"), next_value_s)
        if found[ends].bandwidth_bytes_per_s == 0:
            raise InvalidTopology(f"{row.where}: the link {' -> '.join(ends)} has a bandwidth of zero; measure again")
    return found
