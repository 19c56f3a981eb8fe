"""Seconds that were measured on real devices, by op signature, so that other models reuse them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.cost.roofline import Efficiency, RooflineCost, stated_time_s
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.files import read_json, write_text
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import allowed_mask

__all__ = ["FORMAT", "CostStore", "KindCosts", "LinkCosts", "MeasuredCost", "SegmentCosts", "read_costs", "write_costs"]

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
    """What it takes to begin a segment."""

    overhead_s: float
    intake_s_per_byte: float
    """For the copies that it waits for, besides what their links take."""


@dataclass(frozen=True)
class LinkCosts:
    """What was measured between devices of two kinds."""

    latency_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class CostStore:
    """Measured costs by device kind, and by pair of kinds (source, target)."""

    kinds: Mapping[str, KindCosts] = field(default_factory=dict)
    links: Mapping[tuple[str, str], LinkCosts] = field(default_factory=dict)

    def of_kinds(self, wanted: Collection[str]) -> CostStore:
        """What is known of devices of these kinds, and between them."""
        return CostStore(
            {kind: costs for kind, costs in self.kinds.items() if kind in wanted},
            {ends: costs for ends, costs in self.links.items() if set(ends) <= set(wanted)},
        )


@dataclass(frozen=True)
class MeasuredCost:
    """Stated seconds first, then measured ones where the op's signature is known, else the roofline, fitted if it was."""

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
        """The topology with the measured dispatch overheads, latencies and bandwidths."""
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
        costs = self.store.links.get((kind_of[link.source], kind_of[link.target]))
        if costs is None:
            return link
        return dataclasses.replace(link, latency_s=costs.latency_s, bandwidth_bytes_per_s=costs.bandwidth_bytes_per_s)


def write_costs(store: CostStore, path: Path) -> None:
    """Writes a store; `read_costs` gives it back equal."""
    document = {
        "format": FORMAT,
        "kinds": {kind: dataclasses.asdict(costs) for kind, costs in store.kinds.items()},
        "links": [
            {"source_kind": source, "target_kind": target, **dataclasses.asdict(costs)}
            for (source, target), costs in store.links.items()
        ],
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def read_costs(path: Path) -> CostStore:
    """The store in a file.

    Raises:
        InvalidTopology: the file is missing, is no JSON, or holds something else than finite costs.
    """
    document = read_json(path, InvalidTopology)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidTopology(f'{path}: "format" is not {FORMAT!r}; is this a file of measured costs?')
    kinds, links = document.get("kinds", {}), document.get("links", [])
    if not isinstance(kinds, dict) or not isinstance(links, list):
        raise InvalidTopology(f"{path}: 'kinds' (an object) and 'links' (a list) are expected")
    return CostStore(
        {kind: _kind_from_json(row, f"{path}: kind {kind!r}") for kind, row in kinds.items()},
        dict(_link_from_json(row, f"{path}: a link") for row in links),
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


def _link_from_json(row: Any, where: str) -> tuple[tuple[str, str], LinkCosts]:
    entries = _object(row, where)
    ends = (str(entries.get("source_kind")), str(entries.get("target_kind")))
    bandwidth = _cost(entries.get("bandwidth_bytes_per_s"), where)
    if bandwidth == 0:
        raise InvalidTopology(f"{where} has a bandwidth of zero; measure again")
    return ends, LinkCosts(_cost(entries.get("latency_s"), where), bandwidth)


def _segment(row: Any, where: str) -> SegmentCosts:
    entries = _object(row, where)
    return SegmentCosts(_cost(entries.get("overhead_s"), where), _cost(entries.get("intake_s_per_byte"), where))


def _efficiency(row: Any, where: str) -> Efficiency:
    entries = _object(row, where)
    return Efficiency(_cost(entries.get("compute"), where), _cost(entries.get("bandwidth"), where))


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidTopology(f"{where}: {str(value)[:60]!r} is found where an object is expected")
    return value


def _cost(value: Any, where: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InvalidTopology(f"{where} has the cost {value!r}; expected a finite number, not negative")
    return float(value)
