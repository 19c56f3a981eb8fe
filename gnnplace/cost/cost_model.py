"""The seam between ops and seconds."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray
from gnnplace.devices.topology import HOST_KIND_PREFIX, Device, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import allowed_mask

__all__ = ["CostModel", "Efficiency", "OpClass", "PerTypeCost", "RooflineCost", "bound_s", "op_class", "stated_time_s"]


@runtime_checkable
class CostModel(Protocol):
    """Seconds of every op on every device, and of transfers on links."""

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op cannot run."""

    def calibrated(self, topology: Topology) -> Topology:
        """The same devices and links, with the latencies, bandwidths and overheads that this model knows better."""


@dataclass(frozen=True)
class PerTypeCost:
    """Another model's seconds times a factor that depends on op type and kind of device alone.

    The factor's logarithm is normal with standard deviation `spread`; it follows from the seed and the two names, so a
    type costs the same in every graph, and types that come up later change nothing.

    >>> from gnnplace.cost.cost_model import RooflineCost
    >>> cost = PerTypeCost(RooflineCost(), seed=0, spread=0.5)
    >>> round(cost.factor("Conv", "a"), 2), round(cost.factor("Conv", "b"), 2)
    (0.57, 1.08)
    """

    base: CostModel
    seed: int
    spread: float = 0.0

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        >>> from gnnplace.cost.cost_model import RooflineCost
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

        >>> from gnnplace.cost.cost_model import RooflineCost
        >>> from gnnplace.devices.presets import preset
        >>> PerTypeCost(RooflineCost(), seed=0).calibrated(preset("k40x2")) == preset("k40x2")
        True
        """
        return self.base.calibrated(topology)

    def factor(self, op_type: str, kind: str) -> float:
        """What the base model's seconds are multiplied with."""
        rng = np.random.default_rng([self.seed, zlib.crc32(f"{op_type} on {kind}".encode())])
        return float(np.exp(self.spread * rng.normal()))


OpClass = str
CONVOLUTION, MATRIX, OTHER = "convolution", "matrix", "other"

# Integer variants are named after what they quantise, fused ones after what they fuse.
_CLASS_WORDS: tuple[tuple[OpClass, tuple[str, ...]], ...] = (
    (CONVOLUTION, ("conv",)),
    (MATRIX, ("matmul", "gemm", "attention", "einsum", "lstm", "gru", "rnn")),
)


@dataclass(frozen=True)
class Efficiency:
    """Fractions of a device's published rates that one class of ops attains."""

    compute: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (0 < self.compute < np.inf and 0 < self.bandwidth < np.inf):
            raise InvalidTopology(f"an efficiency is {self.compute} or {self.bandwidth}; expected more than zero")


def _published() -> Mapping[OpClass, Efficiency]:
    """Estimates for what is not calibrated.

    Library kernels attain half or more of the peak on large problems; streaming kernels attain 0.7 to 0.8 of the memory
    bandwidth, as the STREAM benchmark does; other kernels use no tensor units but transcendental functions.
    """
    return {
        CONVOLUTION: Efficiency(compute=0.5, bandwidth=0.7),
        MATRIX: Efficiency(compute=0.6, bandwidth=0.7),
        OTHER: Efficiency(compute=0.1, bandwidth=0.7),
    }


