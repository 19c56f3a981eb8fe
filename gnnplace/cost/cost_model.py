"""The seam between ops and seconds."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from gnnplace.arrays import FloatArray
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph

__all__ = ["CostModel"]


@runtime_checkable
class CostModel(Protocol):
    """Seconds of every op on every device, and of transfers on links."""

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op cannot run."""

    def calibrated(self, topology: Topology) -> Topology:
        """The same devices and links, with the latencies, bandwidths and overheads that this model knows better."""
