"""Devices that are good at some ops and bad at others: random factors per op type and kind of device."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.cost.cost_model import CostModel
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph

__all__ = ["PerTypeCost"]


@dataclass(frozen=True)
class PerTypeCost:
    """Another model's seconds times a factor that depends on op type and kind of device alone.

    The factor's logarithm is normal with standard deviation `spread`; it follows from the seed and the two names, so a
    type costs the same in every graph, and types that come up later change nothing.

    >>> from gnnplace.cost.roofline import RooflineCost
    >>> cost = PerTypeCost(RooflineCost(), seed=0, spread=0.5)
    >>> round(cost.factor("Conv", "a"), 2), round(cost.factor("Conv", "b"), 2)
    (0.57, 1.08)
    """

    base: CostModel
    seed: int
    spread: float = 0.0

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        >>> from gnnplace.cost.roofline import RooflineCost
        >>> from gnnplace.devices.topology import Device
        >>> from gnnplace.graph.op_graph import Op
        >>> graph, devices = OpGraph.build("g", [Op("a", "Conv", time_s={"a": 1.0, "b": 1.0})]), (Device("a"), Device("b"))
        >>> PerTypeCost(RooflineCost(), seed=0, spread=0.5).op_time_s(graph, Topology("two", devices)).round(2).tolist()
        [[0.57, 1.08]]

        Raises:
            InvalidTopology: a device lacks a rate that the base model needs.
        """
        seconds = self.base.op_time_s(graph, topology)
        if not self.spread:
            return seconds
        types, row = np.unique(np.array(graph.op_types, dtype=np.str_), return_inverse=True)
        factors = np.array([[self.factor(name, device.kind) for device in topology.devices] for name in types.tolist()])
        return np.asarray(seconds * factors.reshape(len(types), topology.num_devices)[row])

    def calibrated(self, topology: Topology) -> Topology:
        """What the base model knows of the devices.

        >>> from gnnplace.cost.roofline import RooflineCost
        >>> from gnnplace.devices.presets import preset
        >>> PerTypeCost(RooflineCost(), seed=0).calibrated(preset("k40x2")) == preset("k40x2")
        True
        """
        return self.base.calibrated(topology)

    def factor(self, op_type: str, kind: str) -> float:
        """What the base model's seconds are multiplied with."""
        rng = np.random.default_rng([self.seed, zlib.crc32(f"{op_type} on {kind}".encode())])
        return float(np.exp(self.spread * rng.normal()))