@dataclass(frozen=True)
class RooflineCost:
    """Time = max(FLOPs / attained FLOP rate, bytes / attained bandwidth) + launch (Williams et al. 2009).

    Seconds that the graph states win: by device name, then by kind. An op without FLOPs and bytes takes the launch alone.

    >>> from gnnplace.graph.op_graph import Op
    >>> device = Device("d", peak_flops_per_s={"float32": 1e12}, memory_bandwidth_bytes_per_s=1e11)
    >>> graph = OpGraph.build("g", [Op("a", "MatMul", flops=6e9)])
    >>> RooflineCost(launch_s=0.0).op_time_s(graph, Topology("t", (device,))).tolist()
    [[0.01]]
    """

    efficiency: Mapping[OpClass, Efficiency] = field(default_factory=_published)
    launch_s: float = 5e-6
    """Of one kernel on an accelerator; a launch takes 3 to 10 us from a framework."""
    host_launch_s: float = 1e-6
    """Of one kernel on a CPU: a function call and the executor's bookkeeping around it."""

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        Raises:
            InvalidTopology: a device lacks a rate that is needed for an op without a stated time.
        """
        allowed = allowed_mask(graph, topology)
        columns = [
            self.completed(graph, device, stated_time_s(graph, device), allowed[:, index])
            for index, device in enumerate(topology.devices)
        ]
        return np.stack(columns, axis=1)

    def calibrated(self, topology: Topology) -> Topology:
        """The topology as it is: published figures know nothing better.

        >>> from gnnplace.devices.presets import preset
        >>> RooflineCost().calibrated(preset("k40x2")) == preset("k40x2")
        True
        """
        return topology

    def completed(self, graph: OpGraph, device: Device, known_s: FloatArray, allowed: BoolArray) -> FloatArray:
        """`[N]` seconds on one device: `known_s` where it is a number, else the roofline; infinite where not `allowed`.

        >>> from gnnplace.graph.op_graph import Op
        >>> graph, device = OpGraph.build("g", [Op("a"), Op("b"), Op("c")]), Device("d")
        >>> RooflineCost().completed(graph, device, np.array([2.0, np.nan, 1.0]), np.array([True, True, False])).tolist()
        [2.0, 5e-06, inf]

        Raises:
            InvalidTopology: the device lacks a rate that is needed.
        """
        seconds = np.where(allowed, known_s, np.inf)
        missing = np.isnan(seconds)
        if missing.any():
            launch_s = self.host_launch_s if device.kind.startswith(HOST_KIND_PREFIX) else self.launch_s
            seconds[missing] = bound_s(graph, device, self.efficiency, missing)[missing] + launch_s
            endless = np.flatnonzero(missing & np.isinf(seconds))
            if endless.size:
                raise InvalidTopology(
                    f"device {device.name!r}: op {graph.op_names[endless[0]]!r} would take longer than a number can say; "
                    "check its flops and bytes and the rates of the device"
                )
        return seconds


def op_class(op_type: str) -> OpClass:
    """The class of ops whose kernels attain similar rates.

    >>> op_class("QLinearConv"), op_class("MatMulInteger"), op_class("Relu")
    ('convolution', 'matrix', 'other')
    """
    lower = op_type.lower()
    return next((name for name, words in _CLASS_WORDS if any(word in lower for word in words)), OTHER)


def stated_time_s(graph: OpGraph, device: Device) -> FloatArray:
    """`[N]` seconds that the graph states for a device, by its name, else by its kind; NaN where it states none.

    >>> from gnnplace.graph.op_graph import Op
    >>> graph = OpGraph.build("g", [Op("a", time_s={"k40": 2.0, "k40:1": 3.0}), Op("b")])
    >>> stated_time_s(graph, Device("k40:0", "k40")).tolist(), stated_time_s(graph, Device("k40:1", "k40")).tolist()
    ([2.0, nan], [3.0, nan])
    """
    unknown = np.full(graph.num_ops, np.nan)
    by_kind = graph.time_s.get(device.kind, unknown)
    by_name = graph.time_s.get(device.name, unknown)
    return np.where(np.isnan(by_name), by_kind, by_name)


def bound_s(graph: OpGraph, device: Device, efficiency: Mapping[OpClass, Efficiency], wanted: BoolArray) -> FloatArray:
    """`[N]` seconds of computing or of moving data, the longer one, without launch; meaningful where `wanted`.

    >>> from gnnplace.graph.op_graph import Op
    >>> graph = OpGraph.build("g", [Op("a", "MatMul", flops=4e9, bytes_accessed=1e8)])
    >>> device = Device("d", peak_flops_per_s={"float32": 1e12}, memory_bandwidth_bytes_per_s=1e11)
    >>> half = {"matrix": Efficiency(compute=0.5, bandwidth=1.0)}
    >>> bound_s(graph, device, half, np.array([True])).tolist()  # 4 ms of computing at half the rate
    [0.008]

    Raises:
        InvalidTopology: the device lacks a rate that a wanted op needs.
    """
    peak = _peak_flops_per_s(graph, device)
    bandwidth = np.full(graph.num_ops, device.memory_bandwidth_bytes_per_s or np.nan)
    for work, rate, key in (
        (graph.flops, peak, "peak_flops_per_s"),
        (graph.bytes_accessed, bandwidth, "memory_bandwidth_bytes_per_s"),
    ):
        lacking = np.flatnonzero(wanted & (work > 0) & np.isnan(rate))
        if lacking.size:
            raise InvalidTopology(
                f"device {device.name!r} states no {key}, and op {graph.op_names[lacking[0]]!r} "
                f"no time_s for it or for its kind {device.kind!r}; state one of the two"
            )
    per_class = [efficiency[op_class(op_type)] for op_type in graph.op_types]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):  # infinite is infinite
        compute = peak * np.array([entry.compute for entry in per_class])
        memory = bandwidth * np.array([entry.bandwidth for entry in per_class])
        return np.maximum(_quotient(graph.flops, compute), _quotient(graph.bytes_accessed, memory))


def _peak_flops_per_s(graph: OpGraph, device: Device) -> FloatArray:
    """`[N]` by dtype, else the rate of float32, else NaN."""
    default = device.peak_flops_per_s.get("float32", np.nan)
    rates = {dtype: device.peak_flops_per_s.get(dtype.removeprefix("u"), default) for dtype in set(graph.dtypes)}
    return np.array([rates[dtype] for dtype in graph.dtypes], dtype=np.float64)


def _quotient(work: FloatArray, rate: FloatArray) -> FloatArray:
    return np.divide(work, rate, out=np.zeros(len(work)), where=work > 0)
